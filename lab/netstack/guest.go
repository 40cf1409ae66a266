// Package netstack is a guest with gVisor's TCP instead of Linux's, as a library in this process. Its packets
// leave and enter at a veth of a network namespace, as those of the kernel's own TCP do.
//
//	guest.go     a stack with its one address
//	settings.go  settings that it has, and those that it lacks
//	link.go      its end of the veth: a packet socket
//	receive.go   frames from the veth;  queue.go  the queue of its host
//	conn.go      a connection;  listen.go  a listener;  udp.go  datagrams
//	stuck.go     connections that netstack will not continue
//	errors.go    its errors, as errors of the kernel
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

// Ports for outgoing connections, and how long a port stays reserved after its connection ended: 55,000 ports for
// each server, free again after 1 s, as in the Linux guests.
const (
	firstPort, lastPort = 10240, 65535
	timeWait            = time.Second
)

// Config describes a guest.
type Config struct {
	Ifindex int              // of the veth, in the namespace of the calling thread
	MAC     net.HardwareAddr // of the veth
	MTU     uint32           // of IP packets, bytes
	Addr    netip.Addr       // the guest's only address: IPv4, and not an address of the kernel
	// Next returns the hardware address for a packet to an IPv4 address: neighbours are known and no ARP is ever
	// sent.
	Next     func(netip.Addr) (net.HardwareAddr, bool)
	Settings Settings
	// Queue, if not nil, is the queue of the host through which the guest sends. The guest closes it.
	Queue *Queue
}

// Guest is a running stack.
type Guest struct {
	addr    netip.Addr
	stack   *stack.Stack
	link    *link
	dropped atomic.Int64          // packets for which connections had no room
	stuck   atomic.Int64          // connections
	unread  atomic.Pointer[error] // why the state of a connection could not be read
}

// Open starts a guest. It must be called on a thread in the guest's network namespace; the guest can then be used,
// and closed, from any thread.
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

// Addr returns the guest's address.
func (g *Guest) Addr() netip.Addr { return g.addr }

// Trouble lists what went wrong in a guest and not in the network.
type Trouble struct {
	// Lost counts packets that arrived while this process was too slow to have room for them: they make a
	// measurement invalid. Those for which a connection had no room count once it is closed.
	Lost int
	// Stuck counts connections that had data to send when they were closed, which netstack would never have sent:
	// a defect of netstack (see sender.stuck).
	Stuck int
}

// Trouble returns what went wrong since the last call.
func (g *Guest) Trouble() (Trouble, error) {
	lost, err := g.link.lost()
	if unread := g.unread.Load(); unread != nil {
		err = errors.Join(err, *unread)
	}
	return Trouble{Lost: lost + int(g.dropped.Swap(0)), Stuck: int(g.stuck.Swap(0))}, err
}

// Close resets open connections and ends the guest.
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

// address converts an address to netstack's form.
func address(a netip.Addr) tcpip.Address { return tcpip.AddrFrom4(a.As4()) }

func fullAddress(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: address(a.Addr()), Port: a.Port()}
}

// addrPort converts netstack's full address to Go's form.
func addrPort(a tcpip.FullAddress) netip.AddrPort {
	if a.Addr.Len() != header.IPv4AddressSize {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom4(a.Addr.As4()), a.Port)
}
