package netstack

import (
	"fmt"
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// backlog is how many connections may wait for Accept, as in the Linux guests.
const backlog = 65535

// Listener accepts connections.
type Listener struct {
	guest     *Guest
	ep        tcpip.Endpoint
	queue     *waiter.Queue
	entry     waiter.Entry
	arrived   chan struct{}
	closed    chan struct{}
	closeOnce sync.Once
	addr      netip.AddrPort
}

// Listen opens a listener; port 0: any.
func (g *Guest) Listen(port uint16) (*Listener, error) {
	l := &Listener{guest: g, queue: &waiter.Queue{}, closed: make(chan struct{})}
	ep, err := g.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, l.queue)
	if err != nil {
		return nil, goError(err)
	}
	l.ep = ep
	l.entry, l.arrived = waiter.NewChannelEntry(waiter.ReadableEvents)
	l.queue.EventRegister(&l.entry)
	ep.SocketOptions().SetReuseAddress(true) // connections of an earlier listener may still be ending
	if err = ep.Bind(fullAddress(netip.AddrPortFrom(g.addr, port))); err == nil {
		err = ep.Listen(backlog)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("listen on %v port %d of netstack: %w", g.addr, port, goError(err))
	}
	a, err := ep.GetLocalAddress()
	if err != nil {
		l.Close()
		return nil, goError(err)
	}
	l.addr = addrPort(a)
	return l, nil
}

// Addr returns the listener's address.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Accept waits for a connection and returns it with the client's address; nil when the listener is closed.
func (l *Listener) Accept() (*Conn, netip.AddrPort) {
	for {
		var peer tcpip.FullAddress
		ep, queue, err := l.ep.Accept(&peer)
		if err == nil {
			c := l.guest.newConn(ep, queue)
			c.id.Store(&handshake{peer.Addr, peer.Port, l.addr.Port()})
			return c, addrPort(peer)
		}
		select {
		case <-l.arrived:
		case <-l.closed:
			return nil, netip.AddrPort{}
		}
	}
}

// Close ends the listener; connections that wait for Accept are reset.
func (l *Listener) Close() {
	l.closeOnce.Do(func() {
		close(l.closed)
		l.queue.EventUnregister(&l.entry)
		l.ep.Close()
	})
}
