package channel

import (
	"net"
	"syscall"
)

// direct writes to a socket without waiting, from the goroutine that has something to say: the writing goroutine need
// not be woken. TLS and pipes have none. One at a time uses it.
type direct struct {
	raw syscall.RawConn
	try func(fd uintptr) // made once: a closure for each write would be an allocation
	b   []byte
	n   int
}

func newDirect(nc net.Conn) *direct {
	s, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil // closed already: the writing goroutine finds out
	}
	d := &direct{raw: raw}
	d.try = func(fd uintptr) {
		n, _ := syscall.Write(int(fd), d.b) // whatever went wrong goes wrong again for the writing goroutine
		d.n = max(n, 0)
	}
	return d
}

// write gives how many bytes the kernel had room for.
func (d *direct) write(b []byte) int {
	d.b, d.n = b, 0
	_ = d.raw.Control(d.try) // fails on a closed socket, which has no room
	d.b = nil
	return d.n
}

// push writes what is queued as far as the kernel has room, and leaves the rest to the writing goroutine, which gives
// the peer its time. On the reading goroutine.
func (c *Conn) push() {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &c.out
	if len(q.buf) == 0 || q.turn != nobody {
		return // a writing goroutine at work looks again when it is done
	}
	if c.direct == nil {
		q.signal()
		return
	}
	b := q.take()
	q.turn = pushing
	c.mu.Unlock()
	n := c.direct.write(b)
	c.mu.Lock()
	q.turn, q.flight = nobody, len(b)-n
	switch {
	case c.err != nil: // nothing more is written
	case n < len(b):
		q.rest, q.turn = b[n:], writing
		q.signal()
	case len(q.buf) > 0: // others sent something meanwhile
		q.signal()
	case q.buf == nil:
		q.buf, q.spare = q.spare, nil // one buffer is enough
	}
	if n == len(b) {
		q.flightN = 0
	}
}
