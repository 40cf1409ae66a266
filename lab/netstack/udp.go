package netstack

import (
	"bytes"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Datagrams is a UDP socket connected to one other. It never waits. Only one goroutine at a time may use it.
type Datagrams struct {
	ep     tcpip.Endpoint
	local  netip.AddrPort
	source bytes.Reader
}

// NewDatagrams opens a UDP socket at any port, with a receive buffer of this many bytes.
func (g *Guest) NewDatagrams(receiveBytes int) (*Datagrams, error) {
	ep, err := g.stack.NewEndpoint(udp.ProtocolNumber, ipv4.ProtocolNumber, &waiter.Queue{})
	if err != nil {
		return nil, goError(err)
	}
	ep.SocketOptions().SetReceiveBufferSize(int64(receiveBytes), true)
	d := &Datagrams{ep: ep}
	if err := ep.Bind(fullAddress(netip.AddrPortFrom(g.addr, 0))); err != nil {
		ep.Close()
		return nil, goError(err)
	}
	a, err := ep.GetLocalAddress()
	if err != nil {
		ep.Close()
		return nil, goError(err)
	}
	d.local = addrPort(a)
	return d, nil
}

// Local returns the socket's own address.
func (d *Datagrams) Local() netip.AddrPort { return d.local }

// Join sets the only address that it sends to and receives from.
func (d *Datagrams) Join(peer netip.AddrPort) error { return goError(d.ep.Connect(fullAddress(peer))) }

// Send sends one datagram; it is lost if there is no room.
func (d *Datagrams) Send(p []byte) {
	d.source.Reset(p)
	_, _ = d.ep.Write(&d.source, tcpip.WriteOptions{})
}

// Receive takes an arrived datagram and returns its length; false if there is none.
func (d *Datagrams) Receive() (int, bool) {
	r, err := d.ep.Read(&sink{left: 1 << 16}, tcpip.ReadOptions{})
	return r.Count, err == nil
}

// Close closes the socket.
func (d *Datagrams) Close() { d.ep.Close() }
