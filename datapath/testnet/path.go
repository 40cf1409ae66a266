package testnet

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/internal/nic"
)

// Path is sender - switch - receiver: two veth pairs and a bridge. A TBF shapes the switch's port towards the
// receiver; another one can shape the sender's uplink.
type Path struct {
	Sender, Switch, Receiver *Namespace
	Port                     attach.PortRef // the switch's port towards the receiver
	Uplink                   attach.PortRef // the sender's own device
	In, Rx                   attach.PortRef // the other ends of the two, not shaped
}

// Addresses of a Path.
var (
	SenderIPv4   = net.IPv4(10, 0, 0, 1)
	ReceiverIPv4 = net.IPv4(10, 0, 0, 2)
	SenderIPv6   = net.ParseIP("fd00::1")
	ReceiverIPv6 = net.ParseIP("fd00::2")
)

// PathOptions are the properties of a Path. Rate 0: not shaped.
type PathOptions struct {
	PortBps, UplinkBps uint64
	Limit              uint32 // bytes of the port's queue
	UplinkLimit        uint32 // bytes of the uplink's; 0: 10 MB
	Burst              uint32 // bytes of the shapers' token bucket: larger frames do not pass; 0: two frames
	MTU                int    // of all devices; 0: 1500
	GSO                bool   // segmentation offloads on at all devices
	ChecksumOffload    bool   // on at all devices
	NoIPv6             bool   // no IPv6 at all, and so no traffic that IPv6 itself sends
	InitialWindow      int    // segments that a connection may send before it knows its path; 0: the kernel's 10
}

// device is one end of a veth pair.
type device struct {
	ns     *Namespace
	name   string
	index  int
	mac    net.HardwareAddr
	ipv4   net.IP
	ipv6   net.IP
	bridge bool // the device is a port of the bridge
}

// NewPath builds the network, which lasts as long as the test.
func NewPath(tb testing.TB, o PathOptions) *Path {
	tb.Helper()
	p := &Path{Sender: NewNamespace(tb), Switch: NewNamespace(tb), Receiver: NewNamespace(tb)}
	for _, n := range []*Namespace{p.Sender, p.Switch, p.Receiver} {
		n.Sysctl(tb, "net.ipv6.conf.all.disable_ipv6", flag(o.NoIPv6))
		n.Sysctl(tb, "net.ipv6.conf.default.disable_ipv6", flag(o.NoIPv6))
	}
	// A bridge that passes frames to iptables drops malformed frames and trims padded ones; a switch does not.
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"} {
		if _, err := os.Stat("/proc/sys/net/bridge/" + name); err == nil {
			p.Switch.Sysctl(tb, "net.bridge."+name, "0")
		}
	}
	p.Switch.Must(tb, func() error {
		// With snooping the bridge would send group reports of its own (224.0.0.106) into the ports under test.
		snooping := false
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}, MulticastSnooping: &snooping}
		if err := netlink.LinkAdd(br); err != nil {
			return err
		}
		return netlink.LinkSetUp(br)
	})
	up := device{ns: p.Sender, name: "up0", ipv4: SenderIPv4, ipv6: SenderIPv6}
	in := device{ns: p.Switch, name: "in0", bridge: true}
	out := device{ns: p.Switch, name: "out0", bridge: true}
	rx := device{ns: p.Receiver, name: "rx0", ipv4: ReceiverIPv4, ipv6: ReceiverIPv6}
	connect(tb, &up, &in, o)
	connect(tb, &out, &rx, o)
	if o.UplinkLimit == 0 {
		o.UplinkLimit = 10 << 20
	}
	if o.Burst == 0 {
		o.Burst = 2 * 1514
	}
	p.Port = attach.PortRef{Name: "switch->receiver", Ifindex: out.index, Enter: p.Switch.Enter}
	p.Uplink = attach.PortRef{Name: "sender->switch", Ifindex: up.index, Enter: p.Sender.Enter}
	Shape(tb, p.Port, o.PortBps, o.Limit, o.Burst)
	Shape(tb, p.Uplink, o.UplinkBps, o.UplinkLimit, o.Burst)
	p.In = attach.PortRef{Name: "switch->sender", Ifindex: in.index, Enter: p.Switch.Enter}
	p.Rx = attach.PortRef{Name: "receiver->switch", Ifindex: rx.index, Enter: p.Receiver.Enter}
	for _, port := range []attach.PortRef{p.Uplink, p.In, p.Port, p.Rx} {
		settle(tb, port)
	}
	addresses := 2
	if o.NoIPv6 {
		addresses = 1
	}
	Know(tb, p.Uplink, rx.mac, []net.IP{ReceiverIPv4, ReceiverIPv6}[:addresses]...)
	Know(tb, p.Rx, up.mac, []net.IP{SenderIPv4, SenderIPv6}[:addresses]...)
	return p
}

