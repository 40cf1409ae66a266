//go:build cgo

package laws

import (
	"math"
	"slices"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/law/gcc"
	"weir/law/inventory"
	"weir/law/mark"
	"weir/sim/event"
	"weir/sim/network"
)

// flood is VMs that send UDP to receiver1 at the rate of their link, 100 Mbit/s, as far as their hosts let them.
type flood struct {
	t        *testing.T
	net      *network.Network
	set      *Set
	law      *controlled
	names    []string
	senders  map[string]*floodSender
	received map[network.NodeID]int64 // bytes, by the host that sent them
}

// floodSender sends a full frame each time it can.
type floodSender struct {
	f     *flood
	host  network.NodeID
	to    network.NodeID
	timer event.Event
	every event.Time
	forge func(pk *network.Packet) // changes a packet; nil: honest
}

const floodFrame = 1514

// Happen sends a frame.
func (s *floodSender) Happen(_ *event.Event, now event.Time) {
	pk := s.f.net.NewPacket()
	pk.SetEnds(s.host, s.to, uint16(s.host), 9)
	pk.SetProto(network.UDP)
	pk.SetPayload(floodFrame - 42)
	pk.SetBytes(floodFrame)
	pk.SetECN(network.ECT0)
	if s.forge != nil {
		s.forge(pk)
	}
	s.f.net.Send(s.host, pk)
	s.f.net.Queue.Set(&s.timer, now+s.every)
}

// Deliver implements network.Sink.
func (f *flood) Deliver(_ network.NodeID, pk *network.Packet, _ event.Time) {
	f.received[network.NodeID(pk.SrcPort())] += int64(pk.Bytes())
	f.net.Free(pk)
}

// newFlood makes the network. Parameters are those of experiments/sdn-gcc/gcc-transports.yaml.
func newFlood(t *testing.T, topology experiment.Topology, change func(*gcc.Config, *experiment.Run)) *flood {
	t.Helper()
	topology.Kind, topology.Receivers, topology.Hypervisors = "dumbbell", 1, true
	g, err := experiment.BuildGraph(topology, experiment.Network{Rate: 100e6, Delay: 1000, Buffer: law.Limit{N: 150_000}})
	if err != nil {
		t.Fatal(err)
	}
	p := gcc.Default()
	p.Gain, p.Timeout, p.MinRate, p.Increase, p.FastIncrease = 0.2, 6e6, 1e6, 32_500, 262_500
	r := &experiment.Run{Laws: []string{"gcc", "ecn"}, At: []string{"switch"}, Seed: 1}
	r.Config.Graph, r.Config.RTT = g, 200e3
	if change != nil {
		change(p, r)
	}
	r.Params = map[string]any{"gcc": *p, "ecn": mark.Params{Threshold: law.Limit{N: 30_000}, NotECT: mark.Pass}}
	f := &flood{t: t, senders: map[string]*floodSender{}, received: map[network.NodeID]int64{}}
	if f.net, err = network.Build(event.NewQueue(), &r.Config, network.Options{}); err != nil {
		t.Fatal(err)
	}
	f.net.Sink = f
	if f.set, err = testWorks.Put(f.net, r); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.set.Close)
	f.law = f.set.laws[0].Attached.(*controlled)
	to := ""
	for _, n := range g.Nodes {
		if n.Kind == experiment.Guest && n.Name[:4] == "rece" {
			to = n.Name
		}
	}
	for i, n := range g.Nodes {
		if n.Kind == experiment.Guest && n.Name[:4] == "send" {
			s := &floodSender{f: f, host: network.NodeID(i), every: floodFrame * 8 * 10}
			s.to, _ = f.net.Node(to)
			s.timer.Init(s)
			f.senders[n.Name], f.names = s, append(f.names, n.Name)
		}
	}
	slices.Sort(f.names)
	return f
}

// start has VMs send from now on; the first ones of all without a name.
func (f *flood) start(names ...string) {
	if len(names) == 0 {
		names = f.names
	}
	for i, n := range names {
		s := f.senders[n]
		f.net.Queue.Set(&s.timer, f.net.Queue.Now()+event.Time(1+i*1000))
	}
}

// run runs for a time, and returns the rate of each VM in Mbit/s, in the order of their names.
func (f *flood) run(d event.Time) []float64 {
	clear(f.received)
	f.net.Queue.Run(f.net.Queue.Now() + d)
	var out []float64
	for _, n := range f.names {
		out = append(out, float64(f.received[f.senders[n].host])*8e3/float64(d))
	}
	return out
}

// frames is what a line of 100 Mbit/s carries in frames without preamble and gap, which limiters count. An operator sets uplink.rate so.
const frames = 98e6

