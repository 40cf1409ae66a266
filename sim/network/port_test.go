package network

import (
	"fmt"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/law"
	"weir/sim/event"
)

// reference is a port in the form of its description: a list of packets, and rational time. It visits every packet at
// every step.
type reference struct {
	rate    law.Rate
	delay   event.Time
	limit   law.Limit
	free    *big.Rat // ns
	held    []refPacket
	drops   int
	arrived []arrival
}

type refPacket struct {
	leaves event.Time
	bytes  int64
	tag    uint64
}

func (r *reference) backlog(now event.Time) (bytes, packets int64) {
	r.held = slices.DeleteFunc(r.held, func(p refPacket) bool { return p.leaves <= now })
	for _, p := range r.held {
		bytes += p.bytes
	}
	return bytes, int64(len(r.held))
}

func (r *reference) send(now event.Time, bytes int64, tag uint64) {
	backlog, packets := r.backlog(now)
	if r.limit.Packets && packets+1 > r.limit.N || !r.limit.Packets && backlog+bytes > r.limit.N {
		r.drops++
		return
	}
	if at := new(big.Rat).SetInt64(int64(now)); r.free == nil || r.floor(r.free) < now {
		r.free = at
	}
	wire := max(bytes, 60) + 24
	r.free = new(big.Rat).Add(r.free, big.NewRat(wire*8*1e9, int64(r.rate)))
	leaves := r.floor(r.free)
	r.held = append(r.held, refPacket{leaves, bytes, tag})
	r.arrived = append(r.arrived, arrival{at: leaves + r.delay, tag: tag})
}

func (r *reference) floor(x *big.Rat) event.Time {
	return event.Time(new(big.Int).Div(x.Num(), x.Denom()).Int64())
}

// A port has the departures, backlogs and drops of the reference, as a FIFO and with one priority only.
func TestPortIsTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := law.Rate(rapid.SampledFrom([]int64{1e9, 1e10, 200e6, 3, 999_999_937, 1e6}).Draw(t, "rate"))
		delay := law.Duration(rapid.SampledFrom([]int64{0, 1, 25_000, 3_000_000}).Draw(t, "delay"))
		limit := rapid.SampledFrom([]law.Limit{{N: 1514}, {N: 10_000}, {N: 125_000}, {N: 1, Packets: true}, {N: 7, Packets: true}}).Draw(t, "limit")
		o := Options{Priorities: rapid.Bool().Draw(t, "served")}
		q := event.NewQueue()
		n := buildOn(t, q, rate, delay, limit, o)
		ref := &reference{rate: rate, delay: event.Time(delay), limit: limit}
		port := n.PortByName("switch->b")
		src, dst := NodeID(1), NodeID(2)
		now := event.Time(0)
		frame := int64(1538 * 8 * 1e9 / float64(rate))
		steps := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 60).Draw(t, "gaps")
		for i, kind := range steps {
			gap := []int64{0, 0, 1, frame / 2, frame, 3 * frame}[kind]
			bytes := rapid.SampledFrom([]int32{54, 66, 1514, 1514, 800, 60, 61}).Draw(t, "bytes")
			now += event.Time(gap)
			at(q, now, func(now event.Time) {
				ref.send(now, int64(bytes), uint64(i))
				port.Send(n.packet(src, dst, bytes, uint64(i)))
				wantBytes, wantPackets := ref.backlog(now)
				if gotBytes, gotPackets := port.Backlog(), port.BacklogPackets(); gotBytes != wantBytes || gotPackets != wantPackets {
					t.Fatalf("step %d at %d ns: backlog %d B, %d packets; want %d and %d", i, now, gotBytes, gotPackets, wantBytes, wantPackets)
				}
			})
		}
		q.Run(event.Time(1) << 60)
		got := n.Sink.(*sink).got
		for i := range ref.arrived {
			ref.arrived[i].host = dst
		}
		if !slices.Equal(got, ref.arrived) {
			t.Fatalf("arrived\n%v, want\n%v", got, ref.arrived)
		}
		if c := port.Counters(); c.Tail.Packets != int64(ref.drops) || c.In.Packets != int64(len(steps)) || c.Queued.Packets != 0 {
			t.Fatalf("counters %+v, want %d drops of %d", c, ref.drops, len(steps))
		}
		if n.Borrowed() != 0 {
			t.Fatalf("%d packets are outside the pool", n.Borrowed())
		}
	})
}

func buildOn(t *rapid.T, q *event.Queue, rate law.Rate, delay law.Duration, limit law.Limit, o Options) *Network {
	n, err := Build(q, configOf(pair(rate, delay, limit)), o)
	if err != nil {
		t.Fatal(err)
	}
	n.Sink = &sink{net: n}
	return n
}

