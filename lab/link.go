package lab

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/experiment"
	"weir/internal/nic"
)

const (
	mtu        = 1500
	frameBytes = mtu + 14 // size of a full frame for a qdisc: Ethernet header, no FCS
	mgmtIfname = "mgmt"
	bridgeName = "br0"
	txQueueLen = 1000
)

// wholeFrames reports whether an offload puts bundles of up to 64 KB into a queue instead of the frames on the
// line: those are switched off. Checksum offload stays on if possible, as on real hosts.
func wholeFrames(feature string) bool {
	return strings.Contains(feature, "segmentation") || strings.HasPrefix(feature, "tx-gso") || strings.HasPrefix(feature, "rx-gro")
}

// prepare sets what a new namespace needs before it has devices. It runs in the namespace.
func (n *node) prepare(p *plan) error {
	var err error
	if n.cookie, err = netnsCookie(); err != nil {
		return err
	}
	return setSysctls(n.sysctls(p))
}

// netnsCookie returns the cookie of the calling thread's namespace.
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("netns cookie (SO_NETNS_COOKIE needs Linux 5.14): %w", err)
	}
	return cookie, nil
}

// sysctls returns the settings of a namespace of this kind.
func (n *node) sysctls(p *plan) map[string]string {
	m := map[string]string{
		// No duplicate address detection, no router solicitation: nothing that would enter a queue.
		"net/ipv6/conf/all/disable_ipv6":     "1",
		"net/ipv6/conf/default/disable_ipv6": "1",
		"net/ipv4/conf/all/rp_filter":        "0",
		"net/ipv4/conf/default/rp_filter":    "0",
		"net/ipv4/conf/all/send_redirects":   "0",
		// A bridge must not pass frames to a firewall, whatever the host's setting is.
		"net/bridge/bridge-nf-call-iptables":  "0",
		"net/bridge/bridge-nf-call-ip6tables": "0",
		"net/bridge/bridge-nf-call-arptables": "0",
	}
	if n.kind == experiment.Switch && p.routed {
		m["net/ipv4/ip_forward"] = "1"
		m["net/ipv4/fib_multipath_hash_policy"] = "1" // by addresses and ports
	}
	if n.kind == experiment.Guest {
		guestSysctls(m)
	}
	return m
}

// setSysctls writes under /proc/sys, which shows the settings of the calling thread's namespace. It skips settings
// that this kernel does not have: the features that matter are probed elsewhere.
func setSysctls(m map[string]string) error {
	for name, value := range m {
		err := os.WriteFile("/proc/sys/"+name, []byte(value), 0)
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("set %s to %s: %w", strings.ReplaceAll(name, "/", "."), value, err)
		}
	}
	return nil
}

// makeLinks makes the links that start at n, with the far end directly in the peer's namespace: no device of the
// lab is ever in the host's namespace.
func (l *Lab) makeLinks(n *node) error {
	return n.w.do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		for _, p := range n.ports {
			if p.far.node.index < n.index {
				continue // made from the other end
			}
			if err := l.makeVeth(h, p.ifname, p.mac, p.far.node, p.far.ifname, p.far.mac); err != nil {
				return fmt.Errorf("link to %s: %w", p.peer.name, err)
			}
		}
		if !n.mgmt.IsValid() || n.name == mgmtNode {
			return nil
		}
		mgmt := l.plan.byName[mgmtNode]
		return l.makeVeth(h, mgmtIfname, n.mgmtMAC(0), mgmt, fmt.Sprintf("m%d", n.index+1), n.mgmtMAC(1))
	})
}

func (n *node) mgmtMAC(end byte) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x78, byte(n.index >> 8), byte(n.index), 0, end}
}

