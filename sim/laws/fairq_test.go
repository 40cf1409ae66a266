//go:build cgo

package laws

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"weir/datapath/fairq/model"
	"weir/experiment"
	"weir/law"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
)

// bed is a network with FairQ at its switches: 1 Gbit/s, buffers of 125 KB, an RTT of 200 us. A port's target is 25 KB,
// and a flow gets 50 KB at most.
type bed struct {
	t    testing.TB
	net  *network.Network
	laws *Set
	last network.Packet // the packet that arrived last
}

// tally returns the counts of the only law.
func (b *bed) tally() law.Tally { return b.laws.Tallies()[0] }

// Deliver implements network.Sink.
func (b *bed) Deliver(_ network.NodeID, pk *network.Packet, _ event.Time) {
	b.last = *pk
	b.net.Free(pk)
	b.net.Queue.Halt()
}

// fairQDefaults returns the law's parameters for these tests: no update of windows within the first 10 ms, and count:
// active. TestFairQ_CountsOpenHandshakes checks what the default counts in addition.
func fairQDefaults() fairq.Params {
	p := *fairq.Default()
	p.Start = "target" // windows below are shares of it
	p.Interval = law.Duration(event.Millisecond)
	p.Count = "active"
	return p
}

func newBed(t testing.TB, receivers int, params fairq.Params) *bed {
	t.Helper()
	return newBedOn(t, experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: receivers}, params, "switch", "left", "right")
}

// newBedOn builds a bed on another topology, with FairQ at these switches.
func newBedOn(t testing.TB, topology experiment.Topology, params fairq.Params, at ...string) *bed {
	t.Helper()
	return newBedOf(t, topology, fairq.Name, params, at...)
}

func (b *bed) port(name string) *fairQPort {
	b.t.Helper()
	q := fairQOf(b.net.PortByName(name))
	if q == nil {
		b.t.Fatalf("%s has no FairQ", name)
	}
	return q
}

// wait advances the clock by d.
func (b *bed) wait(d event.Time) {
	for end := b.net.Queue.Now() + d; b.net.Queue.Now() < end; {
		b.net.Queue.Run(end)
	}
}

// talk is a connection whose segments the test sends. Windows are in units of 128 bytes if scale is 7.
type talk struct {
	b        *bed
	conn     int32
	from, to network.NodeID
	scale    [2]int8
	hash     [2]uint32 // of what each side sends
	port     uint16    // of side 0
}

func (b *bed) talk(conn int32, from, to string) *talk {
	k := &talk{b: b, conn: conn, scale: [2]int8{7, 7}}
	k.from, _ = b.net.Node(from)
	k.to, _ = b.net.Node(to)
	return k
}

// segment builds a segment. Side 0 dialled. Sequence numbers begin at 1000 and 2000.
func (k *talk) segment(side int, flags uint16, payload int32, window uint16) *network.Packet {
	pk := k.b.net.NewPacket()
	pk.SetSrc(k.from)
	pk.SetDst(k.to)
	pk.SetToAcceptor(side == 0)
	pk.SetSeq(1001)
	pk.SetAck(2001)
	pk.SetSrcPort(k.port)
	if side == 1 {
		pk.SetSrcPort(0)
		pk.SetDstPort(k.port)
		pk.SetSrc(k.to)
		pk.SetDst(k.from)
		pk.SetSeq(2001)
		pk.SetAck(1001)
	}
	if flags&network.SYN != 0 {
		pk.SetSeq(pk.Seq() - 1)
		pk.SetMSS(1460)
		pk.SetScale(k.scale[side])
	}
	pk.SetHash(k.hash[side])
	pk.SetConn(k.conn)
	pk.SetProto(network.TCP)
	pk.SetFlags(flags)
	pk.SetPayload(payload)
	pk.SetWindow(window)
	pk.SetBytes(network.HeaderBytes + payload)
	return pk
}

