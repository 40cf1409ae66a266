package switchd

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// pulse is a heart whose time and ticks the test gives.
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

// tick lets the clock go on, and gives how many beats there were by then. The heart takes the second tick only when
// it is through with the first.
func (p *pulse) tick(by time.Duration) int64 {
	p.at.Add(int64(by))
	p.ticks <- time.Time{}
	p.ticks <- time.Time{}
	return p.sent.Load()
}

// A control loop that is kept for some seconds does not stop the heart; one that hangs does; and when it comes back
// the heart goes on.
func TestHeart_BeatsAsLongAsItIsPermitted(t *testing.T) {
	p := newPulse(t)
	last := int64(0)
	for range 4 {
		now := p.tick(time.Second)
		if now <= last {
			t.Fatalf("the control loop is busy, and the heart stops after %v", time.Duration(p.at.Load()))
		}
		last = now
	}
	p.tick(time.Second) // the permit ends; the tick before may still have been in time
	last = p.sent.Load()
	if now := p.tick(time.Second); now != last {
		t.Errorf("the control loop hangs for %v, and the heart beats: windows would be held for ever", time.Duration(p.at.Load()))
	}
	p.permit()
	if now := p.tick(0); now <= last {
		t.Error("the control loop is back, and the heart does not beat")
	}
}

func TestHeart_StopsWithTheReason(t *testing.T) {
	p := newPulse(t)
	p.fail = errors.New("another process takes over")
	p.ticks <- time.Time{}
	if err := <-p.failed; !errors.Is(err, p.fail) {
		t.Errorf("it says %v", err)
	}
	p.stop()
	p.stop()
	if p.sent.Load() != 1 {
		t.Errorf("%d beats after the one that failed", p.sent.Load()-1)
	}
}
