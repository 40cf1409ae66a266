package channel

import (
	"errors"
	"os"
	"time"

	"weir/openflow"
)

const (
	writeChunk = 64 << 10 // bytes that the peer must read within WriteTimeout
	writeEarly = 32 << 10 // bytes for which a corked writer is woken
	keepBuffer = 64 << 10 // larger buffers are not kept for the next batch
)

// outQueue holds encoded messages that wait to be written. Conn.mu guards all fields except wake and stopped.
type outQueue struct {
	queued
	spare   []byte
	rest    []byte        // bytes that push took and the kernel did not accept: written before buf
	turn    turn          // the goroutine that writes
	flight  int           // bytes that a goroutine is writing and the kernel has not accepted yet
	flightN int           // the same in messages
	last    bool          // nothing more will be queued: write the rest and stop
	wake    chan struct{} // buffered: there is something to write
	stopped chan struct{} // closed when the writer has returned
	refused uint64
}

// turn is the goroutine that writes. Others leave their messages in the queue.
type turn uint8

const (
	nobody  turn = iota
	pushing      // the reading goroutine, in push
	writing      // the writing goroutine, or it is about to: rest waits for it
)

// queued is the part of the state that a queued message changes, so that Apply can restore it.
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

// shrink frees memory while nothing is sent.
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

// Send queues a message that has no answer, and returns its transaction id. If the switch answers with an error, the error
// carries the id and goes to [Handler].Message. Send never waits. Errors are [ErrNotMaster], [ErrQueueFull], [ErrMessage], a
// [CloseError], or the codec's error.
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

// enqueue encodes a message into the queue. The connection's own messages need no permission. The caller holds Conn.mu.
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

// flush starts the writing of queued messages. The caller holds Conn.mu.
func (c *Conn) flush() {
	if !c.corked.Load() || len(c.out.buf) >= writeEarly {
		c.out.signal()
	}
}

// cork delays writing until uncork: the reading goroutine handles a batch.
func (c *Conn) cork() { c.corked.Store(true) }

func (c *Conn) uncork() {
	c.corked.Store(false)
	c.push()
}

// answer queues a message of the connection itself. If there is no room, the peer does not read, and the writer's deadline will
// end the connection.
func (c *Conn) answer(xid uint32, m openflow.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.enqueue(xid, m, true); err == nil {
		c.flush()
	}
}

// write is the writing goroutine. It writes all bytes that have gathered, and that push did not write, together.
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

// next returns the bytes for the writer, unless another goroutine writes. The bytes of the last call have been written.
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

// take returns all queued bytes, and reuses the buffer that was written.
func (q *outQueue) take() []byte {
	q.flight, q.flightN = len(q.buf), q.messages
	b := q.buf
	q.buf, q.spare, q.messages = q.spare[:0], nil, 0
	if cap(b) <= keepBuffer {
		q.spare = b[:0] // written by the time it is q.buf again
	}
	return b
}

// writeAll writes in chunks, each with its own deadline, so that a slow peer that reads is not ended because of a long queue.
func (c *Conn) writeAll(b []byte, armed *time.Time) error {
	timeout := c.srv.limits.WriteTimeout
	for len(b) > 0 && !c.ended.Load() {
		// Setting a deadline costs as much as a small write: so it may be up to a quarter later.
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
		return closed(CauseSlowReader, "the switch read less than %d bytes in %v", writeChunk, timeout)
	}
	return closed(CausePeerClosed, "write: %w", err)
}