// says sends a segment and returns it as it arrives.
func (k *talk) says(side int, flags uint16, payload int32, window uint16) *network.Packet {
	k.b.t.Helper()
	return k.send(k.segment(side, flags, payload, window))
}

// nothing returns a packet of no connection. It stands for a segment that did not arrive.
func nothing() (pk network.Packet) {
	pk.SetConn(-1)
	return pk
}

func (k *talk) send(pk *network.Packet) *network.Packet {
	k.b.t.Helper()
	k.b.last = nothing()
	k.b.net.Send(pk.Src(), pk)
	k.b.net.Queue.Run(k.b.net.Queue.Now() + event.Second)
	if k.b.last.Conn() != k.conn {
		k.b.t.Fatal("a segment did not arrive")
	}
	arrived := k.b.last
	return &arrived
}

// window sends a pure ACK with a large window, and returns the window as it arrives.
func (k *talk) window(side int) uint16 {
	k.b.t.Helper()
	return k.says(side, network.ACK, 0, 60_000).Window()
}

// opens does the handshake, and returns the window of the SYN-ACK and of the ACK after it.
func (k *talk) opens() (synACK, ack uint16) {
	k.b.t.Helper()
	if w := k.says(0, network.SYN, 0, 65_535).Window(); w != 65_535 {
		k.b.t.Errorf("a SYN's window became %d", w)
	}
	synACK = k.says(1, network.SYN|network.ACK, 0, 65_535).Window()
	return synACK, k.window(0)
}

func (b *bed) expect(what string, got, want uint16) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: a window field of %d, want %d", what, got, want)
	}
}

// By hand: the windows of a port's flows add up to 25 KB, and the field is rounded up to 128 bytes. A SYN-ACK's field
// is not scaled. No flow gets less than its MSS and a byte.
func TestFairQ_LimitsAcksToTheWindowOfTheirDatasPort(t *testing.T) {
	b := newBed(t, 1, fairQDefaults())
	one := b.talk(0, "sender1", "receiver1")
	synACK, ack := one.opens()
	b.expect("SYN-ACK where nothing is granted", synACK, 65_535)
	b.expect("first ACK: 25000 of the reverse port", ack, 196)
	b.expect("one flow: 25000", one.window(1), 196)
	for _, w := range []uint16{195, 1, 0} {
		b.expect("already smaller", one.says(1, network.ACK, 0, w).Window(), w)
	}
	b.expect("with data", one.says(1, network.ACK|network.PSH, 100, 60_000).Window(), 196)
	two := b.talk(1, "sender2", "receiver1")
	synACK, ack = two.opens()
	b.expect("SYN-ACK next to one flow: 25000", synACK, 25_000)
	b.expect("the only flow to sender2: 25000", ack, 196)
	b.expect("two flows: 12500", one.window(1), 98)
	b.expect("two flows: 12500", two.window(1), 98)
	for i := range int32(18) {
		b.talk(2+i, "sender2", "receiver1").opens()
	}
	b.expect("20 flows: 1461 and not 1250", one.window(1), 12)
	small := b.talk(20, "sender1", "receiver1")
	small.scale = [2]int8{0, 0}
	small.opens()
	b.expect("21 flows, not scaled", small.window(1), 1461)
	half := b.talk(21, "sender1", "receiver1")
	half.scale[1] = -1
	half.opens()
	b.expect("22 flows, only the opener offers a scale", half.window(1), 1461)
	if got := b.port("switch->receiver1").state.Law.Flows; got != 22 {
		t.Errorf("%d flows", got)
	}
	if c := b.tally(); c[fairq.Opened] != 22 || c[fairq.Refused] > 0 || c[fairq.Unknown] > 0 || c[fairq.Rewritten] == 0 || c[fairq.Rewritten] >= c[fairq.Acks] {
		t.Errorf("%+v", c)
	}
}

