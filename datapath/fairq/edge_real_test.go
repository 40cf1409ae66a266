package fairq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/fairq/edge"
	"weir/datapath/testnet"
)

// atSwitch attaches the edge to the switch's ports to both ends, as in a rack switch, behind the program that
// advertises windows.
func (p *rwndPath) atSwitch(t *testing.T, c edge.Config) *edge.Edge {
	t.Helper()
	p.edge = true
	return attachEdge(t, c, edge.Port{PortRef: p.In}, edge.Port{PortRef: p.Port})
}

// atHosts attaches the edge to the hosts' own devices.
func (p *rwndPath) atHosts(t *testing.T, c edge.Config) *edge.Edge {
	t.Helper()
	return attachEdge(t, c, edge.Port{PortRef: p.Uplink, Side: edge.Host}, edge.Port{PortRef: p.Rx, Side: edge.Host})
}

// rarely advertises a window that stays the same only once during a test. So the number of ACKs that advertise
// it does not depend on the machine's speed.
var rarely = fairq.EdgeMode{Interval: 10 * time.Second, Lease: time.Minute}

// noFlags fails if a flag reaches a guest, and returns the number of segments.
func noFlags(t *testing.T, tap *testnet.Tap) (segments int) {
	t.Helper()
	tap.Each(t, func(s *testnet.Segment) {
		if s.Out {
			return
		}
		segments++
		if s.Reserved != 0 {
			t.Errorf("a segment came to the guest with reserved bits %d, flags %#x", s.Reserved, s.Flags)
		}
	})
	return segments
}

// With an edge every sender is limited to the same window as without, from its first segment on. The switch
// leaves most ACKs to the edge, and no guest sees the edge's flag. The runs are real TCP, pairs of window
// scales, with all offloads.
func TestEdge_RealTCP(t *testing.T) {
	const grant = 23457
	for _, offload := range []bool{false, true} {
		for _, ipv6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("offloads=%t,ipv6=%t", offload, ipv6), func(t *testing.T) {
				p := newCellPath(t, testnet.PathOptions{GSO: offload, ChecksumOffload: offload})
				ip := testnet.ReceiverIPv4
				if ipv6 {
					ip = testnet.ReceiverIPv6
				}
				guests := [2]*testnet.Tap{testnet.NewTap(t, p.Uplink), testnet.NewTap(t, p.Rx)}
				e := p.atSwitch(t, edge.Config{Lease: rarely.Lease})
				f := p.govern(t, limitedTo(grant), limitedTo(grant), fairq.Config{Edge: rarely})
				var sum cells
				p.all(t, &sum, ip, []int{0, 5, 9, 14}, []int{0, 7, 14}, grant)
				sum.report(t)
				p.checksums(t)
				if n := noFlags(t, guests[0]) + noFlags(t, guests[1]); n < 100 {
					t.Errorf("only %d segments came to the guests", n)
				}
				p.edgeCounts(t, f, e)
			})
		}
	}
}

// edgeCounts checks that the edge received what the switch advertised, and that most ACKs were left to it.
func (p *rwndPath) edgeCounts(t *testing.T, f *fairq.Attachment, e *edge.Edge) {
	t.Helper()
	advertised, left, heard, applied := uint64(0), uint64(0), uint64(0), uint64(0)
	stats, err := f.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stats {
		advertised, left = advertised+s.Advertised, left+s.LeftToEdge
		sum := s.NotTCP + s.Tunnel + s.Fragment + s.Short + s.NoAck + s.Rewritten + s.Smaller + s.Unknown + s.Ungoverned +
			s.Free + s.Signed + s.OutOfScope + s.Unwritable + s.LeftToEdge
		if sum != s.Seen {
			t.Errorf("%s: counted %d of %d packets: %+v", s.Port, sum, s.Seen, s)
		}
	}
	edges, err := e.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range edges {
		heard, applied = heard+s.Advertised, applied+s.Applied
		if s.Unwritable+s.Forged+s.Expired != 0 || s.Learnt == 0 {
			t.Errorf("counted %+v", s)
		}
	}
	t.Logf("the switch advertised on %d ACKs and left %d to the edge, which received %d and limited %d", advertised, left, heard, applied)
	if advertised == 0 || advertised != heard || advertised*2 > left || applied == 0 {
		t.Errorf("the switch advertised on %d ACKs and left %d to the edge, which received %d and limited %d", advertised, left, heard, applied)
	}
}

// The same with the edge on the hosts' own devices, whose TCP is the guest.
func TestEdge_OnTheHosts(t *testing.T) {
	const grant = 23457
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	e := p.atHosts(t, edge.Config{Lease: rarely.Lease})
	f := p.govern(t, limitedTo(grant), limitedTo(grant), fairq.Config{Edge: rarely})
	flow := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(5)), testnet.WindowScale(9))
	for range 3 {
		testnet.Send(t, flow.Client, flow.Server, 300_000)
		testnet.Send(t, flow.Server, flow.Client, 300_000)
		for _, c := range []*testnet.TCPInfo{ptr(testnet.ReadTCPInfo(t, flow.Client)), ptr(testnet.ReadTCPInfo(t, flow.Server))} {
			if want := granted(grant, c.PeerScale); c.Snd_wnd != want {
				t.Errorf("a window of %d, want %d", c.Snd_wnd, want)
			}
		}
	}
	p.checksums(t)
	p.edgeCounts(t, f, e)
}

func ptr[T any](v T) *T { return &v }

