package traffic_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/experiment"
	"weir/lab/netstack"
	"weir/law"
)

// newMixedPair is newPair with netstack at some nodes, for traffic of the profile foreign.
func newMixedPair(t testing.TB, rate law.Rate, nodes ...string) *pairNet {
	t.Helper()
	n := newPair(t, rate)
	n.guests = map[string]*netstack.Guest{}
	macs := map[netip.Addr]net.HardwareAddr{}
	for node := range n.nodes {
		if err := n.Enter(node, func() error {
			link, err := netlink.LinkByName("weirtest-" + node)
			if err == nil {
				macs[n.Addr(node, foreign)] = link.Attrs().HardwareAddr
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range nodes {
		n.guests[node] = nil
	}
	for node := range n.nodes {
		if err := n.Enter(node, func() error { return n.setUpForeign(t, node, rate, macs) }); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// setUpForeign gives a node its address of the profile foreign, in netstack or in the kernel.
func (n *pairNet) setUpForeign(t testing.TB, node string, rate law.Rate, macs map[netip.Addr]net.HardwareAddr) error {
	link, err := netlink.LinkByName("weirtest-" + node)
	if err != nil {
		return err
	}
	addr := n.Addr(node, foreign)
	if _, ok := n.guests[node]; ok {
		var queue *netstack.Queue
		if rate > 0 {
			if queue, err = netstack.OpenQueue(link.Attrs().Index, int64(rate)); err != nil {
				return err
			}
		}
		g, err := netstack.Open(netstack.Config{
			Ifindex: link.Attrs().Index, MAC: link.Attrs().HardwareAddr, MTU: 1500, Queue: queue, Addr: addr,
			Next: func(a netip.Addr) (net.HardwareAddr, bool) { mac, ok := macs[a]; return mac, ok },
			Settings: netstack.Settings{
				CC: "reno", InitialWindow: 10, RTOMin: 200 * time.Millisecond, InitialRTO: time.Second, SACK: true, // its cubic may stop for good
			},
		})
		if err != nil {
			return err
		}
		n.guests[node] = g
		t.Cleanup(func() {
			if trouble, err := g.Trouble(); trouble != (netstack.Trouble{}) || err != nil {
				t.Errorf("%s: %+v, %v", node, trouble, err)
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
		return nil
	}
	own, err := netlink.ParseAddr(addr.String() + "/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, own); err != nil {
		return err
	}
	for other, mac := range macs {
		if other == addr {
			continue
		}
		if err := netlink.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: other.AsSlice(), HardwareAddr: mac,
		}); err != nil {
			return err
		}
	}
	return nil
}

// everyTCP runs a test with Linux at both nodes, with netstack at both, and with one of each.
func everyTCP(t *testing.T, rate law.Rate, test func(t *testing.T, n *pairNet)) {
	t.Run("linux", func(t *testing.T) { test(t, newPair(t, rate)) })
	t.Run("netstack", func(t *testing.T) { test(t, newMixedPair(t, rate, "a", "b")) })
	t.Run("linux to netstack", func(t *testing.T) { test(t, newMixedPair(t, rate, "b")) })
	t.Run("netstack to linux", func(t *testing.T) { test(t, newMixedPair(t, rate, "a")) })
}

// everyTCPAtOnce is everyTCP side by side: for tests that wait and send next to nothing. Netstack loses frames where this
// process has no time to read them.
func everyTCPAtOnce(t *testing.T, rate law.Rate, test func(t *testing.T, n *pairNet)) {
	everyTCP(t, rate, func(t *testing.T, n *pairNet) {
		t.Parallel()
		test(t, n)
	})
}

// item is traffic between the TCPs that n is about.
func (n *pairNet) item(t experiment.Traffic) experiment.Item {
	return experiment.Item{Traffic: t, Profile: n.profile()}
}

func (n *pairNet) profile() int {
	if n.guests != nil {
		return foreign
	}
	return 0
}
