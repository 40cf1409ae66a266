package sim

import (
	"time"

	"weir/experiment/result"
	"weir/sim/event"
	"weir/sim/laws"
	"weir/sim/network"
)

// lawStep is how often it is looked at what a law holds of a port: as the lab does.
const lawStep = 10 * event.Millisecond

// lawRecorder notes what FairQ counts and grants at the ports whose queues are sampled, and counts what it does with
// acknowledgements.
type lawRecorder struct {
	net     *network.Network
	t0      event.Time
	tick    event.Event
	ports   []*network.Port
	samples []result.LawSample
	before  laws.FairQCounts // when the run began: the probe of the round trip has passed
}

// watch takes a port if it has such a law.
func (r *lawRecorder) watch(p *network.Port) {
	if _, has := laws.SampleFairQ(p); has {
		r.ports = append(r.ports, p)
	}
}

// begin takes the first sample.
func (r *lawRecorder) begin(n *network.Network) {
	r.net, r.t0 = n, n.Queue.Now()
	r.before, _ = laws.CountFairQ(n)
	r.tick.Init(r)
	if len(r.ports) > 0 {
		n.Queue.Set(&r.tick, r.t0)
	}
}

// Happen takes a sample of every port.
func (r *lawRecorder) Happen(_ *event.Event, now event.Time) {
	for _, p := range r.ports {
		s, _ := laws.SampleFairQ(p)
		s.At = time.Duration(now - r.t0)
		r.samples = append(r.samples, s)
	}
	r.net.Queue.Set(&r.tick, now+lawStep)
}

// fill gives raw what happened in [0, raw.Duration), and says what kept FairQ from holding every flow, where it is more
// than a thousandth of them, in the lab's words.
func (r *lawRecorder) fill(raw *result.Raw) {
	c, has := laws.CountFairQ(r.net)
	if !has {
		return
	}
	end := len(r.samples)
	for end > 0 && r.samples[end-1].At >= raw.Duration {
		end--
	}
	raw.Laws = r.samples[:end:end]
	raw.Acks = &result.LawAcks{All: c.Acks - r.before.Acks, Rewritten: c.Rewritten - r.before.Rewritten}
	if (c.Refused-r.before.Refused)*1000 > c.Opened-r.before.Opened {
		raw.Unmet = append(raw.Unmet, "fairq: over 0.1 % of the connections were not entered in the flow table (no room), and not held")
	}
	if (c.Unknown-r.before.Unknown)*1000 > c.Seen-r.before.Seen {
		raw.Unmet = append(raw.Unmet, "fairq: over 0.1 % of the acknowledgements were of no connection in the flow table, and not rewritten")
	}
}
