package traffic

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"weir/lab/netstack"
)

// foreignEnd is one end of a connection of such a guest.
type foreignEnd struct{ *netstack.Conn }

// counts is end.counts. netstack does not count segments out of order.
func (e foreignEnd) counts() counts { return counts{e.Timeouts(), -1} }

// foreignOpener opens connections of a guest whose TCP is netstack.
type foreignOpener struct{ guest *netstack.Guest }

func (o *foreignOpener) prepare(int) error { return nil } // there is no queue for sockets
func (o *foreignOpener) close()            {}

func (o *foreignOpener) open(r *runner, to netip.AddrPort) (opened, error) {
	c, err := o.guest.NewConn()
	if err != nil {
		return opened{}, err
	}
	r.attempted.Add(1)
	start := r.clock.now()
	local, err := c.Connect(to)
	if err != nil {
		c.Abort()
		return opened{}, err
	}
	return opened{foreignEnd{c}, local, start}, nil
}

// foreignAcceptor accepts connections to a guest whose TCP is netstack.
type foreignAcceptor struct{ *netstack.Listener }

func newForeignAcceptor(guest *netstack.Guest, addr netip.AddrPort) (acceptor, error) {
	if guest.Addr() != addr.Addr() {
		return nil, fmt.Errorf("listen on %v: %w: the guest has %v", addr, unix.EADDRNOTAVAIL, guest.Addr())
	}
	l, err := guest.Listen(addr.Port())
	if err != nil {
		return nil, err
	}
	return foreignAcceptor{l}, nil
}

func (a foreignAcceptor) address() netip.AddrPort { return a.Addr() }
func (a foreignAcceptor) close()                  { a.Close() }

func (a foreignAcceptor) accept(arrived func(netip.AddrPort, end)) error {
	for {
		c, client := a.Accept()
		if c == nil {
			return nil
		}
		arrived(client, foreignEnd{c})
	}
}

// foreignDatagrams is UDP of such a guest.
type foreignDatagrams struct{ *netstack.Datagrams }

func (d foreignDatagrams) local() netip.AddrPort          { return d.Local() }
func (d foreignDatagrams) join(peer netip.AddrPort) error { return d.Join(peer) }
func (d foreignDatagrams) send(p []byte)                  { d.Send(p) }
func (d foreignDatagrams) receive() (int, bool)           { return d.Receive() }
func (d foreignDatagrams) close()                         { d.Close() }

// errForeign is the error of functions that use the kernel's sockets only.
var errForeign = errors.New("its TCP is netstack, but this works with Linux guests only: set guests.stack to linux")
