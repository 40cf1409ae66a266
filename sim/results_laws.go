package sim

import (
	"time"

	"weir/experiment/result"
	"weir/law"
	"weir/sim/event"
	"weir/sim/laws"
	"weir/sim/network"
)

// lawRecorder records the laws' values of sampled ports, and their counts at all ports.
type lawRecorder struct {
	laws    *laws.Set
	queue   *event.Queue
	t0      event.Time
	tick    event.Event
	ports   []*network.Port
	values  []law.Value // of one port
	samples []result.LawSample
	before  []law.Tally // at the start of the run: the RTT probe has passed
}

// watch adds a port. A law may get values for it only later, because a grant is still on its way.
func (r *lawRecorder) watch(p *network.Port) { r.ports = append(r.ports, p) }

// begin takes the first sample.
func (r *lawRecorder) begin(q *event.Queue) {
	r.queue, r.t0 = q, q.Now()
	r.before = r.laws.Tallies()
	r.tick.Init(r)
	if len(r.ports) > 0 {
		q.Set(&r.tick, r.t0)
	}
}

// Happen takes a sample of every port.
func (r *lawRecorder) Happen(_ *event.Event, now event.Time) {
	for _, p := range r.ports {
		r.values = r.laws.Sample(p, r.values[:0])
		for _, v := range r.values {
			r.samples = append(r.samples, result.LawSample{At: time.Duration(now - r.t0), Port: p.Name, Value: v})
		}
	}
	r.queue.Set(&r.tick, now+event.Time(result.LawEvery))
}

// fill adds to raw the samples of [0, raw.Duration), the laws' counts up to now, and what kept laws from working as
// they should.
func (r *lawRecorder) fill(raw *result.Raw) {
	end := len(r.samples)
	for end > 0 && r.samples[end-1].At >= raw.Duration {
		end--
	}
	raw.LawSamples = r.samples[:end:end]
	totals, unmet := r.laws.Report(r.before)
	raw.LawTotals = totals
	raw.Unmet = append(raw.Unmet, unmet...)
}
