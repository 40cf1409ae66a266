package soak

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"

	"weir/datapath/testnet"
)

// insertSwitch puts an Open vSwitch between the hypervisor's uplink and its peers. The first controller forwards there. A frame passes
// only by the controller's flows, which are lost when ovs-vswitchd dies.
func (w *world) insertSwitch() {
	w.tb.Helper()
	ns := testnet.NewNamespace(w.tb)
	w.connect(&node{w: w, name: "ovs", ns: ns, address: "10.99.0.31"})
	here, there := namespaceFile(w.tb, ns), namespaceFile(w.tb, w.Peer)
	defer here.Close()
	defer there.Close()
	var mac net.HardwareAddr         // of the peers: the VMs know it
	w.Peer.Must(w.tb, func() error { // the uplink's other end
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		mac = l.Attrs().HardwareAddr
		return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, "left"), netlink.LinkSetNsFd(l, int(here.Fd())))
	})
	ns.Must(w.tb, func() error {
		v := netlink.NewVeth(netlink.LinkAttrs{Name: "right"})
		v.PeerName, v.PeerNamespace = "eth0", netlink.NsFd(there.Fd())
		return errors.Join(netlink.LinkAdd(v), testnet.NoChecksumOffload("left"), testnet.NoChecksumOffload("right"), up("left"), up("right"))
	})
	w.Peer.Must(w.tb, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		ip := &netlink.Addr{IPNet: &net.IPNet{IP: testnet.PeerIPv4(0), Mask: net.CIDRMask(16, 32)}}
		return errors.Join(netlink.LinkSetHardwareAddr(l, mac), testnet.NoChecksumOffload("eth0"), netlink.AddrAdd(l, ip), up("eth0"))
	})
	// A host would ask for an address again after half a minute, and nobody answers while the controller is away.
	for _, end := range []*testnet.Namespace{w.Peer, w.Guests[0]} {
		end.Sysctl(w.tb, "net.ipv4.neigh.eth0.base_reachable_time_ms", "7200000")
	}
	w.ovs = testnet.NewOpenVSwitch(w.tb, ns)
	w.ovs.Vsctl(w.tb, "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure",
		"--", "add-port", "br0", "left", "--", "add-port", "br0", "right",
		"--", "set-controller", "br0", fmt.Sprintf("tcp:%s:6653", w.controls[0].address), "--", "set", "controller", "br0", "max_backoff=1000")
}

// forwards reports whether the controller has confirmed flows of the Open vSwitch.
func (n *node) forwards() bool {
	s, err := n.read()
	return err == nil && s.Forward.Settled && len(s.Forward.Switches) == 1
}

func namespaceFile(tb testingTB, ns *testnet.Namespace) (f *os.File) {
	tb.Helper()
	ns.Must(tb, func() (err error) {
		f, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return f
}
