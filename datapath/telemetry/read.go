package telemetry

import (
	"time"

	"weir/datapath/attach"
	events "weir/law/telemetry"
)

// Reading is what all ports counted between two calls of Read. Its memory is used again by the next call. The zero value is
// ready for use.
type Reading struct {
	Telemetry events.Telemetry
	Arrivals  events.Arrivals // all counts are 0 unless a law asks for arrivals

	vms   []events.VMMarks // memory of all ports
	pairs []events.Pair
}

// prepare gives the reading memory for n ports, and clears it.
func (r *Reading) prepare(n int) {
	if len(r.Telemetry.Ports) != n {
		r.Telemetry.Ports, r.Arrivals.Ports = make([]events.Port, n), make([]events.PortArrivals, n)
		r.vms, r.pairs = make([]events.VMMarks, n*events.MaxVMs), make([]events.Pair, n*events.MaxPairs)
	}
	for i := range n {
		r.Telemetry.Ports[i], r.Arrivals.Ports[i] = events.Port{}, events.PortArrivals{}
		r.Telemetry.Ports[i].Marks.ByVM = r.vms[i*events.MaxVMs : i*events.MaxVMs : (i+1)*events.MaxVMs]
		r.Arrivals.Ports[i].Pairs = r.pairs[i*events.MaxPairs : i*events.MaxPairs : (i+1)*events.MaxPairs]
	}
}

// Read reads what every port counted since the last call, in the order of Attach and Add. It allocates nothing after the first call
// with a Reading. Each packet is in exactly one reading. If a processor was stopped in the middle of the program, the port's
// counts are all in the next reading (Late counts this). An error is one of the queue disciplines: the other figures are
// valid then.
func (t *Telemetry) Read(r *Reading) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.prepare(len(t.ports))
	now := attach.MonotonicNs()
	elapsed := time.Duration(now - t.last)
	t.last = now
	for _, p := range t.ports {
		p.counts.flip(&t.shared.ports[p.id])
	}
	err := t.readQueues()
	for i, p := range t.ports {
		e, a := &r.Telemetry.Ports[i], &r.Arrivals.Ports[i]
		h := &t.shared.ports[p.id].Half[p.counts.active^1]
		if p.counts.settled(h) {
			h.take(e, a)
			p.counts.pending = false
		} else {
			t.late++
		}
		q := p.queue
		e.N, a.N = p.N, p.N
		e.BacklogBytes, e.SentBytes, e.Drops = uint64(q.now.backlog), q.sent, q.drops
		e.PeakBytes = max(e.PeakBytes, e.BacklogBytes)
	}
	r.Telemetry.At, r.Telemetry.T = t.config.Switch, elapsed
	r.Arrivals.At, r.Arrivals.T = t.config.Switch, elapsed
	return err
}

// Late returns how often a port's counts had to wait for the next reading.
func (t *Telemetry) Late() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.late
}
