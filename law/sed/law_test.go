package sed

import (
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/flows"
	"weir/law/inventory"
	"weir/law/lawtest"
	"weir/law/telemetry"
)

// The queue states have hysteresis, and one message for each change (SPEC 1.10).
func TestPort_Hysteresis(t *testing.T) {
	p := NewPort(Default())
	for i, row := range []struct {
		queue         int64
		changed, then bool
	}{
		{44_999, false, false}, {45_000, true, true}, {46_000, false, true}, {22_501, false, true},
		{22_500, true, false}, {44_999, false, false}, {0, false, false}, {150_000, true, true},
	} {
		if changed := p.See(row.queue); changed != row.changed || p.Congested() != row.then {
			t.Errorf("%d: %v, %v at %d bytes", i, changed, p.Congested(), row.queue)
		}
	}
}

// SE-9: T_win is 46.7 packets of 1500 bytes as printed. In payload, with the bytes that segments take in the queue and on the line,
// it is 46.0 segments.
func TestSE9_Units(t *testing.T) {
	s := newScript(t, nil)
	at := s.l.switches[1][0]
	if got := s.l.sizes(at).room / segmentBytes; math.Abs(got-45.98) > 0.01 {
		t.Errorf("ours: %.2f segments", got)
	}
	s.l.p.Overhead = false
	if got := s.l.sizes(at).room / packetBytes; math.Abs(got-46.7) > 0.05 {
		t.Errorf("printed: %.2f packets, the paper says 46.7", got)
	}
}

// SE-1: the windows of flows without deadlines fill T_win, K + C x RTT.
func TestSE1_WindowsFillTheTotal(t *testing.T) {
	s := newScript(t, nil)
	s.began(1, 2, 3, 4)
	s.want("45.98 segments", s.congested(true), "1=17520 2..4=16060")
}

// SE-2: a message without a deadline is not due: its flow has the base window and the rest. As printed its remaining time of 0 is that of
// a deadline, and it asks for RSize/0, which never fits.
func TestSE2_NoDeadlineIsNotDue(t *testing.T) {
	s := newScript(t, paper)
	s.began(1, 2)
	s.declared(1, 0, 1_000_000)
	s.declared(2, 100*ms, 4_000_000)
	s.want("ours", s.congested(true), "1=62000 2=8000")
	left, none := 1e6, 0.0
	if need := left / none * 200e-6; need <= 70_000 {
		t.Errorf("printed: a window of %v bytes fits", need)
	}
}

// SE-3: the body of the paper gives the rest to flows without deadline, the abstract to deadlines.
func TestSE3_Spare(t *testing.T) {
	for spare, want := range map[string]string{
		SpareOthers:   "1=10220 2=55480",
		SpareEarliest: "1=64240 2=1460",
		SpareBoth:     "1=10220 2=55480",
	} {
		s := newScript(t, func(p *Params) { p.Spare = spare })
		s.began(1, 2)
		s.declared(1, 100*ms, 1_600_000)
		s.want(spare, s.congested(true), want)
	}
	for spare, want := range map[string]string{SpareOthers: "1=10220", SpareEarliest: "1=65700", SpareBoth: "1=65700"} {
		s := newScript(t, func(p *Params) { p.Spare = spare })
		s.began(1)
		s.declared(1, 100*ms, 1_600_000)
		s.want("alone, "+spare, s.congested(true), want)
	}
}

// At 20 Mbit/s a queue of K takes 18 ms. A flow whose window is one segment progresses that often, is not idle, and has its share.
func TestSlowPort_FlowsAreNotIdle(t *testing.T) {
	s := newScript(t, nil)
	s.step(&inventory.Switch{At: 1, Ports: []inventory.Port{{N: 1, Rate: 20e6}}})
	s.began(1, 2)
	s.congested(true)
	both := map[int]uint64{}
	for range 40 {
		s.now += 4 * ms
		both[2] += 4 * segmentBytes
		if s.now%(20*ms) == 0 {
			both[1] += segmentBytes
		}
		s.sent(both)
		if got := s.l.flows[flowN(1)].granted; got < 10*segmentBytes {
			t.Fatalf("after %v: a window of %d bytes", s.now, got)
		}
	}
	s.now += 100 * ms
	both[2] += segmentBytes
	s.sent(both)
	if got := s.l.flows[flowN(1)].granted; got != segmentBytes {
		t.Errorf("a flow without progress for 100 ms has a window of %d bytes", got)
	}
}

// SE-4: a share that fits exactly is granted, as printed (line 13 has >).
func TestSE4_ExactFit(t *testing.T) {
	s := newScript(t, paper)
	s.began(1, 2)
	s.declared(1, 10*ms, 3_500_000) // 70,000 bytes x 200 us / 10 ms
	s.declared(2, 11*ms, 100_000)
	s.want("all of T_win", s.congested(true), "1=70000 2=paused")
}