// guarantee gives VMs what a policy promises them.
func (f *flood) guarantee(of map[string]inventory.Guarantee) {
	for _, u := range f.law.uplinks {
		for i := range u.has.VMs {
			u.has.VMs[i].Guarantee = of[f.net.Name(hostOf(u.has.VMs[i].Addresses[0].Addr()))]
		}
		u.has.Rate = frames
		u.site.Event(u.has)
	}
}

// within5 checks rates within 5 %.
func (f *flood) within5(what string, got, want []float64) {
	f.t.Helper()
	for i := range got {
		if math.Abs(got[i]-want[i]) > 0.05*want[i] {
			f.t.Errorf("%s: %s has %.1f Mbit/s, want %.1f within 5 %%; all: %.1f", what, f.names[i], got[i], want[i], got)
		}
	}
}

// The weights 3 and 1 of VMs at one uplink, and a guarantee of 40 % of it, are kept within 5 %: in steady state, and from a second after
// a neighbour started.
func TestGCC_GuaranteesAtAnUplink(t *testing.T) {
	f := newFlood(t, experiment.Topology{Senders: 1, VMs: 4}, nil)
	one, three := f.names[0], f.names[1:]
	f.guarantee(map[string]inventory.Guarantee{one: {Rate: 40e6}})
	f.start(three...)
	f.run(event.Second)
	f.start(one)
	f.run(event.Second)
	f.within5("a second after the neighbour started", f.run(event.Second/5), []float64{40, 58.0 / 3, 58.0 / 3, 58.0 / 3})
	f.within5("steady", f.run(2*event.Second), []float64{40, 58.0 / 3, 58.0 / 3, 58.0 / 3})
	f.guarantee(map[string]inventory.Guarantee{one: {Weight: 3}})
	f.run(event.Second)
	f.within5("weights", f.run(2*event.Second), []float64{49, 49.0 / 3, 49.0 / 3, 49.0 / 3})
}

// Weights hold in the middle of the network, too, where VMs of four hosts meet: 3 to 1. The link is used.
func TestGCC_WeightsAcrossTheNetwork(t *testing.T) {
	f := newFlood(t, experiment.Topology{Senders: 4}, nil)
	f.guarantee(map[string]inventory.Guarantee{f.names[0]: {Weight: 3}})
	f.start()
	f.run(2 * event.Second)
	got := f.run(6 * event.Second)
	all := got[0] + got[1] + got[2] + got[3]
	f.within5("3:1", got, []float64{all / 2, all / 6, all / 6, all / 6})
	if all < 85 {
		t.Errorf("%.1f of 100 Mbit/s are used", all)
	}
}

// attack is what a VM does to its packets, and what a test reads of it.
type attack struct {
	name   string
	forge  func(f *flood, pk *network.Packet)
	every  event.Time // between its packets; 0: as the others
	counts func(*flood) uint64
	// without has the attack begin behind the hypervisor's defence.
	without func(f *flood, a *attack)
}

// pastHost forges packets of the first VM where its hypervisor does not see them.
type pastHost struct {
	f *flood
	a *attack
}

func (b *pastHost) Out(host network.NodeID, pk *network.Packet, _ event.Time) network.Verdict {
	if host == b.f.senders[b.f.names[0]].host {
		b.a.forge(b.f, pk)
	}
	return network.Pass
}

func (b *pastHost) In(network.NodeID, *network.Packet, event.Time) network.Verdict {
	return network.Pass
}

func forgeBehind(f *flood, a *attack) {
	f.net.SetGuards(append(f.net.Guards(), &pastHost{f, a})...)
}

// others is the rates of the other VMs while the first one attacks; nil: while it does not.
func (a *attack) others(t *testing.T, defended bool) (rates []float64, counted uint64) {
	t.Helper()
	f := newFlood(t, experiment.Topology{Senders: 4}, nil)
	s := f.senders[f.names[0]]
	switch {
	case a == nil:
	case !defended:
		a.without(f, a)
	case a.forge != nil:
		s.forge = func(pk *network.Packet) { a.forge(f, pk) }
	}
	if a != nil && a.every > 0 {
		s.every = a.every
	}
	f.start()
	f.run(3 * event.Second / 2)
	rates = f.run(3 * event.Second)[1:]
	if a != nil && a.counts != nil {
		counted = a.counts(f)
	}
	return rates, counted
}

