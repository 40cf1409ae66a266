//go:build cgo

package laws

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"weir/datapath/native"
	"weir/experiment"
	"weir/law"
	"weir/law/mark"
	"weir/law/static"
	"weir/sim/event"
	"weir/sim/network"
)

// sink counts what arrives.
type sink struct {
	net *network.Network
	ecn []uint8
	at  []event.Time
}

func (s *sink) Deliver(_ network.NodeID, pk *network.Packet, now event.Time) {
	s.ecn = append(s.ecn, pk.ECN())
	s.at = append(s.at, now)
	s.net.Free(pk)
}

func dumbbell(t *testing.T, topology experiment.Topology) (*network.Network, *sink) {
	t.Helper()
	g, err := experiment.BuildGraph(topology, experiment.Network{Rate: 1e9, Delay: 1000, Buffer: law.Limit{N: 125_000}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := network.Build(event.NewQueue(), &experiment.Config{Graph: g}, network.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{net: n}
	n.Sink = s
	return n, s
}

func packet(n *network.Network, bytes int32, ecn uint8) *network.Packet {
	from, _ := n.Node("sender1")
	to, _ := n.Node("receiver1")
	pk := n.NewPacket()
	pk.SetSrc(from)
	pk.SetDst(to)
	pk.SetBytes(bytes)
	pk.SetECN(ecn)
	return pk
}

// The laws at a port follow the table of mark.h, strictly above the threshold, whether it is in bytes or in packets.
func TestMarkAtPort(t *testing.T) {
	const pass, ce, drop = "pass", "ce", "drop"
	over := map[string][4]string{ // by law and not_ect: Not-ECT, ECT(1), ECT(0), CE
		"ecn pass": {pass, ce, ce, ce},
		"ecn drop": {drop, ce, ce, ce},
		"red drop": {drop, drop, drop, drop},
	}
	for _, threshold := range []law.Limit{{N: 3000}, {N: 3, Packets: true}} {
		for name, verdicts := range over {
			for ecn := range uint8(4) {
				for waiting := range 6 { // packets of 1000 bytes
					n, s := dumbbell(t, experiment.Topology{Kind: "dumbbell", Senders: 1, Receivers: 1})
					p := n.PortByName("switch->receiver1")
					for range waiting {
						p.Send(packet(n, 1000, network.NotECT))
					}
					_, err := testWorks.Put(n, &experiment.Run{
						Laws: []string{name[:3]}, At: []string{"switch"},
						Params: map[string]any{name[:3]: mark.Params{Threshold: threshold, NotECT: name[4:]}},
					})
					if err != nil {
						t.Fatal(err)
					}
					p.Send(packet(n, 1000, ecn))
					n.Queue.Run(event.Second)
					want := pass
					if waiting > 3 {
						want = verdicts[ecn]
					}
					got := pass
					switch c := p.Counters(); {
					case c.Law.Packets == 1 && len(s.ecn) == waiting:
						got = drop
					case s.ecn[waiting] == network.CE && (ecn == network.CE) == (c.Marks == 0):
						got = ce
					}
					if want == pass && ecn == network.CE {
						want = ce
					}
					if got != want {
						t.Errorf("%s, threshold %v, %d waiting, ecn %d: %s, want %s", name, threshold, waiting, ecn, got, want)
					}
				}
			}
		}
	}
}

// The stored answers equal those of mark_decide: in every configuration, for every ECN field, with an empty queue,
// around the threshold, at the ends of its range, and anywhere between.
func TestVerdictIsMarkDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		edges := rapid.SampledFrom([]uint32{0, 1, 2, 30_000, 1 << 31, math.MaxUint32 - 1, math.MaxUint32})
		k := int64(rapid.OneOf(edges, rapid.Uint32()).Draw(t, "threshold"))
		backlogs := []int64{0, 1, k - 1, k, k + 1, 2 * k, math.MaxUint32 - 1, math.MaxUint32, math.MaxUint32 + 1, 1 << 40}
		for range 20 {
			backlogs = append(backlogs, int64(rapid.Uint32().Draw(t, "backlog")))
		}
		for bits := range uint8(9) { // values outside the enumerations too
			c := native.MarkConfig{ThresholdBytes: uint32(k), Action: bits % 3, NotECT: bits / 3}
			l := newMark(c, false)
			for _, backlog := range backlogs {
				for ecn := range uint8(8) {
					want := native.Mark(c, uint32(min(max(backlog, 0), math.MaxUint32)), ecn)
					if got := l.verdict(max(backlog, 0), ecn); got != want {
						t.Fatalf("%+v, %d waiting, ecn %d: verdict %d, want %d", c, backlog, ecn, got, want)
					}
				}
			}
		}
	})
}

