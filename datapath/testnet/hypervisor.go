package testnet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
)

// Hypervisor is a bridge with a port for each guest and an uplink. All peers are at the far end of the uplink, in one
// namespace with an address for each.
type Hypervisor struct {
	Host, Peer *Namespace
	Guests     []*Namespace
	Ports      []attach.PortRef // of the bridge, to the guests
	MACs       []net.HardwareAddr
	Uplink     attach.PortRef
	Far        attach.PortRef // the uplink's other end
}

// GuestIPv4 and GuestIPv6 are the addresses of guest i, and PeerIPv4 and PeerIPv6 of peer i, both from 0.
func GuestIPv4(i int) net.IP { return net.IPv4(10, 0, byte(i>>8), byte(1+i)) }

// GuestIPv6 is guest i's IPv6 address.
func GuestIPv6(i int) net.IP { return net.ParseIP(fmt.Sprintf("fd00::1:%x", i+1)) }

// PeerIPv4 is the IPv4 address of peer i.
func PeerIPv4(i int) net.IP { return net.IPv4(10, 0, 255, byte(1+i)) }

// PeerIPv6 is the IPv6 address of peer i.
func PeerIPv6(i int) net.IP { return net.ParseIP(fmt.Sprintf("fd00::2:%x", i+1)) }

// NewHypervisor builds a hypervisor, which lasts as long as the test. Of the options it reads UplinkBps and UplinkLimit (0: the
// uplink is not shaped), GSO, ChecksumOffload, MTU.
func NewHypervisor(tb testing.TB, guests, peers int, o PathOptions) *Hypervisor {
	tb.Helper()
	h := &Hypervisor{Host: NewNamespace(tb), Peer: NewNamespace(tb)}
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"} {
		if _, err := os.Stat("/proc/sys/net/bridge/" + name); err == nil {
			h.Host.Sysctl(tb, "net.bridge."+name, "0")
		}
	}
	h.Host.Must(tb, func() error {
		snooping := false
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}, MulticastSnooping: &snooping}
		if err := netlink.LinkAdd(br); err != nil {
			return err
		}
		return netlink.LinkSetUp(br)
	})
	up := device{ns: h.Host, name: "up0", bridge: true}
	far := device{ns: h.Peer, name: "eth0"}
	connect(tb, &up, &far, o)
	h.Uplink = attach.PortRef{Name: "uplink", Ifindex: up.index, Enter: h.Host.Enter}
	h.Far = attach.PortRef{Name: "far end of the uplink", Ifindex: far.index, Enter: h.Peer.Enter}
	var all []net.IP // of peers
	for i := range peers {
		addAddresses(tb, h.Far, PeerIPv4(i), PeerIPv6(i))
		all = append(all, PeerIPv4(i), PeerIPv6(i))
	}
	for i := range guests {
		guest := NewNamespace(tb)
		port := device{ns: h.Host, name: fmt.Sprintf("vm%d", i), bridge: true}
		eth := device{ns: guest, name: "eth0"}
		connect(tb, &port, &eth, o)
		inside := attach.PortRef{Name: "guest", Ifindex: eth.index, Enter: guest.Enter}
		addAddresses(tb, inside, GuestIPv4(i), GuestIPv6(i))
		h.Guests = append(h.Guests, guest)
		h.Ports = append(h.Ports, attach.PortRef{Name: port.name, Ifindex: port.index, Enter: h.Host.Enter})
		h.MACs = append(h.MACs, eth.mac)
		Know(tb, inside, far.mac, all...)
		Know(tb, h.Far, eth.mac, GuestIPv4(i), GuestIPv6(i))
		settle(tb, inside)
		settle(tb, h.Ports[i])
	}
	if o.UplinkBps != 0 {
		Shape(tb, h.Uplink, o.UplinkBps, o.UplinkLimit, 2*1514)
	}
	settle(tb, h.Uplink)
	settle(tb, h.Far)
	return h
}

// addAddresses gives a device addresses in 10.0.0.0/16 and fd00::/64.
func addAddresses(tb testing.TB, p attach.PortRef, ipv4, ipv6 net.IP) {
	tb.Helper()
	err := p.In(func() error {
		l, err := netlink.LinkByIndex(p.Ifindex)
		if err != nil {
			return err
		}
		for _, a := range []*netlink.Addr{
			{IPNet: &net.IPNet{IP: ipv4, Mask: net.CIDRMask(16, 32)}},
			{IPNet: &net.IPNet{IP: ipv6, Mask: net.CIDRMask(64, 128)}, Flags: 0x02 /* IFA_F_NODAD: usable at once */},
		} {
			if err := netlink.AddrAdd(l, a); err != nil {
				return fmt.Errorf("address %s: %w", a.IP, err)
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("%s: %v", p.Name, err)
	}
}

// Path returns the way from guest i to the peers, for its methods that need only sender and receiver.
func (h *Hypervisor) Path(guest int) *Path {
	return &Path{Sender: h.Guests[guest], Switch: h.Host, Receiver: h.Peer, Port: h.Uplink}
}

// Addresses are what guest i sends from, with the link-local range.
func (h *Hypervisor) Addresses(i int) []netip.Prefix {
	one := func(ip net.IP) netip.Prefix {
		a, _ := netip.AddrFromSlice(ip)
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen())
	}
	return []netip.Prefix{one(GuestIPv4(i)), one(GuestIPv6(i)), netip.MustParsePrefix("fe80::/64")}
}
