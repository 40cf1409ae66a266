package traffic_test

import (
	"fmt"
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

// setUpForeign returns a node its address of the profile foreign, in netstack or in the kernel.
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
				CC: "reno", InitialWindow: 10, RTOMin: 200 * time.Millisecond, InitialRTO: time.Second, SACK: true, // its cubic may stop permanently
			},
		})
		if err != nil {
			return err
		}
		n.guests[node] = g
		t.Cleanup(func() {
			// Frames lost since the last run belong to no run.
			if trouble, err := g.Trouble(); trouble.Stuck > 0 || err != nil {
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

// pairsOfTCPs lists the nodes that have netstack in each pair of TCPs.
var pairsOfTCPs = []struct {
	name     string
	netstack []string
}{
	{"linux", nil},
	{"netstack", []string{"a", "b"}},
	{"linux to netstack", []string{"b"}},
	{"netstack to linux", []string{"a"}},
}

// everyTCP runs a test with Linux at both nodes, with netstack at both, and with one of each.
func everyTCP(t *testing.T, rate law.Rate, test func(t *testing.T, n *pairNet)) {
	for _, p := range pairsOfTCPs {
		t.Run(p.name, func(t *testing.T) { untilWhole(t, rate, p.netstack, test) })
	}
}

// everyTCPAtOnce is everyTCP in parallel: for tests that wait and send almost nothing. Netstack loses frames if
// this process has no time to read them.
func everyTCPAtOnce(t *testing.T, test func(t *testing.T, n *pairNet)) {
	for _, p := range pairsOfTCPs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			untilWhole(t, 0, p.netstack, test)
		})
	}
}

// untilWhole runs a test with netstack at these nodes, each time on a new network, until none of its runs is void
// (see checkWhole); five times at most.
func untilWhole(t *testing.T, rate law.Rate, nodes []string, test func(t *testing.T, n *pairNet)) {
	t.Helper()
	const tries = 5
	for i := range tries {
		void := whyVoid(func() {
			if nodes == nil {
				test(t, newPair(t, rate))
			} else {
				test(t, newMixedPair(t, rate, nodes...))
			}
		})
		if void == "" {
			return
		}
		t.Logf("try %d of at most %d is void: %s", i+1, tries, void)
	}
	t.Fatalf("each of %d tries was void", tries)
}

// voidRun is the reason why a run is void; checkWhole panics with it, which ends the test's function.
type voidRun string

// whyVoid calls f and returns why a run in it was void; empty if none was.
func whyVoid(f func()) (why string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case voidRun:
			why = string(r)
		default:
			panic(r)
		}
	}()
	f()
	return ""
}

// checkWhole is called after each run, before its results are checked. A run is void when this process had no time
// to read frames for netstack: the test would check the machine and not the traffic.
func (n *pairNet) checkWhole(t testing.TB) {
	t.Helper()
	for node, g := range n.guests {
		if g == nil {
			continue
		}
		trouble, err := g.Trouble()
		if trouble.Stuck > 0 || err != nil {
			t.Errorf("%s: %+v, %v", node, trouble, err)
		}
		if trouble.Lost > 0 {
			panic(voidRun(fmt.Sprintf("%s lost %d frames in this process, which was too slow", node, trouble.Lost)))
		}
	}
}

// item returns traffic between the TCPs that n is about.
func (n *pairNet) item(t experiment.Traffic) experiment.Item {
	return experiment.Item{Traffic: t, Profile: n.profile()}
}

func (n *pairNet) profile() int {
	if n.guests != nil {
		return foreign
	}
	return 0
}