func (l *Lab) makeVeth(h *netlink.Handle, name string, mac net.HardwareAddr, far *node, farName string, farMAC net.HardwareAddr) error {
	ns, err := os.Open(netnsDir + "/" + l.claim.Namespaces[far.name])
	if err != nil {
		return err
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU, attrs.TxQLen = name, mac, mtu, txQueueLen
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1 // one queue, for any number of CPUs
	veth := netlink.NewVeth(attrs)
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = 1, 1
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerMTU = farName, farMAC, mtu
	veth.PeerNamespace = netlink.NsFd(int(ns.Fd()))
	return h.LinkAdd(veth)
}

// setUpNode configures a node, once all its ports exist.
func (l *Lab) setUpNode(n *node) error {
	return n.w.do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		e, err := nic.Open()
		if err != nil {
			return err
		}
		defer e.Close()
		for _, p := range n.ports {
			if err := p.setUp(h, e, p.peer.kind == experiment.Switch && l.fabric.finishChecksums()); err != nil {
				return fmt.Errorf("port %s: %w", p.name, err)
			}
		}
		if err := l.setUpManagement(h, n); err != nil {
			return fmt.Errorf("management network: %w", err)
		}
		if lo, err := h.LinkByIndex(1); err != nil {
			return err
		} else if err := h.LinkSetUp(lo); err != nil {
			return err
		}
		if err := l.setUpKind(h, n); err != nil {
			return err
		}
		// Last: a switch that takes over its ports may remove their queues.
		for _, p := range n.ports {
			if p.rate == 0 {
				continue
			}
			if err := shape(h, p); err != nil {
				return fmt.Errorf("port %s: %w", p.name, err)
			}
		}
		return nil
	})
}

// setUpKind makes a node a guest, or a switch of some kind.
func (l *Lab) setUpKind(h *netlink.Handle, n *node) error {
	switch {
	case n.mgmtOnly:
		return nil
	case n.kind == experiment.Guest:
		return l.setUpGuest(h, n)
	case n.kind == experiment.Hypervisor:
		return bridge{}.setUp(l, h, n)
	default:
		return l.fabric.setUp(l, h, n)
	}
}

// setUp sets a port's readable name and its offloads, and brings it up.
func (p *port) setUp(h *netlink.Handle, e *nic.Tool, finishChecksums bool) error {
	link, err := h.LinkByName(p.ifname)
	if err != nil {
		return err
	}
	p.ifindex = link.Attrs().Index
	if err := h.LinkAddAltName(link, p.name); err != nil {
		return fmt.Errorf("second name: %w", err)
	}
	if err := switchOff(e, p.ifname, finishChecksums); err != nil {
		return fmt.Errorf("offloads: %w", err)
	}
	return h.LinkSetUp(link)
}

// switchOff turns off the offloads that bundle frames, and if checksums is set those that leave checksums to the
// hardware, as far as this kernel has and allows it.
func switchOff(e *nic.Tool, ifname string, checksums bool) error {
	features, err := e.Features(ifname)
	if err != nil {
		return err
	}
	off := map[string]bool{}
	for name, state := range features {
		if (wholeFrames(name) || checksums && strings.HasPrefix(name, "tx-checksum-")) && state.On && !state.Fixed {
			off[name] = false
		}
	}
	return e.Change(ifname, off)
}

// settle makes sure that every device of the node sends. A veth whose far end came up later starts to send when the kernel's link watch notices. That may take a second: the kernel treats it as not urgent when both ends have the
// same ifindex. Until then it drops, and a lost SYN costs another second. Reading the state of the link makes
// the kernel notice at once.
func (l *Lab) settle(n *node) error {
	return n.w.do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		e, err := nic.Open()
		if err != nil {
			return err
		}
		defer e.Close()
		links, err := h.LinkList()
		if err != nil {
			return err
		}
		for _, link := range links {
			name := link.Attrs().Name
			if link.Type() != "veth" && link.Type() != "bridge" {
				continue
			}
			if _, err := e.Link(name); err != nil {
				return err
			}
			now, err := h.LinkByIndex(link.Attrs().Index)
			if err != nil {
				return err
			}
			if state := now.Attrs().OperState; state != netlink.OperUp {
				return fmt.Errorf("%s is %v, not up", name, state)
			}
		}
		return nil
	})
}

// setUpManagement connects a node to the management network: unshaped, only for switches, hosts and controllers.
func (l *Lab) setUpManagement(h *netlink.Handle, n *node) error {
	if !n.mgmt.IsValid() {
		return nil
	}
	name := mgmtIfname
	if n.name == mgmtNode {
		name = bridgeName
		if err := makeBridge(h, n.mgmtMAC(2)); err != nil {
			return err
		}
		for _, other := range l.plan.nodes {
			if other.mgmt.IsValid() && other != n {
				if err := joinBridge(h, fmt.Sprintf("m%d", other.index+1)); err != nil {
					return err
				}
			}
		}
	}
	link, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: n.mgmt.AsSlice(), Mask: net.CIDRMask(16, 32)}}
	if err := h.AddrAdd(link, addr); err != nil {
		return err
	}
	return h.LinkSetUp(link)
}