// An ACK that passes two switches has the smaller of their windows, in either order.
func TestFairQ_LeastOfSeveral(t *testing.T) {
	b := newBed(t, 2, fairQDefaults())
	one := b.talk(0, "sender1", "receiver1")
	one.opens()
	for i := range int32(3) {
		b.talk(1+i, "sender2", "receiver2").opens()
	}
	b.expect("4 flows from left to right, 1 to receiver1: 6250", one.window(1), 49)
	b.expect("4 from right to left, 1 to sender1: 6250", one.window(0), 49)
	want := []law.Value{{Metric: fairq.Flows, Value: 1}, {Metric: fairq.Window, Value: 25_000}, {Metric: fairq.Grant, Value: 25_000}}
	if got := b.laws.Sample(b.net.PortByName("right->receiver1"), nil); !slices.Equal(got, want) {
		t.Errorf("right->receiver1: %+v", got)
	}
}

// count: active. A direction counts while it sent data recently. A port without flows limits nothing and has no timer,
// and begins anew.
func TestFairQ_CountsWhoSentLately(t *testing.T) {
	b := newBed(t, 1, fairQDefaults())
	one, two := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender2", "receiver1")
	one.opens()
	two.opens()
	q := b.port("switch->receiver1")
	for range 7 {
		b.wait(3 * event.Millisecond)
		one.says(0, network.ACK, 1000, 60_000)
	}
	b.expect("the other is silent for 21 ms", one.window(1), uint16((q.state.GrantQ8>>8+127)>>7))
	if q.state.Law.Flows != 1 {
		t.Errorf("%d flows", q.state.Law.Flows)
	}
	b.wait(20 * event.Millisecond)
	b.expect("nobody sends", one.window(1), 60_000)
	if q.state.Running != 0 || q.timer.Pending() || q.state.Law.Flows != 0 {
		t.Errorf("without flows: timer %v, %d flows", q.timer.Pending(), q.state.Law.Flows)
	}
	two.says(0, network.ACK, 1000, 60_000)
	b.expect("one begins anew: 25000", two.window(1), 196)
	b.expect("an end that sends nothing is limited to it too", one.window(1), 196)
	two.says(0, network.ACK|network.FIN, 0, 60_000)
	b.wait(2 * event.Millisecond)
	b.expect("its FIN ends it", two.window(1), 60_000)
	two.says(0, network.ACK, 1000, 60_000)
	b.expect("data that is sent again counts again", two.window(1), 196)
	two.says(1, network.RST|network.ACK, 0, 0)
	b.wait(5 * event.Millisecond)
	if q.state.Law.Flows != 0 {
		t.Errorf("%d flows behind a reset", q.state.Law.Flows)
	}
}

// count: handshake. The count is SYN-ACKs less FINs, each once (FQ-9), and 0 after a second without data.
func TestFairQ_CountsHandshakes(t *testing.T) {
	p := fairQDefaults()
	p.Count = "handshake"
	b := newBed(t, 1, p)
	q := b.port("switch->receiver1")
	flows := func(what string, want uint32) {
		t.Helper()
		if got := q.state.Law.Flows; got != want {
			t.Errorf("%s: %d flows, want %d", what, got, want)
		}
	}
	one, two := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender2", "receiver1")
	one.says(0, network.SYN, 0, 65_535)
	flows("a SYN", 0)
	b.expect("the SYN-ACK counts: 25000", one.says(1, network.SYN|network.ACK, 0, 65_535).Window(), 25_000)
	b.expect("sent again", one.says(1, network.SYN|network.ACK, 0, 65_535).Window(), 25_000)
	flows("a SYN-ACK twice", 1)
	two.opens()
	b.wait(100 * event.Millisecond)
	flows("both are silent", 2)
	for range 2 {
		two.says(0, network.ACK|network.FIN, 0, 60_000)
		flows("a FIN", 1)
	}
	one.says(0, network.ACK, 1000, 60_000)
	b.wait(900 * event.Millisecond)
	flows("silent for 0.9 s", 1)
	b.wait(200 * event.Millisecond)
	flows("silent for over a second", 0)
	one.says(0, network.ACK, 1000, 60_000)
	flows("it sends again", 1)
	one.says(0, network.ACK|network.RST, 0, 0)
	flows("a reset", 0)
}

