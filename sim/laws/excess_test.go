//go:build cgo

package laws

import (
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/law/gcc"
	"weir/sim/event"
)

// A VM that sends more than its rate: with excess: queue its packets wait at its port, 50 ms of its rate, and the others are lost behind
// them. With excess: drop one waits, and the others are lost. Its share of the link is the same.
func TestExcess_QueueOrDrop(t *testing.T) {
	run := func(excess string) (waits, full int64, dropped uint64, mbit float64) {
		f := newFlood(t, experiment.Topology{Senders: 2}, func(p *gcc.Config, _ *experiment.Run) { p.Excess = excess })
		f.start()
		f.run(event.Second)
		port := f.net.HostPort(f.senders[f.names[0]].host)
		for range 200 {
			rates := f.run(10 * event.Millisecond)
			mbit += rates[0] / 200
			waits = max(waits, port.BacklogPackets())
		}
		return waits, port.Counters().Tail.Packets, f.law.hosts.Counts().Excess, mbit
	}
	const most = 60_000_000 / 8 / 20 / floodFrame // the share is a half of 100 Mbit/s
	queued, full, lost, share := run(law.ExcessQueue)
	if queued < 20 || queued > most || full < 1000 || lost != 0 {
		t.Errorf("queue: %d packets wait, at %d the queue was full, %d are dropped", queued, full, lost)
	}
	waits, full, dropped, again := run(law.ExcessDrop)
	if waits > 1 || full != 0 || dropped < 1000 {
		t.Errorf("drop: %d packets wait, at %d the queue was full, %d are dropped", waits, full, dropped)
	}
	if again < 0.9*share || again > 1.1*share {
		t.Errorf("%.1f Mbit/s with drop, %.1f with queue", again, share)
	}
	t.Logf("queue: %d wait, %.1f Mbit/s; drop: %d wait, %d dropped, %.1f Mbit/s", queued, share, waits, dropped, again)
}
