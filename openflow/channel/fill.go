package channel

import (
	"errors"
	"io"
	"os"
	"time"

	"weir/openflow"
)

// readGrace is how long a read gets at least. A deadline that passed while a handler ran would say nothing about the peer.
const readGrace = 10 * time.Millisecond

// fill reads more bytes, and does what is due meanwhile.
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
			return closed(CauseSlowMessage, "a message was begun %v ago and is not there", l)
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
		} else if in.armed = (time.Time{}); c.waiting() && in.now.Sub(in.beat) >= c.srv.limits.EchoTimeout {
			return closed(CauseSilent, "nothing came within %v of an echo request", c.srv.limits.EchoTimeout)
		}
		if !c.waiting() && in.now.Sub(in.beat) >= c.srv.limits.EchoInterval {
			c.tick()
		}
		if n > 0 {
			c.pause(in.bytes.owe(in.now, n))
			return nil // an error comes again with the next read
		}
	}
}

func readError(err error) *CloseError {
	switch {
	case errors.Is(err, io.EOF):
		return closed(CausePeerClosed, "the switch hung up")
	case isTLS(err):
		return closed(CauseTLS, "read: %w", err)
	}
	return closed(CausePeerClosed, "read: %w", err)
}

// arm sets the read deadline, unless the one that is set comes before the next thing to do anyway.
func (c *Conn) arm() error {
	in, l := &c.in, &c.srv.limits
	due := in.beat.Add(l.EchoInterval)
	if c.waiting() {
		due = in.beat.Add(l.EchoTimeout)
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

// waiting says that nothing was heard since the last echo request.
func (c *Conn) waiting() bool { return c.in.unanswered && !c.in.heard.After(c.in.beat) }

// tick is what is done every EchoInterval.
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

// echo asks for a sign of life and measures how long it takes.
func (c *Conn) echo() {
	in := &c.in
	sent := in.now
	in.beat, in.unanswered = sent, true
	call := &Call{own: true, each: func(_ []byte, _ bool, err error) {
		if err == nil {
			in.unanswered = in.unanswered && in.beat != sent
			c.measured(in.now.Sub(sent))
		}
	}}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.askLocked(&openflow.EchoRequest{}, call) // without room: the writer's deadline decides
}
