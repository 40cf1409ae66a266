package traffic

import (
	"sync"
	"time"

	"weir/experiment/result"
)

// flow is one flow, or one request, from its start to its end. Times are CLOCK_MONOTONIC, ns.
type flow struct {
	r    *runner
	size int64 // 0: endless
	rate int64 // bit/s, 0: unpaced
	stop int64 // 0: only at the run's end
	give int64 // aborted this long after its start; 0: never
	item int32 // of the experiment
	// counted is true when the run waits for this flow itself (open loop).
	counted bool

	mu    sync.Mutex
	by    carrier
	wait  *session // the persistent connection that the flow waits for until it begins; nil: none
	timer *time.Timer
	limit int64 // when the timer ends it; 0: only at the run's end
	ended bool
	res   result.Flow
}

// carrier is what transports a flow's bytes: a connection, or a pair of UDP sockets.
type carrier interface {
	key() result.Key
	stopSending() // called when the flow is stopped as planned
	abort()       // called when the flow is given up
}

// begin records that the flow starts now on c, and sets the timer that ends it. A flow that has begun, and
// continues on another carrier, keeps its start.
func (f *flow) begin(c carrier, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun := f.by != nil
	f.by = c
	if begun {
		f.res.Key = c.key()
		return
	}
	f.res.Start = time.Duration(now - f.r.t0)
	f.res.Key = c.key()
	limit := int64(0)
	if f.give > 0 {
		limit = now + f.give
	}
	if f.stop > 0 && (limit == 0 || f.stop < limit) {
		limit = f.stop
	}
	if limit > 0 && !f.ended {
		f.limit = limit
		f.timer = time.AfterFunc(f.r.clock.until(limit), func() { f.expire(limit) })
	}
}

// waitFor records that the flow begins on the connection of s, after the flows before it.
func (f *flow) waitFor(s *session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wait = s
}

// neverBegan records the state of the connection that the flow still waits for. The flow has no timeouts: those of the
// connection are of the flows before it.
func (f *flow) neverBegan() {
	f.mu.Lock()
	waits := f.wait != nil && f.by == nil && !f.ended
	f.mu.Unlock()
	if !waits {
		return
	}
	c := f.wait.latest.Load()
	if c == nil {
		return
	}
	now := c.counts()
	f.addCounts(now.since(now))
	if c.accepted() {
		f.mu.Lock()
		f.res.Opening = result.Opened
		f.mu.Unlock()
	}
}

// wrote records that the connecting program is about to write its first byte. A connection that is opened again
// keeps the first time.
func (f *flow) wrote(now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.res.Wrote == 0 {
		f.res.Wrote = time.Duration(now-f.r.t0) - f.res.Start
	}
}

// expire ends the flow at its stop, or when it is given up.
func (f *flow) expire(at int64) {
	f.mu.Lock()
	by := f.by
	f.mu.Unlock()
	if f.size == 0 && at == f.stop {
		if f.end(true, at) {
			by.stopSending()
		}
		return
	}
	if f.end(false, at) {
		by.abort()
	}
}

// finish ends a flow that still runs at the end of the run. If its time was over before, it ends then: the machine
// delayed its timer.
func (f *flow) finish(planned bool, now int64) {
	f.neverBegan()
	f.mu.Lock()
	limit := f.limit
	f.mu.Unlock()
	if limit > 0 && limit < now {
		f.end(f.size == 0 && limit == f.stop, limit)
		return
	}
	f.end(planned && f.size == 0, now)
}

// untouched reports that the flow still runs and nothing of it has been received.
func (f *flow) untouched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.ended && f.res.Bytes == 0
}

// received counts n bytes that the receiving program got; true when the flow is complete.
func (f *flow) received(n int, now int64) bool {
	f.mu.Lock()
	if f.ended || (f.stop > 0 && now >= f.stop) {
		f.mu.Unlock()
		return false
	}
	f.res.Bytes += int64(n)
	bin := int32((now - f.r.t0) / f.r.bin)
	if last := len(f.res.Delivered) - 1; last >= 0 && f.res.Delivered[last].Bin == bin {
		f.res.Delivered[last].Bytes += int32(n)
	} else {
		f.res.Delivered = append(f.res.Delivered, result.Delivery{Bin: bin, Bytes: int32(n)})
	}
	complete := f.size > 0 && f.res.Bytes >= f.size
	f.mu.Unlock()
	if complete {
		f.end(true, now)
	}
	return complete
}

// end ends the flow once; false if it had ended before.
func (f *flow) end(done bool, now int64) bool {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		return false
	}
	f.ended = true
	if c, ok := f.by.(*conn); ok && c.accepted() {
		f.res.Opening = result.Opened
	}
	f.res.Done = done
	f.res.End = time.Duration(now - f.r.t0)
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	f.r.flowEnded(f)
	return true
}

func (f *flow) hasEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// addCounts adds the counts of a connection that carried the flow.
func (f *flow) addCounts(c counts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.timeouts >= 0 {
		f.res.Timeouts = max(f.res.Timeouts, 0) + c.timeouts
	}
	if c.outOfOrder >= 0 {
		f.res.OutOfOrder = result.OutOfOrder{Known: true, Segments: f.res.OutOfOrder.Segments + int64(c.outOfOrder)}
	}
}
