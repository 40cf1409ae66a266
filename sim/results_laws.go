package sim

import (
	"time"

	"weir/experiment"
	"weir/experiment/result"
	"weir/sim/event"
	"weir/sim/laws"
	"weir/sim/network"
)

// lawRecorder notes what FairQ counts and grants at the ports whose queues are sampled, and counts what it does with
// acknowledgements.
type lawRecorder struct {
	net     *network.Network
	t0      event.Time
	tick    event.Event
	ports   []*network.Port
	samples []result.LawSample
	before  experiment.FairQTally // when the run began: the probe of the round trip has passed
	acdc    laws.ACDCCounts       // the same
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
	r.acdc, _ = laws.CountACDC(n)
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
	r.net.Queue.Set(&r.tick, now+event.Time(result.LawEvery))
}

// fill gives raw the samples of [0, raw.Duration), what became of acknowledgements up to now, and what kept FairQ or AC/DC
// from holding every flow.
func (r *lawRecorder) fill(raw *result.Raw) {
	r.fillACDC(raw)
	c, has := laws.CountFairQ(r.net)
	if !has {
		return
	}
	end := len(r.samples)
	for end > 0 && r.samples[end-1].At >= raw.Duration {
		end--
	}
	raw.Laws = r.samples[:end:end]
	did := c.Since(&r.before)
	raw.Acks = &did.Acks
	raw.Unmet = append(raw.Unmet, result.UnmetTexts("fairq", result.Warning, did.Trouble()...)...)
}

// fillACDC is fill for AC/DC, which holds nothing of ports.
func (r *lawRecorder) fillACDC(raw *result.Raw) {
	c, has := laws.CountACDC(r.net)
	if !has {
		return
	}
	raw.Acks = &result.LawAcks{All: c.Acks - r.acdc.Acks, Rewritten: c.Rewritten - r.acdc.Rewritten}
	if (c.Refused-r.acdc.Refused)*1000 > c.Opened-r.acdc.Opened {
		raw.Unmet = append(raw.Unmet, result.UnmetTexts("acdc", result.Warning,
			"acdc: over 0.1 % of the ends of connections were not entered in a host's table (no room), and not held")...)
	}
}
