package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Port is the TCP port that receives connections on every node.
const Port = 5001

// listener accepts the connections to one address of a node and passes each to the conn with its client end. It
// matches them by the client's address, so the data needs no identification.
type listener struct {
	acceptor
	addr  netip.AddrPort
	clock clock

	mu       sync.Mutex
	expected map[netip.AddrPort]*conn // by the client's address: connected, not yet accepted
	early    map[netip.AddrPort]early // accepted before the client had registered
	closed   bool
}

// early is an end that was accepted at a time of CLOCK_MONOTONIC.
type early struct {
	end
	at int64
}

func newListener(a acceptor, c clock) *listener {
	return &listener{
		acceptor: a, addr: a.address(), clock: c,
		expected: map[netip.AddrPort]*conn{}, early: map[netip.AddrPort]early{},
	}
}

// serve accepts until the listener is closed.
func (l *listener) serve(r *runner) {
	if err := l.accept(l.arrived); err != nil {
		r.fail(fmt.Errorf("accept on %v: %w", l.addr, err))
	}
}

func (l *listener) arrived(client netip.AddrPort, e end) {
	l.mu.Lock()
	c := l.expected[client]
	switch {
	case l.closed:
		c = nil
		e.Close()
	case c == nil:
		if old, ok := l.early[client]; ok {
			old.Close() // of a client that gave up before it registered
		}
		l.early[client] = early{e, l.clock.now()}
	default:
		delete(l.expected, client)
	}
	l.mu.Unlock()
	if c != nil {
		c.attach(e)
	}
}

// expect registers a conn whose connection will arrive, or has arrived, from c's client address. Its SYN left after the
// time start, so an end that was accepted before is that of an earlier connection with this address, whose client gave up.
func (l *listener) expect(c *conn, start int64) {
	l.mu.Lock()
	e, ok := l.early[c.local]
	delete(l.early, c.local)
	if ok && e.at < start {
		e.Close()
		ok = false
	}
	if !ok {
		l.expected[c.local] = c
	}
	l.mu.Unlock()
	if ok {
		c.attach(e.end)
	}
}

// forget undoes expect.
func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expected[c.local] == c {
		delete(l.expected, c.local)
	}
}

func (l *listener) close() {
	l.acceptor.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, e := range l.early {
		e.Close()
	}
	clear(l.early)
}

// kernelAcceptor is a listening socket of the kernel.
type kernelAcceptor struct {
	addr netip.AddrPort
	file *os.File
	raw  syscall.RawConn
}

// newKernelAcceptor opens a listening socket in the namespace of a node; port 0: any.
func newKernelAcceptor(net Net, node string, addr netip.AddrPort) (*kernelAcceptor, error) {
	fd := -1
	err := net.Enter(node, func() error {
		var err error
		if fd, err = newTCP(); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
		if err := unix.Bind(fd, sockaddr(addr)); err != nil {
			return err
		}
		return unix.Listen(fd, maxBacklog) // the kernel limits it to somaxconn
	})
	if err == nil {
		addr, err = localAddr(fd)
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w: stop the program that uses this port in %s", err, node)
		}
		return nil, fmt.Errorf("listen on %v in %s: %w", addr, node, err)
	}
	a := &kernelAcceptor{addr: addr, file: os.NewFile(uintptr(fd), "listener")}
	if a.raw, err = a.file.SyscallConn(); err != nil {
		a.file.Close()
		return nil, err
	}
	return a, nil
}

func (a *kernelAcceptor) address() netip.AddrPort { return a.addr }
func (a *kernelAcceptor) close()                  { a.file.Close() }

// accept is acceptor.accept.
func (a *kernelAcceptor) accept(arrived func(client netip.AddrPort, e end)) error {
	var fatal error
	// The only error of Read means that the file is closed.
	_ = a.raw.Read(func(fd uintptr) bool {
		for {
			accepted, sa, err := unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			switch {
			case err == nil:
				var s *socket
				if s, err = newSocket(accepted); err == nil {
					arrived(addrPort(sa), s)
				}
			case errors.Is(err, unix.EAGAIN):
				return false
			case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			default:
				fatal = err
				return true
			}
		}
	})
	return fatal
}
