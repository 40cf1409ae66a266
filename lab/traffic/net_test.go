package traffic_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"weir/datapath/testnet"
	"weir/experiment"
	"weir/internal/nic"
	"weir/lab/netstack"
	"weir/lab/traffic"
	"weir/law"
)

// pairNet is two nodes, "a" and "b", each in its own namespace, connected by one veth. The namespaces have no name
// and end with the threads in them, so nothing is left, even when the test is killed.
type pairNet struct {
	nodes  map[string]*testnet.Namespace
	guests map[string]*netstack.Guest // by node, for the profile foreign
}

const (
	profiles = 2 // of both nodes' kernels
	foreign  = 2 // the profile that is netstack's at some nodes
)

func (n *pairNet) Addr(node string, profile int) netip.Addr {
	host := byte(1)
	if node == "b" {
		host = 2
	}
	return netip.AddrFrom4([4]byte{10, byte(profile), 1, host})
}

func (n *pairNet) Guest(node string, profile int) *netstack.Guest {
	if profile != foreign {
		return nil
	}
	return n.guests[node]
}

func (n *pairNet) Enter(node string, f func() error) error {
	ns, ok := n.nodes[node]
	if !ok {
		return fmt.Errorf("no node %s", node)
	}
	return ns.Enter(f)
}

// newPair builds the network. With a rate both ends are shaped to it, with a queue that drops nothing. A drop at
// the sender's own interface is not a loss for Linux TCP: it is an error, and TCP retries after 200 ms.
func newPair(t testing.TB, rate law.Rate) *pairNet {
	t.Helper()
	n := &pairNet{nodes: map[string]*testnet.Namespace{"a": testnet.NewNamespace(t), "b": testnet.NewNamespace(t)}}
	must := func(node string, f func() error) {
		t.Helper()
		if err := n.Enter(node, f); err != nil {
			t.Fatal(err)
		}
	}
	var far netns.NsHandle
	must("b", func() (err error) { far, err = netns.Get(); return })
	must("a", func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: "weirtest-a"})
		veth.PeerName, veth.PeerNamespace = "weirtest-b", netlink.NsFd(far)
		return netlink.LinkAdd(veth)
	})
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	for node := range n.nodes {
		must(node, func() error { return n.setUp(node, rate) })
	}
	for node := range n.nodes {
		must(node, func() error { return settle("weirtest-" + node) })
	}
	return n
}

func (n *pairNet) setUp(node string, rate law.Rate) error {
	link, err := netlink.LinkByName("weirtest-" + node)
	if err != nil {
		return err
	}
	for p := range profiles {
		addr, err := netlink.ParseAddr(n.Addr(node, p).String() + "/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	if err := offloadsOff(link.Attrs().Name); err != nil {
		return err
	}
	if rate == 0 {
		return nil
	}
	return netlink.QdiscAdd(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       uint64(rate) / 8, Limit: 4 << 20, Buffer: netlink.Xmittime(uint64(rate)/8, 4600),
	})
}

// offloadsOff makes an interface carry real frames, as the lab's do.
func offloadsOff(name string) error {
	e, err := nic.Open()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(name, map[string]bool{
		"tx-tcp-segmentation": false, "tx-generic-segmentation": false, "rx-gro": false,
	})
}

// settle makes an interface send at once. An interface whose far end came up later may drop for a second, until
// the kernel checks it.
func settle(name string) error {
	e, err := nic.Open()
	if err != nil {
		return err
	}
	defer e.Close()
	_, err = e.Link(name)
	return err
}

// config is a Config with the given traffic; empty Pairs become a -> b.
func config(duration time.Duration, items ...experiment.Item) *experiment.Config {
	for i := range items {
		if items[i].Name == "" {
			items[i].Name = fmt.Sprintf("item%d", i)
		}
		if items[i].Pairs == nil {
			items[i].Pairs = []experiment.Pair{{Src: "a", Dst: "b"}}
		}
	}
	return &experiment.Config{
		Duration: law.Duration(duration), Series: law.Duration(10 * time.Millisecond), Items: items,
		Graph: &experiment.Graph{Links: []experiment.Link{{A: "a", B: "b", Rate: 100e6}}},
	}
}

func item(t experiment.Traffic) experiment.Item { return experiment.Item{Traffic: t} }

func ms(n float64) law.Duration { return law.Duration(n * 1e6) }

// longEnough is the duration of runs that end when their flows do, on any machine.
const longEnough = 2 * time.Minute

// run runs the traffic and fails the test on an error. It does not return from a run that is void (see
// checkWhole).
func run(t testing.TB, n *pairNet, cfg *experiment.Config) *traffic.Outcome {
	t.Helper()
	out, err := traffic.Run(context.Background(), n, cfg, 1, traffic.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n.checkWhole(t)
	return out
}