// A VM that attacks takes no more than 5 % of another VM's rate, and what it does is counted. Without the defence it takes more than a
// tenth: a packet that comes with CE is not marked again, so marks of its own keep those of the port away.
func TestGCC_Attacks(t *testing.T) {
	honest, _ := (*attack)(nil).others(t, true)
	ecn := func(f *flood) uint64 { return f.law.hosts.Counts().ECNSet }
	for _, a := range []attack{
		{name: "it marks its own packets", forge: func(_ *flood, pk *network.Packet) { pk.SetECN(network.CE) }, counts: ecn, without: forgeBehind},
		{name: "it clears ECT", forge: func(_ *flood, pk *network.Packet) { pk.SetECN(network.NotECT) }, counts: ecn, without: forgeBehind},
		{
			name: "it sends from a neighbour's address", forge: func(f *flood, pk *network.Packet) { pk.SetSrc(f.senders[f.names[1]].host) },
			counts: func(f *flood) uint64 { return f.law.hosts.Counts().Spoofed }, without: forgeBehind,
		},
		{name: "it sends ten times its link", every: floodFrame * 8, counts: func(f *flood) uint64 {
			return uint64(f.law.hosts.vms[f.senders[f.names[0]].host].port.Counters().Tail.Packets) // above its rate
		}, without: func(f *flood, _ *attack) {
			f.law.sites[vmOf(f.senders[f.names[0]].host)] = f.law.sites[vmOf(f.senders[f.names[1]].host)] // it gets no marks
		}},
	} {
		t.Run(a.name, func(t *testing.T) {
			lost := func(rates []float64) (part float64) {
				for i := range rates {
					part = max(part, 1-rates[i]/honest[i])
				}
				return part
			}
			got, counted := a.others(t, true)
			t.Logf("others have %.1f Mbit/s, and %.1f without the attack; %d packets counted", got, honest, counted)
			if lost(got) > 0.05 {
				t.Error("a VM lost more than 5 % of its rate")
			}
			if counted < 1000 {
				t.Errorf("%d packets counted", counted)
			}
			got, _ = a.others(t, false)
			t.Logf("without the defence: %.1f", got)
			if lost(got) < 0.1 {
				t.Error("without the defence the attack is harmless")
			}
		})
	}
}

// Messages that are lost and late: shares stay fair and steady. With messages 100 ms late, 20 times the interval,
// the law's times must be 20 times as long, or it must know the delay: without either rates swing. Messages that come sooner than it says
// do no harm.
func TestGCC_Messages(t *testing.T) {
	late := experiment.Control{Delay: 100e6, Jitter: 20e6, Loss: 0.1}
	for _, row := range []struct {
		name    string
		control experiment.Control
		slower  law.Duration
		delay   law.Duration
		vms     int
		gain    float64
		steady  bool
	}{
		{"lost", experiment.Control{Delay: 100e3, Jitter: 5e6, Loss: 0.1}, 1, 0, 4, 0.2, true},
		{"late, a slower law", late, 20, 0, 4, 0.2, true},
		{"late", late, 1, 0, 4, 0.2, false},
		{"late, and the law knows", late, 1, 100e6, 4, 0.2, true},
		{"not as late as it thinks", experiment.Control{Delay: 20e6, Jitter: 5e6, Loss: 0.1}, 1, 100e6, 4, 0.2, true},
		{"late, two VMs, the largest gain", late, 1, 100e6, 2, 0.4, true},
		{"late, two VMs, a fifth of it", late, 1, 0, 2, 0.02, false}, // 21 messages are a step of 0.42
		{"late, eight VMs, a fifth of it", late, 1, 0, 8, 0.05, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := newFlood(t, experiment.Topology{Senders: row.vms}, func(p *gcc.Config, r *experiment.Run) {
				r.Config.Control = &row.control
				p.Delay, p.Gain = row.delay, row.gain
				p.Interval, p.Timeout, p.FastAfter = p.Interval*row.slower, p.Timeout*row.slower, p.FastAfter*row.slower
				p.Increase, p.FastIncrease = p.Increase/law.Rate(row.slower), p.FastIncrease/law.Rate(row.slower)
			})
			f.start()
			f.run(4 * event.Second)
			jain, sd := f.steady(12)
			t.Logf("Jain's index %.3f, largest SD %.1f %%", jain, 100*sd)
			if row.steady != (jain >= 0.9 && sd <= 0.15) {
				t.Errorf("Jain's index is %.2f, a rate has an SD of %.0f %%: steady %v, want %v", jain, 100*sd, !row.steady, row.steady)
			}
		})
	}
}

// steady returns Jain's index of the mean rates over some seconds, and the largest SD of a rate, of means over a second, as a part of
// its mean.
func (f *flood) steady(seconds int) (jain, sd float64) {
	sum, squares := make([]float64, len(f.names)), make([]float64, len(f.names))
	for range seconds {
		for i, r := range f.run(event.Second) {
			sum[i] += r
			squares[i] += r * r
		}
	}
	all, square := 0.0, 0.0
	for i := range sum {
		mean := sum[i] / float64(seconds)
		sd = max(sd, math.Sqrt(max(0, squares[i]/float64(seconds)-mean*mean))/mean)
		all, square = all+mean, square+mean*mean
	}
	return all * all / (float64(len(sum)) * square), sd
}
