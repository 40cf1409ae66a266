// Package netstack is a guest whose TCP is not Linux's but gVisor's, as a library in this process.
// Its packets leave and enter at a veth of a network namespace, as those of the kernel's own TCP do.
//
//	guest.go     a stack with its one address
//	settings.go  what it can be told, and what not
//	link.go      its end of the veth: a packet socket
//	receive.go   frames from the veth;  queue.go  the queue of its host
//	conn.go      a connection;  listen.go  a listener;  udp.go  datagrams
//	stuck.go     connections that netstack will not continue
//	errors.go    its errors as the kernel names them
package netstack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// nic is the number of the guest's one interface.
const nic = tcpip.NICID(1)

// Ports that connections are made from, and how long one is kept for a connection that has ended:
// 55,000 ports for each server, free again after 1 s, as in the Linux guests.
const (
	firstPort, lastPort = 10240, 65535
	timeWait            = time.Second
)

// Config says what a guest is.
type Config struct {
	Ifindex int              // of the veth, in the namespace of the calling thread
	MAC     net.HardwareAddr // of the veth
	MTU     uint32           // of IP packets, bytes
	Addr    netip.Addr       // the guest's only address: IPv4, and not one of the kernel's
	// Next is the hardware address that a packet to an IPv4 address goes to: neighbours are known
	// and no ARP is ever sent.
	Next     func(netip.Addr) (net.HardwareAddr, bool)
	Settings Settings
	// Queue, if there is one, is that of the host through which the guest sends. The guest closes it.
	Queue *Queue
}

// Guest is a stack that is up.
type Guest struct {
	addr    netip.Addr
	stack   *stack.Stack
	link    *link
	dropped atomic.Int64          // packets that connections had no room for
	stuck   atomic.Int64          // connections
	unread  atomic.Pointer[error] // why the state of a connection could not be read
}

// Open starts a guest. It must be called on a thread in the guest's network namespace; the guest
// can then be used, and closed, from any thread.
func Open(c Config) (*Guest, error) {
	l, err := openLink(c)
	if err != nil {
		if c.Queue != nil {
			c.Queue.Close()
		}
		return nil, fmt.Errorf("netstack at %v: %w", c.Addr, err)
	}
	g := &Guest{addr: c.Addr, link: l}
	if err := g.start(c); err != nil {
		return nil, fmt.Errorf("netstack at %v: %w", c.Addr, errors.Join(err, g.Close()))
	}
	return g, nil
}

func (g *Guest) start(c Config) error {
	g.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	if err := c.Settings.apply(g.stack); err != nil {
		return err
	}
	if err := g.stack.SetPortRange(firstPort, lastPort); err != nil {
		return goError(err)
	}
	if err := g.stack.CreateNIC(nic, g.link); err != nil {
		return goError(err)
	}
	err := g.stack.AddProtocolAddress(nic, tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: address(g.addr).WithPrefix(),
	}, stack.AddressProperties{})
	if err != nil {
		return goError(err)
	}
	g.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return nil
}

// Addr is the guest's address.
func (g *Guest) Addr() netip.Addr { return g.addr }

// Trouble is what went wrong in a guest and not in the network.
type Trouble struct {
	// Lost packets came in, and this process was too slow to have room for them: it makes a
	// measurement worthless. Those that a connection had no room for count once it is closed.
	Lost int
	// Stuck connections had something to send when they were closed, and netstack would never have sent it: a defect of
	// netstack (see sender.stuck).
	Stuck int
}

// Trouble tells what went wrong since it was last asked.
func (g *Guest) Trouble() (Trouble, error) {
	lost, err := g.link.lost()
	if unread := g.unread.Load(); unread != nil {
		err = errors.Join(err, *unread)
	}
	return Trouble{Lost: lost + int(g.dropped.Swap(0)), Stuck: int(g.stuck.Swap(0))}, err
}

// Close resets what is open and ends the guest.
func (g *Guest) Close() error {
	if g.stack != nil {
		g.stack.Close()
	}
	err := g.link.shut()
	if g.link.out != nil {
		g.link.out.Close()
	}
	if g.stack != nil {
		g.stack.Wait()
	}
	return err
}

// address is an address as netstack has it.
func address(a netip.Addr) tcpip.Address { return tcpip.AddrFrom4(a.As4()) }

func fullAddress(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: address(a.Addr()), Port: a.Port()}
}

// addrPort is a full address as Go has it.
func addrPort(a tcpip.FullAddress) netip.AddrPort {
	if a.Addr.Len() != header.IPv4AddressSize {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom4(a.Addr.As4()), a.Port)
}
