package channel

import (
	"errors"
	"os"
	"time"

	"weir/openflow"
)

const (
	writeChunk = 64 << 10 // bytes that the peer has to take within WriteTimeout
	writeEarly = 32 << 10 // bytes for which a corked writer is woken
	keepBuffer = 64 << 10 // larger buffers are not kept for the next batch
)

// outQueue is what waits to be written, encoded. All but wake and stopped is under Conn.mu.
type outQueue struct {
	queued
	spare   []byte
	rest    []byte        // of what push has taken, what the kernel did not: goes before buf
	turn    turn          // whose it is to write
	flight  int           // bytes taken to be written and not yet by the kernel
	flightN int           // the same in messages
	last    bool          // nothing more will be queued: write what is there and stop
	wake    chan struct{} // buffered: there is something to write
	stopped chan struct{} // closed when the writer has returned
	refused uint64
}

// turn says who writes. Whoever else has something to be written leaves it in the queue.
type turn uint8

const (
	nobody  turn = iota
	pushing      // the reading goroutine, in push
	writing      // the writing goroutine, or it is about to: rest waits for it
)

// queued is what a message changes that is queued: Apply puts it back.
type queued struct {
	buf      []byte
	messages int // in buf
	types    [Types]uint64
	bytes    uint64
}

func (q *outQueue) init() {
	q.wake = make(chan struct{}, 1)
	q.stopped = make(chan struct{})
}

func (q *outQueue) drop() { q.buf, q.spare, q.rest, q.messages = nil, nil, nil, 0 }

// shrink gives memory back while nothing is sent.
func (q *outQueue) shrink() {
	q.spare = nil
	if len(q.buf) == 0 {
		q.buf = nil
	}
}

func (q *outQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Send queues a message for which no answer is due, and gives its transaction id: an error that the switch answers
// carries it, and comes to [Handler].Message. It never waits. It fails with [ErrNotMaster], [ErrQueueFull],
// [ErrMessage], a [CloseError], or the codec's error.
func (c *Conn) Send(m openflow.Message) (xid uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	xid = c.nextXID()
	if err := c.enqueue(xid, m, false); err != nil {
		return 0, err
	}
	c.flush()
	return xid, nil
}

// enqueue encodes a message into the queue; what is the connection's own needs no permission. Conn.mu is held.
func (c *Conn) enqueue(xid uint32, m openflow.Message, own bool) error {
	if c.err != nil {
		return c.err
	}
	q, l := &c.out, &c.srv.limits
	if q.messages+q.flightN >= l.QueueMessages {
		q.refused++
		return ErrQueueFull
	}
	before := len(q.buf)
	b, err := openflow.Append(q.buf, xid, m)
	if err != nil {
		return err
	}
	if !own {
		if err := permitted(b[before:], c.master); err != nil {
			return err // q.buf still ends where it did
		}
	}
	if len(b)+q.flight > l.QueueBytes {
		q.refused++
		return ErrQueueFull
	}
	q.buf = b
	q.messages++
	q.types[slot(m.MessageType())]++
	q.bytes += uint64(len(b) - before)
	return nil
}

// flush sees to it that what was queued is written. Conn.mu is held.
func (c *Conn) flush() {
	if !c.corked.Load() || len(c.out.buf) >= writeEarly {
		c.out.signal()
	}
}

// cork lets what is sent wait until uncork: the reading goroutine works off a batch.
func (c *Conn) cork() { c.corked.Store(true) }

func (c *Conn) uncork() {
	c.corked.Store(false)
	c.push()
}

// answer queues a message of the connection's own, of any kind. That there is no room is the peer's doing, who does not
// read: the writer's deadline will end it.
func (c *Conn) answer(xid uint32, m openflow.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.enqueue(xid, m, true); err == nil {
		c.flush()
	}
}

// write is the writing goroutine: whatever has gathered, and push did not get rid of, goes out as one.
func (c *Conn) write() {
	defer close(c.out.stopped)
	var armed time.Time
	for {
		b, last := c.next()
		if len(b) == 0 {
			if last {
				return
			}
			select {
			case <-c.out.wake:
				continue
			case <-c.done:
				return
			}
		}
		if err := c.writeAll(b, &armed); err != nil {
			c.shut(writeError(err, c.srv.limits.WriteTimeout))
			return
		}
	}
}

// next gives the writer what it is to write, unless somebody else writes. Whatever it was given before is written.
func (c *Conn) next() (b []byte, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &c.out
	switch {
	case q.turn == pushing: // it wakes us if something is left
	case len(q.rest) > 0:
		b, q.rest = q.rest, nil
	default:
		b, q.turn = q.take(), writing
		if len(b) == 0 {
			q.turn = nobody
		}
	}
	return b, q.last || c.err != nil
}

// take gives all that is queued, and takes back the buffer that was written.
func (q *outQueue) take() []byte {
	q.flight, q.flightN = len(q.buf), q.messages
	b := q.buf
	q.buf, q.spare, q.messages = q.spare[:0], nil, 0
	if cap(b) <= keepBuffer {
		q.spare = b[:0] // written by the time it is q.buf again
	}
	return b
}

// writeAll writes in pieces, each within its own deadline: a slow peer that reads is not cut off for a long queue.
func (c *Conn) writeAll(b []byte, armed *time.Time) error {
	timeout := c.srv.limits.WriteTimeout
	for len(b) > 0 && !c.ended.Load() {
		// Setting a deadline costs as much as a small write: it may lie up to a quarter further off.
		if now := time.Now(); armed.Sub(now) < timeout {
			*armed = now.Add(timeout + timeout/4)
			if err := c.nc.SetWriteDeadline(*armed); err != nil {
				return err
			}
		}
		n, err := c.nc.Write(b[:min(len(b), writeChunk)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func writeError(err error, timeout time.Duration) *CloseError {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return closed(CauseSlowReader, "the switch took less than %d bytes in %v", writeChunk, timeout)
	}
	return closed(CausePeerClosed, "write: %w", err)
}