// SE-5: 50 flows without deadline have base windows of 50 segments, more than T_win. As printed a flow with a deadline then gets nothing.
// Ours meets it, and a quarter of T_win goes round among the others.
func TestSE5_BaseWindowsExceedTheTotal(t *testing.T) {
	bed := func(change func(*Params)) (*script, map[int]string) {
		s := newScript(t, change)
		for n := range 50 {
			s.began(n + 1)
		}
		s.began(51)
		s.declared(51, 100*ms, 4_000_000)
		return s, s.congested(true)
	}
	if _, got := bed(paper); got[51] != "paused" || got[1] != "1460" || got[50] != "1460" {
		t.Errorf("as printed: %s", show(got))
	}
	s, got := bed(nil)
	s.want("ours", got, "1..29=1460 30..50=paused 51=23360")
	got = s.sent(map[int]uint64{51: 30_000})
	if got[30] != "1460" || got[50] != "1460" || got[29] != "paused" || got[1] != "" {
		t.Errorf("the next 29 have their turn, which are the last 21 and the first 8: %s", show(got))
	}
}

// SE-6: a flow without a share is paused, and when there is room again it gets a window at once: as printed nothing opens a window of 0
// again before an event.
func TestSE6_Pause(t *testing.T) {
	s := newScript(t, nil)
	s.began(1, 2)
	s.declared(1, 10*ms, 1_100_000)
	s.declared(2, 500*ms, 900_000_000) // more than the link carries: it cannot be met
	if got := s.congested(true); got[1] == "" || got[2] != "paused" {
		t.Fatal(show(got))
	}
	if !s.l.flows[flowN(2)].paused || s.l.counts.Paused != 1 {
		t.Errorf("%+v", s.l.counts)
	}
	s.now = 5 * ms
	if got := s.sent(map[int]uint64{1: 900_000}); got[2] == "" || got[2] == "paused" {
		t.Errorf("there is room, and the flow waits: %s", show(got))
	}
}

// SE-8: a share that stays constant ends the flow at its deadline at best. If it loses time once it misses, as printed. Ours
// gives it more.
func TestSE8_Periodically(t *testing.T) {
	for _, row := range []struct {
		change func(*Params)
		more   bool
	}{{nil, true}, {paper, false}} {
		s := newScript(t, row.change)
		s.began(1, 2)
		s.declared(1, 100*ms, 4_000_000)
		before := number(s.congested(true)[1])
		s.now = 50 * ms // half of the time has passed, a quarter was sent
		got := s.sent(map[int]uint64{1: 1_000_000, 2: 1_000_000})
		if after := number(got[1]); (after > before) != row.more {
			t.Errorf("%+v: %d bytes before, %d after", s.l.p, before, after)
		}
	}
}

// RS-8: a retransmission is no progress. A report that a flow is where it was changes nothing, nor does one of an earlier place.
func TestRS8_RetransmissionsAreNoProgress(t *testing.T) {
	s := newScript(t, nil)
	s.began(1)
	s.declared(1, 100*ms, 4_000_000)
	s.congested(true)
	s.sent(map[int]uint64{1: 50_000})
	left := s.l.flows[flowN(1)].left()
	s.sent(map[int]uint64{1: 40_000})
	if got := s.l.flows[flowN(1)].left(); got != left {
		t.Errorf("%v left, then %v", left, got)
	}
}

// A flow that passes two congested ports has the smaller of its windows, and the other one's when the first is no longer congested.
func TestTwoPorts(t *testing.T) {
	s := newScript(t, nil)
	s.began(1, 2)
	for _, n := range []int{1, 3, 4, 5} {
		s.step(&flows.Began{At: law.Port{Switch: 1, N: 2}, Flow: flowN(n)})
	}
	s.want("port 1", s.congested(true), "1=33580 2=32120")
	s.want("port 2", s.step(&flows.Congested{At: law.Port{Switch: 1, N: 2}, Now: true}), "1=17520 3..5=16060")
	s.want("port 2 again", s.step(&flows.Congested{At: law.Port{Switch: 1, N: 2}}), "1=33580 3..5=free")
}

// Windows are leases: they are granted again before they end, also with the printed algorithm. Lost messages about states do no
// harm, because each report has the states.
func TestLease(t *testing.T) {
	for _, change := range []func(*Params){nil, paper} {
		s := newScript(t, change)
		s.began(1)
		first := show(s.congested(true))
		s.now = 33 * ms
		s.want("too early", s.sent(map[int]uint64{1: 1}), "")
		s.now = 34 * ms
		s.want("again", s.sent(map[int]uint64{1: 10}), first)
		s.want("the message about the end was lost", s.step(&flows.Progress{At: 1}), "1=free")
		s.want("and that about the next", s.sent(map[int]uint64{1: 20}), first)
	}
}

