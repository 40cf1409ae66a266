package channel

import (
	"net"
	"syscall"
)

// direct writes to a socket without waiting, so that the writing goroutine need not be woken. TLS connections and pipes have none.
// Only one goroutine may use it at a time.
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
		n, _ := syscall.Write(int(fd), d.b) // the writing goroutine will get the same error
		d.n = max(n, 0)
	}
	return d
}

// write returns how many bytes fit in the kernel's buffer.
func (d *direct) write(b []byte) int {
	d.b, d.n = b, 0
	_ = d.raw.Control(d.try) // fails on a closed socket, which has no room
	d.b = nil
	return d.n
}

// push writes queued bytes as far as the kernel's buffer has room, and leaves the rest to the writing goroutine, which waits for
// the peer. It runs on the reading goroutine.
func (c *Conn) push() {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &c.out
	if len(q.buf) == 0 || q.turn != nobody {
		return // the writing goroutine is busy, and checks again when it is done
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
