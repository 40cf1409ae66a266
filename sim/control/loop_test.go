package control

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/experiment"
	"weir/law"
	"weir/law/lawtest"
	"weir/sim/event"
	"weir/sim/network"
)

// congested reports the backlog of the bottleneck.
type congested struct {
	Port    law.Port
	Backlog int64
}

func (congested) LawEvent() {}

// fixedTable is a controller law. When the bottleneck is congested, every VM gets its rate from a fixed table, and
// small packets wait at the port. Rates are granted again as long as reports arrive, because a grant may be lost.
type fixedTable struct {
	rates []uint64      // by VM - 1, bit/s
	every time.Duration // between grants
	lease time.Duration // of a rate
	pause time.Duration // for which small packets wait
	heard bool          // since the last grants
	next  time.Duration // 0: nothing is granted
}

func (l *fixedTable) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	switch e := e.(type) {
	case congested:
		l.heard = true
		if l.next != 0 {
			return out
		}
		out = append(out, law.Grant{Kind: law.PauseGrant, Lease: l.pause, Cause: uint64(e.Backlog)})
	case law.Tick:
		if !l.heard {
			l.next = 0
			return out
		}
		l.heard = false
	default:
		return out
	}
	l.next = now + l.every
	for i, rate := range l.rates {
		out = append(out, law.Grant{Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: law.VM(i + 1)}}, Value: rate, Lease: l.lease})
	}
	return out
}

func (l *fixedTable) Wake() time.Duration { return l.next }

// bottleneck is the law at the port. It reports a long queue at intervals, and delays small packets while an action
// asks for it.
type bottleneck struct {
	net              *network.Network
	site, controller *Site
	limit            int64
	every            event.Time
	reported         event.Time
	until            event.Time // small packets are delayed
	resume           event.Event
	held             []*network.Packet
	most             int
}

func (b *bottleneck) Packet(p *network.Port, pk *network.Packet, now event.Time) network.Verdict {
	if backlog := p.Backlog(); backlog >= b.limit && now >= b.reported+b.every {
		b.reported = now
		b.site.Report(b.controller, 64, uint64(p.ID)+1, congested{law.Port{Switch: 1, N: uint32(p.ID)}, backlog})
	}
	if pk.Bytes() > 100 || now >= b.until && len(b.held) == 0 {
		return network.Pass
	}
	b.held = append(b.held, pk)
	b.most = max(b.most, len(b.held))
	return network.Take
}

func (b *bottleneck) Enforce(now event.Time, a law.Action) error {
	g, ok := a.(law.Grant)
	if !ok || g.Kind != law.PauseGrant {
		return fmt.Errorf("%T of kind %d at a port", a, g.Kind)
	}
	b.until = now + event.Time(g.Lease)
	b.net.Queue.Set(&b.resume, b.until)
	return nil
}

// Happen is the end of the lease: delayed packets continue in their order.
func (b *bottleneck) Happen(*event.Event, event.Time) {
	for len(b.held) > 0 {
		first := b.held[0]
		b.held = b.held[1:]
		b.net.Return(first)
	}
}

// vm is a host's site. It sends at the granted rate until the lease ends.
type vm struct {
	port  *network.Port
	q     *event.Queue
	lease event.Event
	log   []law.Rate
}

func (v *vm) Enforce(now event.Time, a law.Action) error {
	g, ok := a.(law.Grant)
	if !ok || g.Kind != law.RateGrant {
		return fmt.Errorf("%T of kind %d at a host", a, g.Kind)
	}
	v.q.Set(&v.lease, now+event.Time(g.Lease))
	v.log = append(v.log, law.Rate(g.Value))
	return v.port.SetRate(law.Rate(g.Value), 3000)
}

// Happen is the end of the lease.
func (v *vm) Happen(*event.Event, event.Time) {
	v.log = append(v.log, 0)
	if err := v.port.SetRate(0, 0); err != nil {
		panic(err)
	}
}

// source sends full frames as fast as its port accepts them, and a small packet with each, up to the time until.
type source struct {
	ev       event.Event
	net      *network.Network
	from, to network.NodeID
	until    event.Time
	n        uint64
}

func (s *source) Happen(_ *event.Event, now event.Time) {
	if now >= s.until {
		return
	}
	if s.net.NIC(s.from).Backlog() < 20_000 {
		for _, bytes := range []int32{1514, 60} {
			pk := s.net.NewPacket()
			pk.SetSrc(s.from)
			pk.SetDst(s.to)
			pk.SetBytes(bytes)
			pk.SetProto(network.UDP)
			pk.SetTag(s.n)
			s.n++
			s.net.Send(s.from, pk)
		}
	}
	s.net.Queue.Set(&s.ev, now+5*event.Microsecond)
}

// counting is the receiver.
type counting struct {
	net  *network.Network
	last map[[2]uint64]uint64 // by host and size: the number of the last packet
	text []byte               // of all arrivals
	t    *testing.T
}

func (c *counting) Deliver(_ network.NodeID, pk *network.Packet, now event.Time) {
	k := [2]uint64{uint64(pk.Src()), uint64(pk.Bytes())}
	if last, any := c.last[k]; any && last >= pk.Tag() {
		c.t.Fatalf("packet %d of host %d came behind %d", pk.Tag(), pk.Src(), last)
	}
	c.last[k] = pk.Tag()
	c.text = fmt.Appendf(c.text, "%d %d %d\n", now, pk.Src(), pk.Tag())
	c.net.Free(pk)
}