// count: opening. By hand: a port's flows have 25 KB together. A SYN-ACK is limited to what would be left of it if
// every open handshake, its own too, became a flow. Senders are limited to the share of those who send.
func TestFairQ_CountsOpenHandshakes(t *testing.T) {
	p := fairQDefaults()
	p.Count = "opening"
	b := newBed(t, 1, p)
	q := b.port("switch->receiver1")
	half := func(conn int32) *talk {
		k := b.talk(conn, "sender2", "receiver1")
		k.says(0, network.SYN, 0, 65_535)
		return k
	}
	answer := func(what string, k *talk, want uint16) {
		t.Helper()
		b.expect(what, k.says(1, network.SYN|network.ACK, 0, 65_535).Window(), want)
	}
	one, two := half(0), half(1)
	answer("the first, to an idle port: 25000", one, 25_000)
	answer("sent again", one, 25_000)
	answer("beside it: 12500", two, 12_500)
	if q.state.Law.Flows != 0 || q.state.GrantQ8 != 0 {
		t.Errorf("before a handshake is over: %d flows, granted %d", q.state.Law.Flows, q.state.GrantQ8)
	}
	one.window(0)
	b.expect("one is a flow, and the other not yet: 25000", one.window(1), 196)
	answer("sent again next to a flow", two, 12_500)
	for i := range int32(1000) { // a flood of SYNs in 8 ms
		half(2+i).says(1, network.SYN|network.ACK, 0, 65_535)
		if i%125 == 0 {
			one.says(0, network.ACK, 1000, 60_000)
		}
	}
	b.expect("half-open connections do not change a flow's window", one.window(1), 196)
	answer("a new flow begins with a segment", half(2000), 1461)
	two.window(0)
	b.expect("and has its share as soon as it sends: 12500", two.window(1), 98)
	b.wait(20 * event.Millisecond)
	one.says(0, network.ACK, 1000, 60_000)
	answer("they count no longer than silent flows do: 12500", half(2001), 12_500)
	one.says(1, network.RST|network.ACK, 0, 0)
	b.wait(2 * event.Millisecond) // the law learns of it with its next sample
	third := half(2002)
	answer("next to another that is open", third, 12_500)
	third.says(0, network.RST, 0, 0)
	answer("that was reset", half(2003), 12_500)
	b.wait(20 * event.Millisecond)
	for i := range int32(3) { // their SYNs took another path, and so will the data
		b.talk(3000+i, "receiver1", "sender1").says(1, network.SYN|network.ACK, 0, 65_535)
	}
	answer("alone: 25000", half(2004), 25_000)
	for _, n := range append(q.state.Opening[:], q.state.Wheel[:]...) {
		if n > 1000 {
			t.Fatalf("a count fell below 0: opening %v, sending %v", q.state.Opening, q.state.Wheel)
		}
	}
}