// A switch that vanishes advertises no longer, and when the lease is over, senders have their receivers'
// windows. The edge follows a switch that comes back at once.
func TestEdge_OutlivesTheSwitchByItsLease(t *testing.T) {
	const grant, lease = 23457, 300 * time.Millisecond
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	e := p.atSwitch(t, edge.Config{Lease: lease})
	c := fairq.Config{Edge: fairq.EdgeMode{Interval: fairq.EdgeInterval, Lease: lease}, Lease: time.Hour}
	l := p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(5))
	for range 2 {
		f, err := fairq.Attach([]fairq.Port{{PortRef: p.Port, Law: limitedTo(grant)}, {PortRef: p.In, Law: limitedTo(grant)}}, c)
		if err != nil {
			t.Fatal(err)
		}
		flow := p.Dial(t, l, testnet.WindowScale(9))
		testnet.Until(t, "the window is limited", func() bool {
			testnet.Send(t, flow.Client, flow.Server, 100_000)
			return testnet.ReadTCPInfo(t, flow.Client).Snd_wnd == granted(grant, 5)
		})
		if err := f.Close(); err != nil { // flows are not released before
			t.Fatal(err)
		}
		expired := edgeStats(t, e)[0].Expired
		testnet.Until(t, "the edge's lease expires", func() bool {
			testnet.Send(t, flow.Client, flow.Server, 10_000)
			return testnet.ReadTCPInfo(t, flow.Client).Snd_wnd > 2*grant
		})
		if edgeStats(t, e)[0].Expired == expired {
			t.Error("the window went without the end of the lease")
		}
	}
	p.checksums(t)
}

func edgeStats(t *testing.T, e *edge.Edge) []edge.Stats {
	t.Helper()
	s, err := e.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Flows are released gradually through the edge as without it. When a switch leaves, it advertises ever larger
// windows, and the edge's lease does not expire before.
func TestEdge_IsReleasedGradually(t *testing.T) {
	const grant = 23457
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	e := p.atSwitch(t, edge.Config{Lease: time.Minute})
	f := p.govern(t, limitedTo(grant), limitedTo(grant), fairq.Config{
		Edge: fairq.EdgeMode{Interval: fairq.EdgeInterval, Lease: time.Minute}})
	s := p.NewStreams(t, testnet.ReceiverIPv4, 1, testnet.WindowScale(4))
	s.Progress(t, 1_000_000)
	tap, began := testnet.NewTap(t, p.Uplink), time.Now()
	if err := f.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The receiver's own window is advertised last. It may still grow beyond it, once.
	testnet.Until(t, "nothing is limited", func() bool {
		before := edgeStats(t, e)[0].Applied
		s.Progress(t, 500_000)
		return edgeStats(t, e)[0].Applied == before
	})
	s.Stop()
	if last := grewGradually(t, tap, grant, began); last < 4*grant {
		t.Errorf("in the end a window of %d", last)
	}
	if n := edgeStats(t, e)[0].Expired; n != 0 {
		t.Errorf("%d ACKs passed because the lease was over", n)
	}
}

// The edge attaches at the right places, and Close and errors leave nothing.
func TestEdge_AttachesWhereItBelongs(t *testing.T) {
	p := newRwndPath(t, testnet.PathOptions{NoIPv6: true})
	chains := func() string {
		s := ""
		for _, port := range []attach.PortRef{p.Uplink, p.In} {
			s += fmt.Sprint(chainAt(t, port, ebpf.AttachTCXIngress), chainAt(t, port, ebpf.AttachTCXEgress))
		}
		return s
	}
	e := attachEdge(t, edge.Config{}, edge.Port{PortRef: p.Uplink, Side: edge.Host}, edge.Port{PortRef: p.In})
	p.govern(t, limitedTo(30000), limitedTo(30000), fairq.Config{Edge: fairq.EdgeMode{Interval: time.Second, Lease: 3 * time.Second}})
	if got, want := chains(), "[weir_edge_apply_in] [weir_edge_guard_out][weir_edge_guard] [weir_fairq weir_edge_apply]"; got != want {
		t.Errorf("attached %s, want %s", got, want)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	gone := attach.PortRef{Name: "gone", Ifindex: 4711, Enter: p.Switch.Enter}
	if _, err := edge.Attach([]edge.Port{{PortRef: p.In}, {PortRef: gone}}, edge.Config{}); err == nil {
		t.Error("attached to a device that does not exist")
	} else if want := "attach edge to gone: "; err.Error()[:len(want)] != want {
		t.Errorf("error %q does not name the port", err)
	}
	if got := chains(); got != "[] [][] [weir_fairq]" {
		t.Errorf("afterwards %s stays", got)
	}
	for _, c := range []struct {
		ports int
		edge.Config
	}{{1025, edge.Config{}}, {1, edge.Config{Connections: 1 << 23}}, {1, edge.Config{Lease: time.Hour}}} {
		if _, err := edge.Attach(make([]edge.Port, c.ports), c.Config); err == nil {
			t.Errorf("%d ports, %+v: no error", c.ports, c.Config)
		}
	}
	for _, c := range []fairq.Config{
		{Edge: fairq.EdgeMode{Interval: time.Microsecond}}, {Edge: fairq.EdgeMode{Interval: time.Second}},
		{Edge: fairq.EdgeMode{Interval: time.Minute}}, {Edge: fairq.EdgeMode{Interval: 10 * time.Millisecond, Change: 2}},
		{Edge: fairq.EdgeMode{Interval: 10 * time.Millisecond}, Scale: fairq.ScaleShim},
		{Edge: fairq.EdgeMode{Interval: 10 * time.Millisecond}, Scale: fairq.ScaleUnify},
	} {
		if f, err := fairq.Attach(nil, c); err == nil {
			t.Errorf("%+v: no error", c.Edge)
			_ = f.Close()
		}
	}
}
