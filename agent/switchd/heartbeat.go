package switchd

import (
	"sync"
	"sync/atomic"
	"time"

	"weir/datapath/reading"
)

// permitFor is how long heartbeats continue after the control loop's last permit. Reading a file, loading a program on
// a busy machine or draining a shaper may take the loop a second or two; that is no reason to release the windows of
// all ports. If the loop hangs for longer, heartbeats stop after 5 s, and the kernel releases the windows after the
// lease, as if the process were dead.
const permitFor = 5 * time.Second

// heartbeat calls send in a goroutine of its own, as long as the control loop permits.
type heartbeat struct {
	send    func() error
	failed  chan error // the error that stopped it, at most one
	until   atomic.Int64
	always  bool                 // no permit is needed
	now     func() time.Duration // from an arbitrary start; monotonic
	done    chan struct{}
	stopped sync.WaitGroup
	once    sync.Once
}

// newHeartbeat begins to call send. Without permits it continues until stop.
func newHeartbeat(send func() error, permits bool) *heartbeat {
	begun := time.Now()
	h := heartbeatAt(send, func() time.Duration { return time.Since(begun) })
	h.always = !permits
	h.stopped.Go(func() {
		ticker := time.NewTicker(reading.HeartbeatInterval)
		defer ticker.Stop()
		h.run(ticker.C)
	})
	return h
}

// heartbeatAt is newHeartbeat with the caller's clock. It does not run yet.
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
		if !h.always && int64(h.now()) >= h.until.Load() {
			continue // a loop that recovers permits it again
		}
		if err := h.send(); err != nil {
			h.failed <- err
			return
		}
	}
}

// permit allows heartbeats for permitFor from now.
func (h *heartbeat) permit() {
	if h != nil {
		h.until.Store(int64(h.now() + permitFor))
	}
}

// stop ends the heartbeats; none is sent after it returns.
func (h *heartbeat) stop() {
	if h == nil {
		return
	}
	h.once.Do(func() { close(h.done) })
	h.stopped.Wait()
}
