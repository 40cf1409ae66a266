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

// listener accepts the connections to one address of a node and brings each together with the
// conn whose client end it belongs to. The two are matched by the client's address, so nothing
// has to be said inside the data.
type listener struct {
	addr netip.AddrPort
	file *os.File
	raw  syscall.RawConn

	mu       sync.Mutex
	expected map[netip.AddrPort]*conn // by the client's address: connected, not yet accepted
	early    map[netip.AddrPort]int   // accepted before the client could say so, by descriptor
}

// listen opens a listener in the namespace of a node.
func listen(net Net, node string, addr netip.Addr) (*listener, error) {
	l := &listener{
		addr:     netip.AddrPortFrom(addr, Port),
		expected: map[netip.AddrPort]*conn{}, early: map[netip.AddrPort]int{},
	}
	fd := -1
	err := net.Enter(node, func() error {
		var err error
		if fd, err = newTCP(); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
		if err := unix.Bind(fd, sockaddr(l.addr)); err != nil {
			return err
		}
		return unix.Listen(fd, maxBacklog) // the kernel cuts it to somaxconn
	})
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w: stop the program that uses this port in %s", err, node)
		}
		return nil, fmt.Errorf("listen on %v in %s: %w", l.addr, node, err)
	}
	l.file = os.NewFile(uintptr(fd), "listener")
	if l.raw, err = l.file.SyscallConn(); err != nil {
		l.file.Close()
		return nil, err
	}
	return l, nil
}

// serve accepts until the listener is closed.
func (l *listener) serve(r *runner) {
	var fatal error
	err := l.raw.Read(func(fd uintptr) bool {
		for {
			accepted, sa, err := unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			switch {
			case err == nil:
				l.accepted(addrPort(sa), accepted)
			case errors.Is(err, unix.EAGAIN):
				return false
			case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			default:
				fatal = err
				return true
			}
		}
	})
	if err == nil && fatal != nil {
		r.fail(fmt.Errorf("accept on %v: %w", l.addr, fatal))
	}
}

func (l *listener) accepted(client netip.AddrPort, fd int) {
	l.mu.Lock()
	c := l.expected[client]
	if c == nil {
		if old, ok := l.early[client]; ok {
			unix.Close(old) // of a client that gave up before it was expected
		}
		l.early[client] = fd
	} else {
		delete(l.expected, client)
	}
	l.mu.Unlock()
	if c != nil {
		c.attach(fd)
	}
}

// expect tells the listener whose connection will come, or has come, from c's client address.
func (l *listener) expect(c *conn) {
	l.mu.Lock()
	fd, came := l.early[c.local]
	if came {
		delete(l.early, c.local)
	} else {
		l.expected[c.local] = c
	}
	l.mu.Unlock()
	if came {
		c.attach(fd)
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
	l.file.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fd := range l.early {
		unix.Close(fd)
	}
	l.early = nil
}