// RS-4: one loss of a window is answered, with the number of the segment that was lost (RS-1: it waits at the switch until that is
// due). A loss of the next window is answered again. RS-6: segments without data are not covered.
func TestRS4_OneAnswerForAWindow(t *testing.T) {
	s := newRepair(t, nil, RepairDupACKs)
	lost := func(n int, seq, bytes, end uint32) (acks []flows.Acks) {
		for _, a := range s.law.Step(s.now, &flows.Dropped{At: law.Port{Switch: 1, N: 1}, Flow: flowN(n), Seq: seq, Bytes: bytes, End: end}, nil) {
			acks = append(acks, a.(flows.Acks))
		}
		return acks
	}
	for i, row := range []struct {
		flow, answers   int
		seq, bytes, end uint32
	}{
		{1, 1, 1000, 1460, 9000}, {1, 0, 2460, 1460, 9000}, {1, 0, 1000, 1460, 9500}, {2, 1, 2460, 1460, 9000},
		{1, 1, 9000, 1460, 20_000}, {1, 0, 19_000, 1000, 20_000}, {3, 0, 1, 0, 1}, {3, 1, 0xffffff00, 1460, 500}, {3, 0, 100, 100, 500}, {3, 1, 500, 100, 600},
	} {
		got := lost(row.flow, row.seq, row.bytes, row.end)
		if len(got) != row.answers || row.answers > 0 && (got[0].Ack != row.seq || got[0].N != 3 || got[0].Flow != flowN(row.flow) || got[0].At.N != 1) {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if got := newScript(t, nil).law.Step(0, &flows.Dropped{Flow: flowN(1), Seq: 1, Bytes: 1, End: 9}, nil); len(got) != 0 {
		t.Errorf("sed repairs nothing: %v", got)
	}
}

// Parameters that cannot work together are refused with what to do.
func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*RepairParams){
		"recover: 30pkt is not below threshold": func(p *RepairParams) { p.Recover = p.Threshold },
		"choose 3ms or more":                    func(p *RepairParams) { p.Lease = 2e6 },
		"is more than":                          func(p *RepairParams) { p.Hold = mostTime + 1 },
		"park: at most":                         func(p *RepairParams) { p.Park = mostPark + 1 },
	} {
		p := DefaultRepair()
		change(p)
		spec := RepairSpec()
		if _, err := spec.New(law.Controller, p, &law.Topology{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// The law keeps no borrowed memory, whatever comes.
func TestKeeps(t *testing.T) {
	at := func(t *rapid.T) law.Port { return law.Port{Switch: 1, N: uint32(rapid.IntRange(1, 2).Draw(t, "port"))} }
	flow := func(t *rapid.T) law.Flow { return flowN(rapid.IntRange(1, 4).Draw(t, "flow")) }
	bytes := rapid.Uint64Range(0, 5_000_000)
	lawtest.Keeps(t, func() law.Law {
		l, err := New(*Default(), RepairDupACKs, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.Step(0, &inventory.Switch{At: 1, Ports: []inventory.Port{{N: 1, Rate: gbit}, {N: 2, Rate: gbit / 10}}}, nil)
		for n := 1; n <= 4; n++ {
			l.Step(0, &inventory.Host{At: law.Host(n), VMs: []inventory.VM{{Number: law.VM(n), Addresses: []netip.Prefix{netip.PrefixFrom(address(n), 32)}}}}, nil)
		}
		return l
	},
		func(t *rapid.T) law.Event { return &flows.Began{At: at(t), Flow: flow(t)} },
		func(t *rapid.T) law.Event { return &flows.Ended{At: at(t), Flow: flow(t)} },
		func(t *rapid.T) law.Event { return &flows.Congested{At: at(t), Now: rapid.Bool().Draw(t, "now")} },
		func(t *rapid.T) law.Event {
			return &flows.Declared{Flow: flow(t), Left: time.Duration(rapid.IntRange(0, 500).Draw(t, "ms")) * ms, Bytes: bytes.Draw(t, "bytes")}
		},
		func(t *rapid.T) law.Event {
			e := &flows.Progress{At: 1, Congested: []uint32{1}}
			for range rapid.IntRange(0, 4).Draw(t, "sent") {
				e.Sent = append(e.Sent, flows.Sent{Port: at(t).N, Flow: flow(t), Bytes: bytes.Draw(t, "bytes")})
			}
			return e
		},
		func(t *rapid.T) law.Event {
			return &flows.Dropped{At: at(t), Flow: flow(t), Seq: uint32(bytes.Draw(t, "seq")), Bytes: 1460, End: uint32(bytes.Draw(t, "end"))}
		},
	)
}

// The law says in a few words why it acted, without allocation.
func TestExplain(t *testing.T) {
	s := newScript(t, nil)
	s.began(1, 2)
	s.want("", s.congested(true), "1=33580 2=32120")
	if got := string(s.l.Explain(nil)); got != "port 1: is congested, 2 flows" {
		t.Error(got)
	}
	room := make([]byte, 0, 100)
	if n := testing.AllocsPerRun(10, func() { s.l.Explain(room) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	s.now = time.Second
	if s.step(law.Tick{}); len(s.l.Explain(nil)) != 0 {
		t.Error("after a step without actions")
	}
}

// SE-17: new flows have windows before the queue shows them: those of 4 flows may be 40 segments, which fit, those of 5 do not. As
// printed, only the queue counts. A flow whose message is short needs less.
func TestFirst(t *testing.T) {
	first := func(p *Params) { p.First = FirstBase }
	s := newScript(t, first)
	s.want("fits: it may send what it likes", s.began(1, 2, 3, 4), "4=free")
	s.want("does not fit", s.began(5), "1..5=13140")
	s.want("it ends", s.step(&flows.Ended{Flow: flowN(5)}), "1..4=free")
	s = newScript(t, first)
	for n := range 8 {
		s.declared(n+1, time.Second, 2000)
	}
	s.want("8 messages of 2000 bytes", s.began(1, 2, 3, 4, 5, 6, 7, 8), "8=free")
	s = newScript(t, nil)
	s.want("as printed", s.began(1, 2, 3, 4, 5, 6, 7, 8), "")
}

// Where switches report queues, the law decides which ports are congested: by the largest queue since the report before.
func TestQueues(t *testing.T) {
	s := newScript(t, nil)
	queue := func(peak uint64) string {
		return show(s.step(&telemetry.Telemetry{At: 1, T: ms, Ports: []telemetry.Port{{N: 1, PeakBytes: peak}}}))
	}
	s.began(1, 2)
	if got := queue(44_999); got != "" {
		t.Errorf("below K: %s", got)
	}
	if got := queue(45_000); got != "1=33580 2=32120" {
		t.Errorf("at K: %s", got)
	}
	s.now += ms
	if got := queue(22_501); got != "" {
		t.Errorf("above the other threshold: %s", got)
	}
	// Progress says nothing about queues then, and releases nothing.
	e := &flows.Progress{At: 1, Sent: []flows.Sent{{Port: 1, Flow: flowN(1), Bytes: 1000}, {Port: 1, Flow: flowN(2), Bytes: 1000}}}
	if got := show(s.step(e)); got != "" {
		t.Errorf("progress: %s", got)
	}
	if got := queue(22_500); got != "1..2=free" {
		t.Errorf("recovered: %s", got)
	}
}

// If not all can be in time, a message of ten times the value is kept, although it has twice as many bytes left.
func TestAllocate_Value(t *testing.T) {
	late := func(value uint32) int {
		s := newScript(t, nil)
		s.began(1, 2)
		s.step(&flows.Declared{Flow: flowN(1), Left: 20 * ms, Bytes: 1_900_000, Value: value})
		s.step(&flows.Declared{Flow: flowN(2), Left: 21 * ms, Bytes: 950_000, Value: 1})
		s.congested(true)
		if kept := s.l.scratch.urgent; len(kept) != 1 {
			t.Fatalf("%d flows are in time", len(kept))
		}
		if s.l.scratch.urgent[0].f.key == flowN(2) {
			return 1
		}
		return 2
	}
	if plain, worth := late(0), late(10); plain != 1 || worth != 2 {
		t.Errorf("flow %d is given up, and flow %d if flow 1 has the value 10", plain, worth)
	}
}

// With a margin windows aim at a time before the deadline. In the margin a flow that is late is not given up.
func TestMargin(t *testing.T) {
	for margin, want := range map[law.Duration]string{0: "11680", 10e6: "14600"} {
		s := newScript(t, func(p *Params) { p.Margin = margin })
		s.began(1, 2)
		s.declared(1, 50*ms, 1e6)
		if got := s.congested(true)[1]; got != want {
			t.Errorf("margin %v: %s, want %s", margin, got, want)
		}
		s.now = 45 * ms
		s.sent(map[int]uint64{1: 800_000, 2: 1000})
		if kept := s.l.scratch.urgent; len(kept) != 1 {
			t.Errorf("margin %v: 200 KB in 5 ms are given up", margin)
		}
	}
}