// connect makes a veth pair in a's namespace, moves one end to b's and brings both up.
func connect(tb testing.TB, a, b *device, o PathOptions) {
	tb.Helper()
	var fd int
	b.ns.Must(tb, func() (err error) {
		fd, err = namespaceFD()
		return err
	})
	defer closeFD(fd)
	a.ns.Must(tb, func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: a.name}, PeerName: b.name, PeerNamespace: netlink.NsFd(fd),
		})
	})
	for _, d := range []*device{a, b} {
		d.ns.Must(tb, func() error { return d.up(o) })
	}
}

func (d *device) up(o PathOptions) error {
	l, err := netlink.LinkByName(d.name)
	if err != nil {
		return err
	}
	d.index, d.mac = l.Attrs().Index, l.Attrs().HardwareAddr
	if err := offloads(d.name, o); err != nil {
		return err
	}
	if o.MTU != 0 {
		if err := netlink.LinkSetMTU(l, o.MTU); err != nil {
			return err
		}
	}
	if d.bridge {
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(l, br); err != nil {
			return err
		}
	}
	for _, a := range []*netlink.Addr{
		{IPNet: &net.IPNet{IP: d.ipv4, Mask: net.CIDRMask(24, 32)}},
		{IPNet: &net.IPNet{IP: d.ipv6, Mask: net.CIDRMask(64, 128)}, Flags: 0x02 /* IFA_F_NODAD: usable at once */},
	} {
		if a.IP == nil || o.NoIPv6 && a.IP.To4() == nil {
			continue
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return fmt.Errorf("address %s: %w", a.IP, err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil || o.InitialWindow == 0 {
		return err
	}
	return initialWindow(l, o.InitialWindow)
}

// initialWindow lets connections over a device begin with so many segments.
func initialWindow(l netlink.Link, segments int) error {
	routes, err := netlink.RouteList(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if r.Dst == nil || !r.Dst.IP.IsGlobalUnicast() {
			continue
		}
		// Do not send the route back as it was listed: the kernel refuses the flags that it reports.
		again := &netlink.Route{
			LinkIndex: r.LinkIndex, Dst: r.Dst, Src: r.Src, Scope: r.Scope, Protocol: r.Protocol, Table: r.Table,
			Priority: r.Priority, Type: r.Type, InitCwnd: segments,
		}
		if err := netlink.RouteReplace(again); err != nil {
			return fmt.Errorf("route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

// offloads turns the device's features on or off.
func offloads(name string, o PathOptions) error {
	e, err := nic.Open()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(name, map[string]bool{
		"tx-generic-segmentation":      o.GSO,
		"tx-tcp-segmentation":          o.GSO && o.ChecksumOffload,
		"tx-tcp6-segmentation":         o.GSO && o.ChecksumOffload,
		"rx-gro":                       o.GSO,
		"tx-checksum-ip-generic":       o.ChecksumOffload,
		"tx-tcp-ecn-segmentation":      o.GSO && o.ChecksumOffload,
		"tx-tcp-mangleid-segmentation": o.GSO && o.ChecksumOffload,
	})
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// Shape puts a TBF at the root of a port's device, or changes the one there. Rate 0 removes it.
func Shape(tb testing.TB, p attach.PortRef, bps uint64, limit, burst uint32) {
	tb.Helper()
	if bps == 0 {
		return
	}
	err := p.In(func() error {
		return netlink.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: p.Ifindex, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
			Rate:       bps / 8, Limit: limit, Buffer: ticks(uint64(burst), bps),
		})
	})
	if err != nil {
		tb.Fatalf("shape %s: %v", p.Name, err)
	}
}

// ticks returns the time to send this many bytes, in the unit of TBF's buffer.
func ticks(bytes, bps uint64) uint32 {
	us := float64(bytes) * 8 * 1e6 / float64(bps)
	return uint32(us*netlink.TickInUsec()) + 1
}
