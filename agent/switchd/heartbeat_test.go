package switchd

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// pulse is a heartbeat with the test's time and ticks.
type pulse struct {
	*heartbeat
	at    atomic.Int64
	ticks chan time.Time
	sent  atomic.Int64
	fail  error
}

func newPulse(t *testing.T) *pulse {
	p := &pulse{ticks: make(chan time.Time)}
	p.heartbeat = heartbeatAt(func() error { p.sent.Add(1); return p.fail }, func() time.Duration { return time.Duration(p.at.Load()) })
	p.stopped.Go(func() { p.run(p.ticks) })
	t.Cleanup(p.stop)
	return p
}

// tick advances the clock, and returns how many heartbeats were sent by then. The second tick is accepted only after
// the first is processed.
func (p *pulse) tick(by time.Duration) int64 {
	p.at.Add(int64(by))
	p.ticks <- time.Time{}
	p.ticks <- time.Time{}
	return p.sent.Load()
}

// A control loop that is busy for some seconds does not stop the heartbeats. One that hangs does, and when it recovers
// they continue.
func TestHeartbeat_IsSentAsLongAsPermitted(t *testing.T) {
	p := newPulse(t)
	last := int64(0)
	for range 4 {
		now := p.tick(time.Second)
		if now <= last {
			t.Fatalf("the control loop is busy, and heartbeats stop after %v", time.Duration(p.at.Load()))
		}
		last = now
	}
	p.tick(time.Second) // the permit ends; the tick before may still have been in time
	last = p.sent.Load()
	if now := p.tick(time.Second); now != last {
		t.Errorf("the control loop hangs for %v, and heartbeats continue: windows would stay limited for ever", time.Duration(p.at.Load()))
	}
	p.permit()
	if now := p.tick(0); now <= last {
		t.Error("the control loop recovered, and no heartbeat is sent")
	}
}

func TestHeartbeat_StopsWithTheReason(t *testing.T) {
	p := newPulse(t)
	p.fail = errors.New("another process takes over")
	p.ticks <- time.Time{}
	if err := <-p.failed; !errors.Is(err, p.fail) {
		t.Errorf("got %v", err)
	}
	p.stop()
	p.stop()
	if p.sent.Load() != 1 {
		t.Errorf("%d heartbeats after the one that failed", p.sent.Load()-1)
	}
}
