package traffic_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/experiment"
	"weir/lab/netstack"
	"weir/lab/traffic"
	"weir/law"
)

// newMixedPair is newPair with netstack at some nodes, for traffic of the profile foreign.
func newMixedPair(t testing.TB, rate law.Rate, nodes ...string) *pairNet {
	t.Helper()
	n := newPair(t, rate)
	n.guests = map[string]*netstack.Guest{}
	macs := map[netip.Addr]net.HardwareAddr{}
	for node := range n.work {
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
	for node := range n.work {
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
		g, err := netstack.Open(netstack.Config{
			Ifindex: link.Attrs().Index, MAC: link.Attrs().HardwareAddr, MTU: 1500, RateBps: int64(rate), Addr: addr,
			Next: func(a netip.Addr) (net.HardwareAddr, bool) { mac, ok := macs[a]; return mac, ok },
			Settings: netstack.Settings{
				CC: "cubic", InitialWindow: 10, RTOMin: 200 * time.Millisecond, InitialRTO: time.Second, SACK: true,
			},
		})
		if err != nil {
			return err
		}
		n.guests[node] = g
		t.Cleanup(func() {
			if lost, err := g.Lost(); lost > 0 || err != nil {
				t.Errorf("%s lost %d packets at its socket: %v", node, lost, err)
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

// mixes are the ways in which netstack can be at the nodes.
var mixes = map[string][]string{"both": {"a", "b"}, "from linux": {"b"}, "to linux": {"a"}}

func foreignItem(t experiment.Traffic) experiment.Item {
	return experiment.Item{Traffic: t, Profile: foreign}
}

func TestForeignBytesOnTheWire(t *testing.T) {
	for mix, nodes := range mixes {
		for _, data := range []string{"push", "pull"} {
			for _, connection := range []string{"new", "persistent"} {
				for _, size := range []int64{1, 11_500, 1_000_000} {
					n := newMixedPair(t, 0, nodes...)
					wire := sniff(t, n, "b")
					out := run(t, n, config(time.Second, foreignItem(experiment.Traffic{
						Data: data, Connection: connection, Pattern: "burst", Size: law.Bytes(size), Every: ms(10), Epochs: 2,
					})))
					if len(out.Flows) != 2 || out.Partial {
						t.Fatalf("%s %s %s: %d flows, partial %v", mix, data, connection, len(out.Flows), out.Partial)
					}
					for i := range out.Flows {
						checkDone(t, &out.Flows[i], size)
					}
					back := int64(0)
					if data == "pull" || connection == "persistent" {
						back = 2 * 64
					}
					if in, against, _ := wire(); in != 2*size || against != back {
						t.Errorf("%s %s %s of %d B: %d B on the wire there, %d B back, want %d and %d", mix, data, connection, size, in, against, 2*size, back)
					}
				}
			}
		}
	}
}

func TestForeignRTT(t *testing.T) {
	n := newMixedPair(t, 0, "a", "b")
	rtt, err := traffic.RTT(t.Context(), n, "a", "b", foreign)
	if err != nil || rtt <= 0 || rtt > 100*time.Millisecond {
		t.Errorf("round trip %v, error %v", rtt, err)
	}
}