// A line that is never idle sends 10^9 packets in exactly their time: the k-th has left after floor(k * bits / rate),
// for any rate. The state after k packets is computed, not reached step by step.
func TestLineDoesNotDrift(t *testing.T) {
	for _, rate := range []int64{1e9, 10e9, 999_999_937, 200e6, 3, 7_777_777_777} {
		for _, bytes := range []int32{84, 1538, 9038} {
			const packets = 1_000_000_000
			ns := new(big.Int).Mul(big.NewInt(packets*int64(bytes)), big.NewInt(8e9))
			whole, rest := new(big.Int).DivMod(ns, big.NewInt(rate), new(big.Int))
			next := new(big.Int).Div(new(big.Int).Add(ns, big.NewInt(int64(bytes)*8e9)), big.NewInt(rate))
			if !next.IsInt64() {
				continue // beyond the clock: 3 bit/s
			}
			// The first steps, one by one, are the same arithmetic as the closed form ...
			l := newLine(rate, true)
			for k := int64(1); k <= 5000; k++ {
				want := new(big.Int).Div(big.NewInt(0).Mul(big.NewInt(k*int64(bytes)), big.NewInt(8e9)), big.NewInt(rate)).Int64()
				if got := l.take(0, bytes); int64(got) != want {
					t.Fatalf("rate %d, %d bytes: packet %d leaves at %d ns, want %d", rate, bytes, k, got, want)
				}
			}
			// ... and so is one step from the state that 10^9 have.
			l.free, l.rest = event.Time(whole.Int64()), rest.Int64()
			if got := l.take(0, bytes); int64(got) != next.Int64() {
				t.Errorf("rate %d, %d bytes: packet 10^9+1 leaves at %d ns, want %v", rate, bytes, got, next)
			}
		}
	}
}

// A line's packets are one event, for any number of queued packets.
func TestOneEventABusyPort(t *testing.T) {
	n, _ := build(t, pair(1e9, 25_000, law.Limit{N: 1 << 40}), Options{})
	p := n.PortByName("switch->b")
	for i := range 10_000 {
		p.Send(n.packet(1, 2, 1514, uint64(i)))
	}
	n.Queue.Run(event.Second)
	if got := n.Queue.Happened(); got != 10_000 {
		t.Errorf("10000 packets through one port are %d events", got)
	}
	conserved(t, n)
}

// In the steady state nothing is allocated.
func TestNoAllocation(t *testing.T) {
	for _, o := range []Options{{}, {Priorities: true}, {Shared: &Shared{Bytes: 1 << 20, Num: 1, Den: 1}}} {
		n, s := build(t, pair(1e9, 25_000, law.Limit{N: 1 << 20}), o)
		s.got = make([]arrival, 0, 1<<20)
		run := func() {
			s.got = s.got[:0]
			for i := range 500 {
				n.Send(1, n.packet(1, 2, 1514, uint64(i)))
			}
			n.Queue.Run(n.Queue.Now() + event.Second)
		}
		run()
		if a := testing.AllocsPerRun(5, run); a != 0 {
			t.Errorf("%+v: %v allocations for 500 packets", o, a)
		}
	}
}

func TestDoubleFreePanics(t *testing.T) {
	n, _ := build(t, pair(1e9, 0, law.Limit{N: 10_000}), Options{})
	pk := n.NewPacket()
	if pk.scale != -1 {
		t.Errorf("a new packet has scale %d", pk.scale)
	}
	n.Free(pk)
	defer func() {
		if recover() == nil {
			t.Error("the second Free of a packet went unnoticed")
		}
	}()
	n.Free(pk)
}

func TestDropReasonNames(t *testing.T) {
	if got := fmt.Sprint(DropTail, DropLaw, DropDown, DropLoss); got != "tail law down loss" {
		t.Error(got)
	}
}

// A packet takes its padding, the CRC, the preamble and the gap on the line; on a bare line only itself.
func TestLineBytes(t *testing.T) {
	for _, bare := range []bool{false, true} {
		q := event.NewQueue()
		n, err := Build(q, configOf(pair(1e9, 0, law.Limit{N: 10_000})), Options{FrameOnly: bare})
		if err != nil {
			t.Fatal(err)
		}
		n.Sink = &sink{net: n}
		p := n.PortByName("switch->b")
		at(q, 0, func(event.Time) {
			p.Send(n.packet(1, 2, 1514, 1))
			p.Send(n.packet(1, 2, 54, 2))
		})
		q.Run(event.Second)
		want := int64(1538 + 84)
		if bare {
			want = 1514 + 54
		}
		if got := p.LineBytes(); got != want {
			t.Errorf("bare %v: %d bytes, want %d", bare, got, want)
		}
	}
}
