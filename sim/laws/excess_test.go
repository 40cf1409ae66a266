//go:build cgo

package laws

import (
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/law/gcc"
	"weir/sim/event"
)

// A VM that sends more than its rate: with excess: queue its packets wait at its port, and none is lost there. With excess: drop one
// waits, and the others are lost. Its share of the link is the same.
func TestExcess_QueueOrDrop(t *testing.T) {
	run := func(excess string) (waits int64, dropped uint64, mbit float64) {
		f := newFlood(t, experiment.Topology{Senders: 2}, func(p *gcc.Config, _ *experiment.Run) { p.Excess = excess })
		f.start()
		f.run(event.Second)
		for range 200 {
			rates := f.run(10 * event.Millisecond)
			mbit += rates[0] / 200
			waits = max(waits, f.net.HostPort(f.senders[f.names[0]].host).BacklogPackets())
		}
		return waits, f.law.hosts.Counts().Excess, mbit
	}
	queued, lost, share := run(law.ExcessQueue)
	if queued < 20 || lost != 0 {
		t.Errorf("queue: %d packets wait, %d are dropped", queued, lost)
	}
	waits, dropped, again := run(law.ExcessDrop)
	if waits > 1 || dropped < 1000 {
		t.Errorf("drop: %d packets wait, %d are dropped", waits, dropped)
	}
	if again < 0.9*share || again > 1.1*share {
		t.Errorf("%.1f Mbit/s with drop, %.1f with queue", again, share)
	}
	t.Logf("queue: %d wait, %.1f Mbit/s; drop: %d wait, %d dropped, %.1f Mbit/s", queued, share, waits, dropped, again)
}
