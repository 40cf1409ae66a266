//go:build cgo

package laws

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/experiment"
	"weir/law"
	"weir/law/fabric"
	"weir/sim/event"
	"weir/sim/network"
)

// listener is a law that notes the copies that it gets.
type listener struct {
	net *network.Network
	got []string
}

func (l *listener) Wake() time.Duration { return 0 }

func (l *listener) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	in, ok := e.(*fabric.PacketIn)
	if !ok {
		return out
	}
	t, flags, ok := fabric.ReadSegment(in.Frame)
	l.got = append(l.got, fmt.Sprintf("%v at %s of switch %d: %v.%d > %v.%d flags %#x %v", in.Kind, l.net.Ports[in.At.N].Name, in.At.Switch, t.Src, t.SrcPort, t.Dst, t.DstPort, flags, ok))
	return out
}

// A switch copies SYN, FIN and RST segments where they enter the fabric, once: with and without hypervisors, on one switch and across
// two. Other segments are not copied, nor those of hosts at switches without the law.
func TestCopies(t *testing.T) {
	for _, hypervisors := range []bool{false, true} {
		topology := experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 2, Hypervisors: hypervisors}
		g, err := experiment.BuildGraph(topology, experiment.Network{Rate: 1e9, Delay: 1000, Buffer: law.Limit{N: 125_000}})
		if err != nil {
			t.Fatal(err)
		}
		l := &listener{}
		spec := law.Spec{
			Params: func() any { return new(int) }, Signals: []law.Signal{law.Copies},
			New: func(law.Site, any, *law.Topology) (law.Law, error) { return l, nil },
		}
		r := &experiment.Run{Laws: []string{"listener"}, At: []string{"left"}, Params: map[string]any{"listener": 0}}
		r.Config.Graph, r.Config.RTT = g, 200e3
		if l.net, err = network.Build(event.NewQueue(), &r.Config, network.Options{}); err != nil {
			t.Fatal(err)
		}
		set, err := Laws{"listener": Controlled(spec)}.Put(l.net, r)
		if err != nil {
			t.Fatal(err)
		}
		b := &bed{t: t, net: l.net, laws: set}
		l.net.Sink = b
		k := b.talk(0, "sender1", "receiver1")
		says := func(side int, flags uint16) {
			pk := k.segment(side, flags, 0, 100)
			pk.SetSrcPort(1000 + uint16(side))
			pk.SetDstPort(1001 - uint16(side))
			k.send(pk)
			b.wait(event.Millisecond)
		}
		for _, flags := range []uint16{network.SYN, network.ACK, network.FIN | network.ACK, network.RST | network.FIN} {
			says(0, flags)
		}
		says(1, network.SYN|network.ACK) // enters at the switch without the law
		from, to := fabric.IPv4(HostAddress(k.from).As4()), fabric.IPv4(HostAddress(k.to).As4())
		var want []string
		for _, c := range []string{"syn 0x2", "fin 0x11", "rst 0x5"} {
			var kind, flags string
			if _, err := fmt.Sscan(c, &kind, &flags); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("%s at %s of switch 1: %v.1000 > %v.1001 flags %s true", kind, l.net.AccessPort(k.from).Name, from, to, flags))
		}
		if !slices.Equal(l.got, want) {
			t.Errorf("hypervisors %v: %q, want %q", hypervisors, l.got, want)
		}
		set.Close()
	}
}