// The port grants what Algorithm 1 in floating point grants for the same samples. Its timer rests, and packets sample
// in its place. Flows come and go, and the queue swings between empty and full. Both gains are checked, and
// FairSwitch's form.
func TestFairQ_GrantsWhatAlgorithm1Does(t *testing.T) {
	for _, c := range []struct {
		gain     string
		hardware bool
	}{{gain: "paper"}, {gain: "code"}, {gain: "paper", hardware: true}} {
		gain := c.gain
		p := fairQDefaults()
		p.Interval, p.Gain, p.FairSwitch = 50e3, gain, c.hardware
		b := newBed(t, 1, p)
		q := b.port("switch->receiver1")
		one, two := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender2", "receiver1")
		one.opens()
		begun := q.state.Law.LastSampleNs
		model := model.New(model.Config{
			TargetBytes: 25_000, BufferBytes: 125_000, TickNs: 50_000, PeriodNs: 500_000, CapBytes: 50_000, OVSGain: gain == "code",
			FairSwitch: c.hardware,
		}, int64(begun))
		model.FlowAdded(int64(begun))
		two.opens()
		model.FlowAdded(int64(b.net.Queue.Now()))
		follow := follower{q: q, model: model}
		r := rand.New(rand.NewPCG(1, 2))
		const step = 2 * event.Microsecond
		var share [2]float64 // of steps in which one sends
		for i := range 200_000 {
			if i%2500 == 0 { // 5 ms
				share = [2]float64{0.02 + 0.1*r.Float64(), 0.02 + 0.1*r.Float64()}
				if i/10_000%2 == 1 {
					share[1] = 0 // for 20 ms
				}
			}
			for k, from := range []*talk{one, two} {
				if r.Float64() < share[k] {
					b.net.Send(from.from, from.segment(0, network.ACK, 1460, 60_000))
				}
			}
			b.wait(step)
			if err := follow.look(); err != "" {
				t.Fatalf("gain %s, %d us: %s", gain, b.net.Queue.Now()/1000, err)
			}
		}
		t.Logf("gain %s: %d samples, up to %d bytes, %d changes of the count, off by %.4f/256 byte at most", gain, q.samples, follow.longest, follow.changes, follow.worst*256)
		if q.samples < 3000 || follow.longest < 50_000 || follow.changes < 5 {
			t.Errorf("gain %s: the test shows little", gain)
		}
	}
}

// follower gives Algorithm 1 the samples that the port got.
type follower struct {
	q       *fairQPort
	model   *model.Queue
	samples uint64
	longest int64
	changes int
	worst   float64
}

func (f *follower) look() string {
	// In one step a flow may begin after a sample. With FairSwitch the order of the two makes a difference.
	if s := f.q.state.Law; f.model.FairSwitch && s.ElapsedNs == 0 && s.UnderByteNs|s.OverByteNs == 0 {
		f.sample()
		f.count()
	} else {
		f.count()
		f.sample()
	}
	off := math.Abs(float64(f.q.state.GrantQ8)/256 - f.model.Window())
	if f.worst = max(f.worst, off); off > 2.0/256 {
		return fmt.Sprintf("the grant is %.4f, Algorithm 1 has %.4f: more than rounding", float64(f.q.state.GrantQ8)/256, f.model.Window())
	}
	return ""
}

func (f *follower) count() {
	for ; f.model.Beta < float64(f.q.state.Law.Flows); f.changes++ {
		f.model.FlowAdded(int64(f.q.sw.queue.Now()))
	}
	for ; f.model.Beta > float64(f.q.state.Law.Flows); f.changes++ {
		f.model.FlowRemoved()
	}
}

func (f *follower) sample() {
	if f.q.samples == f.samples {
		return
	}
	f.samples = f.q.samples
	f.longest = max(f.longest, int64(f.q.state.Backlog))
	f.model.Sample(int64(f.q.state.Law.LastSampleNs), float64(int64(f.q.state.Backlog)))
}

// BenchmarkFairQ measures what FairQ adds to a hop of data and to one of its ACKs, and the cost of a sample.
func BenchmarkFairQ(b *testing.B) {
	bd := newBed(b, 1, fairQDefaults())
	k := bd.talk(0, "sender1", "receiver1")
	k.opens()
	data, ack := k.segment(0, network.ACK, 1460, 60_000), k.segment(1, network.ACK, 0, 60_000)
	there, back := bd.port("switch->receiver1"), bd.port("switch->sender1")
	now := bd.net.Queue.Now()
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"data", func() { there.Packet(there.port, data, now) }},
		{"ack", func() { ack.SetWindow(60_000); back.Packet(back.port, ack, now) }},
		{"asked", func() { ack.SetWindow(60_000); there.known.grantQ8 = 0; back.Packet(back.port, ack, now) }},
		{"sample", func() { there.sample(now) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.f()
			}
		})
	}
}
