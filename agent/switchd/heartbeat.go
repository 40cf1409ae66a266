package switchd

import (
	"sync"
	"sync/atomic"
	"time"

	"weir/datapath/reading"
)

// permitFor is how long the heart beats after the control loop last gave its permit. A file that is read again, a
// program that loads on a busy machine or a shaper that runs empty may keep the loop for a second or two: no reason
// to release the windows of all ports. A loop that hangs for longer must not keep them: 5 s later the heart stops,
// and the kernel releases them after the lease, as if the process were dead.
const permitFor = 5 * time.Second

// heart beats in a goroutine of its own, as long as the control loop permits.
type heartbeat struct {
	send    func() error
	failed  chan error // why it stopped by itself, at most once
	until   atomic.Int64
	now     func() time.Duration // since any moment; monotonic
	done    chan struct{}
	stopped sync.WaitGroup
	once    sync.Once
}

func newHeartbeat(send func() error) *heartbeat {
	begun := time.Now()
	h := heartbeatAt(send, func() time.Duration { return time.Since(begun) })
	h.stopped.Go(func() {
		ticker := time.NewTicker(reading.HeartbeatInterval)
		defer ticker.Stop()
		h.run(ticker.C)
	})
	return h
}

// heartAt is a heart with a clock of the caller's, which does not run yet.
func heartbeatAt(send func() error, now func() time.Duration) *heartbeat {
	h := &heartbeat{send: send, failed: make(chan error, 1), now: now, done: make(chan struct{})}
	h.permit()
	return h
}

func (h *heartbeat) run(ticks <-chan time.Time) {
	for {
		select {
		case <-h.done:
			return
		case <-ticks:
		}
		if int64(h.now()) >= h.until.Load() {
			continue // a loop that comes back permits it again
		}
		if err := h.send(); err != nil {
			h.failed <- err
			return
		}
	}
}

// permit lets the heart beat for permitFor from now.
func (h *heartbeat) permit() {
	if h != nil {
		h.until.Store(int64(h.now() + permitFor))
	}
}

// stop ends the beats; none comes after it returns.
func (h *heartbeat) stop() {
	if h == nil {
		return
	}
	h.once.Do(func() { close(h.done) })
	h.stopped.Wait()
}