// Laws are attached only to the switches that the scheme names. Several at one port act in their order.
func TestPutWhere(t *testing.T) {
	n, _ := dumbbell(t, experiment.Topology{Kind: "dumbbell", Senders: 1, Receivers: 2})
	r := &experiment.Run{
		Laws: []string{"droptail", "ecn", "red"}, At: []string{"left"},
		Params: map[string]any{
			"ecn": mark.Params{Threshold: law.Limit{N: 1000}},
			"red": mark.Params{Threshold: law.Limit{N: 5000}},
		},
	}
	if _, err := testWorks.Put(n, r); err != nil {
		t.Fatal(err)
	}
	for _, p := range n.Ports {
		if got, want := len(p.Laws()) > 0, n.Name(p.Node) == "left"; got != want {
			t.Errorf("%s has a law: %v", p.Name, got)
		}
	}
	p := n.PortByName("left->right")
	for range 10 {
		p.Send(packet(n, 1000, network.ECT0))
	}
	// The first two find at most 1000 bytes, the next four are marked, at 6000 the others are dropped.
	if c := p.Counters(); c.Marks != 4 || c.Law.Packets != 4 {
		t.Errorf("%d marked, %d dropped", c.Marks, c.Law.Packets)
	}
	if _, err := testWorks.Put(n, &experiment.Run{Laws: []string{"sicc"}}); err == nil {
		t.Error("a law that is not there was put")
	}
}

// static limits every source of data to its rate, each by itself even if they share a hypervisor.
func TestStatic(t *testing.T) {
	for _, vms := range []int{0, 2} {
		n, s := dumbbell(t, experiment.Topology{Kind: "dumbbell", Senders: 1, Receivers: 1, Hypervisors: vms > 0, VMs: vms})
		senders, to := []string{"sender1"}, "receiver1"
		if vms > 0 {
			senders, to = []string{"sender1.vm1", "sender1.vm2"}, "receiver1.vm1"
		}
		r := &experiment.Run{Laws: []string{"static"}, Params: map[string]any{"static": static.Params{Rate: 250e6, Depth: 100_000}}}
		for _, from := range senders {
			r.Config.Items = append(r.Config.Items, experiment.Item{Pairs: []experiment.Pair{{Src: from, Dst: to}}})
		}
		if _, err := testWorks.Put(n, r); err != nil {
			t.Fatal(err)
		}
		const frames = 500
		for _, from := range senders {
			src, _ := n.Node(from)
			dst, _ := n.Node(to)
			for range frames {
				pk := n.NewPacket()
				pk.SetSrc(src)
				pk.SetDst(dst)
				pk.SetBytes(1514)
				n.Send(src, pk)
			}
			if got := n.NIC(src).BacklogPackets(); got < frames-2 { // 3125 bytes are in the bucket
				t.Errorf("%s: %d packets wait", from, got)
			}
		}
		n.Queue.Run(event.Second)
		if len(s.at) != frames*len(senders) {
			t.Fatalf("%d arrived", len(s.at))
		}
		// 500 frames less the depth at 250 Mbit/s, and two or three lines.
		rest := event.Time(frames*1514*8*4 - 100_000)
		if late := s.at[len(s.at)-1] - rest; late < 0 || late > 60_000 {
			t.Errorf("%d VMs: the last arrives %d ns after %d", vms, late, rest)
		}
	}
}

// BenchmarkMark is one decision at a port, with nothing and with a packet waiting.
func BenchmarkMark(b *testing.B) {
	for _, waiting := range []int{0, 1} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			l := newMark(native.MarkConfig{ThresholdBytes: 30_000}, false)
			g, err := experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 1, Receivers: 1}, experiment.Network{Rate: 1e9, Delay: 1000, Buffer: law.Limit{N: 125_000}})
			if err != nil {
				b.Fatal(err)
			}
			n, err := network.Build(event.NewQueue(), &experiment.Config{Graph: g}, network.Options{})
			if err != nil {
				b.Fatal(err)
			}
			p := n.PortByName("switch->receiver1")
			for range waiting {
				p.Send(packet(n, 1514, network.ECT0))
			}
			pk := packet(n, 1514, network.ECT0)
			for b.Loop() {
				l.Packet(p, pk, 0)
			}
		})
	}
}
