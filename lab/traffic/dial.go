package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// dialer opens connections of the kernel's TCP. It has a stock of sockets that are bound to one address of a node.
// Opening a socket needs the node's thread and may wait for others there (p99 7 ms). So sockets are opened in
// batches before they are needed: at a flow's start only connect() remains.
type dialer struct {
	net   Net
	place place
	addr  netip.Addr
	batch int // sockets opened at once; refilled when fewer than half are left

	mu     sync.Mutex
	free   []int
	making bool
	closed bool
}

// place is one address of a node.
type place struct {
	node    string
	profile int
}

// open is opener.open.
func (d *dialer) open(r *runner, to netip.AddrPort) (opened, error) {
	fd, err := d.take(r)
	if err != nil {
		r.fail(err) // no descriptors or no namespace: the whole run is invalid
		return opened{}, err
	}
	r.attempted.Add(1)
	return connect(fd, to, r.clock)
}

// connect begins a connection on fd, which it owns.
func connect(fd int, to netip.AddrPort, c clock) (opened, error) {
	server := sockaddr(to)
	start := c.now()
	err := unix.Connect(fd, server)
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		unix.Close(fd)
		return opened{}, err
	}
	local, err := localAddr(fd)
	if err != nil {
		unix.Close(fd)
		return opened{}, err
	}
	s, err := newSocket(fd)
	return opened{s, local, start}, err
}

// prepare is opener.prepare.
func (d *dialer) prepare(n int) error {
	d.batch = n
	return d.fill(n)
}

// take returns a socket; the caller owns it.
func (d *dialer) take(r *runner) (int, error) {
	d.mu.Lock()
	if d.batch > 0 && len(d.free) <= d.batch/2 && !d.making && !d.closed {
		d.making = true
		r.spawn(func() {
			if err := d.fill(d.batch); err != nil {
				r.fail(err)
			}
		})
	}
	if n := len(d.free); n > 0 {
		fd := d.free[n-1]
		d.free = d.free[:n-1]
		d.mu.Unlock()
		return fd, nil
	}
	d.mu.Unlock()
	fds, err := d.make(1)
	if err != nil {
		return -1, err
	}
	return fds[0], nil
}

func (d *dialer) fill(n int) error {
	fds, err := d.make(n)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.making = false
	if d.closed {
		closeAll(fds)
		return nil
	}
	d.free = append(d.free, fds...)
	return err
}

// make opens n bound sockets in the node's namespace.
func (d *dialer) make(n int) ([]int, error) {
	var fds []int
	err := d.net.Enter(d.place.node, func() error {
		for range n {
			fd, err := newTCP()
			if err != nil {
				return err
			}
			fds = append(fds, fd)
			// connect() chooses the port, and can then use one port for several servers.
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
				return err
			}
			if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(d.addr, 0))); err != nil {
				return fmt.Errorf("bind to %v: %w", d.addr, err)
			}
		}
		return nil
	})
	if err != nil {
		closeAll(fds)
		return nil, fmt.Errorf("open sockets in %s: %w", d.place.node, err)
	}
	return fds, nil
}

func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	closeAll(d.free)
	d.free = nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