// A law at a port reports and delays packets. A law at the controller answers from a fixed table, and the hosts follow
// the rates, in hypervisors and in their own ports. The messenger delays and reorders messages, and loses a tenth.
// Afterwards all packets are back in the pool, no packet is lost, and the same seed gives the same run.
func TestLoop(t *testing.T) {
	for _, hypervisors := range []bool{false, true} {
		var first []byte
		for range 2 {
			text := loop(t, hypervisors)
			if first == nil {
				first = text
			}
			if !slices.Equal(first, text) {
				t.Error("two runs of one seed differ")
			}
		}
	}
}

func loop(t *testing.T, hypervisors bool) []byte {
	g, err := experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1, Hypervisors: hypervisors},
		experiment.Network{Rate: 1e9, Delay: 10_000, Buffer: law.Limit{N: 250_000}})
	if err != nil {
		t.Fatal(err)
	}
	q := event.NewQueue()
	n, err := network.Build(q, &experiment.Config{Graph: g}, network.Options{FrameOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(q, Options{Seed: 3, Delay: 50_000, Jitter: 30_000, Loss: 0.1, Rate: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	to, _ := n.Node("receiver1")
	bed := newLoop(t, n, m, &counting{net: n, last: map[[2]uint64]uint64{}, t: t}, to)
	q.Run(event.Millisecond)
	port, law := bed.port, bed.law
	if c := port.Counters(); law.most == 0 || c.Taken.Packets == 0 || c.Taken.Packets != int64(len(law.held)) {
		t.Errorf("hypervisors %v: the port delayed %d at most, and %+v", hypervisors, law.most, c)
	}
	sent := []int64{bed.vms[0].port.Counters().Sent.Bytes, bed.vms[1].port.Counters().Sent.Bytes}
	q.Run(4 * event.Millisecond)
	for i, want := range []int64{300e6 * 3 / 8000, 500e6 * 3 / 8000} {
		v := bed.vms[i]
		got := v.port.Counters().Sent.Bytes - sent[i]
		if max(got-want, want-got) > 3000+1514 { // what the bucket holds, and a frame
			t.Errorf("hypervisors %v: %d bytes of VM %d in 3 ms, want %d", hypervisors, got, i+1, want)
		}
	}
	q.Run(event.Second)
	for i, v := range bed.vms {
		if rate, _ := v.port.Limit(); rate != 0 || v.log[len(v.log)-1] != 0 || len(v.log) < 3 {
			t.Errorf("hypervisors %v: VM %d is left at %v, grants %v", hypervisors, i+1, rate, v.log)
		}
	}
	for _, p := range n.Ports {
		c := p.Counters()
		if in := c.Sent.Packets + c.Tail.Packets + c.Law.Packets + c.Down.Packets + c.Queued.Packets + c.Taken.Packets; in != c.In.Packets || c.Taken.Packets != 0 {
			t.Errorf("%s: %+v", p.Name, c)
		}
	}
	if n.Borrowed() != 0 || m.Err() != nil || m.Counts().Lost == 0 || m.Counts().OnTheWay != 0 {
		t.Errorf("%d packets are lost, %v, %+v", n.Borrowed(), m.Err(), m.Counts())
	}
	return bed.sink.text
}

// bed is the network that TestLoop builds, and what it checks.
type bed struct {
	port *network.Port
	law  *bottleneck
	vms  []*vm
	sink *counting
}

func newLoop(t *testing.T, n *network.Network, m *Messenger, sink *counting, to network.NodeID) *bed {
	b := &bed{port: n.NIC(to).Reverse(), sink: sink}
	n.Sink = sink
	b.law = &bottleneck{net: n, limit: 60_000, every: 200 * event.Microsecond, reported: -event.Second}
	b.law.resume.Init(b.law)
	b.port.SetLaws(b.law)
	b.law.site = add(t, m, SiteOptions{Name: "switch", Enforcer: b.law})
	hosts := make([]*Site, 2)
	newLaw := func() law.Law {
		return &fixedTable{rates: []uint64{300e6, 500e6}, every: 500 * time.Microsecond, lease: 4 * time.Millisecond, pause: time.Millisecond}
	}
	b.law.controller = add(t, m, SiteOptions{
		Name: "controller", Law: lawtest.Checked(t, newLaw(), newLaw()), Service: 5000, Inbox: 16,
		Route: func(a law.Action, to []*Site) []*Site {
			switch g := a.(law.Grant); g.Kind {
			case law.RateGrant:
				return append(to, hosts[g.Key.VM-1])
			case law.PauseGrant:
				return append(to, b.law.site)
			}
			return to
		},
	})
	for i := range hosts {
		from, ok := n.Node(fmt.Sprintf("sender%d", i+1))
		if !ok {
			t.Fatal("no such host")
		}
		v := &vm{port: n.HostPort(from), q: n.Queue}
		v.lease.Init(v)
		if err := v.port.SetRate(0, 0); err != nil {
			t.Fatal(err)
		}
		b.vms = append(b.vms, v)
		hosts[i] = add(t, m, SiteOptions{Name: n.Name(from), Enforcer: v})
		s := &source{net: n, from: from, to: to, until: 20 * event.Millisecond}
		s.ev.Init(s)
		n.Queue.Set(&s.ev, 0)
	}
	return b
}
