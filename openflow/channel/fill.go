package channel

import (
	"errors"
	"io"
	"os"
	"time"

	"weir/openflow"
)

// readGrace is the least time for a read. A deadline that passed while a handler ran would not be the peer's fault.
const readGrace = 10 * time.Millisecond

// fill reads more bytes, and runs the periodic work while it waits.
func (c *Conn) fill() *CloseError {
	in := &c.in
	in.now = time.Now()
	switch {
	case !in.partial():
		in.begun = time.Time{}
	case in.begun.IsZero() || in.begunCut != in.cut:
		in.begun, in.begunCut = in.now, in.cut
	}
	for {
		if l := c.srv.limits.MessageTimeout; !in.begun.IsZero() && in.now.Sub(in.begun) >= l {
			return closed(CauseSlowMessage, "a message that began %v ago is not complete", l)
		}
		if err := c.arm(); err != nil {
			return closed(CausePeerClosed, "read: %w", err)
		}
		c.listens.Store(true)
		n, err := in.fill(c.nc)
		c.listens.Store(false)
		in.now = time.Now()
		if n > 0 {
			in.heard = in.now
			in.turn += n + readBytes
			c.count.bytes.Add(uint64(n))
		} else if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return readError(err)
		} else if in.armed = (time.Time{}); c.waiting() && in.now.Sub(in.echoed) >= c.srv.limits.EchoTimeout {
			return closed(CauseSilent, "nothing came within %v of an echo request", c.srv.limits.EchoTimeout)
		}
		if !c.waiting() && in.now.Sub(in.echoed) >= c.srv.limits.EchoInterval {
			c.tick()
		}
		if n > 0 {
			c.pause(in.bytes.owe(in.now, n))
			return nil // the next read returns the error again
		}
	}
}

func readError(err error) *CloseError {
	switch {
	case errors.Is(err, io.EOF):
		return closed(CausePeerClosed, "the switch closed the connection")
	case isTLS(err):
		return closed(CauseTLS, "read: %w", err)
	}
	return closed(CausePeerClosed, "read: %w", err)
}

// arm sets the read deadline to the next due time, unless the present deadline is earlier.
func (c *Conn) arm() error {
	in, l := &c.in, &c.srv.limits
	due := in.echoed.Add(l.EchoInterval)
	if c.waiting() {
		due = in.echoed.Add(l.EchoTimeout)
	}
	if !in.begun.IsZero() {
		due = earlier(due, in.begun.Add(l.MessageTimeout))
	}
	least := in.now.Add(readGrace)
	if due.Before(least) {
		due = least
	}
	if !due.Before(in.armed) && !in.armed.Before(least) {
		return nil
	}
	in.armed = due
	return c.nc.SetReadDeadline(due)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// waiting reports whether nothing has arrived since the last echo request.
func (c *Conn) waiting() bool { return c.in.unanswered && !c.in.heard.After(c.in.echoed) }

// tick runs every EchoInterval.
func (c *Conn) tick() {
	in := &c.in
	if in.now.Sub(in.heard) >= c.srv.limits.EchoInterval/2 {
		in.shrink()
		c.mu.Lock()
		c.out.shrink()
		c.mu.Unlock()
	}
	c.expire(in.now)
	c.watchRole()
	c.echo()
}

// echo sends an echo request and measures its round trip.
func (c *Conn) echo() {
	in := &c.in
	sent := in.now
	in.echoed, in.unanswered = sent, true
	call := &Call{own: true, each: func(_ []byte, _ bool, err error) {
		if err == nil {
			in.unanswered = in.unanswered && in.echoed != sent
			c.measured(in.now.Sub(sent))
		}
	}}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.askLocked(&openflow.EchoRequest{}, call) // without room: the writer's deadline decides
}
