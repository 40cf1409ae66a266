package switchd

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/datapath/attach"
	"weir/datapath/reading"
	"weir/law"
)

func TestEnforce(t *testing.T) {
	some := Enforce{Ports: []string{"swp1", "eth[0-3]"}, Percent: 10}
	for port, want := range map[string]int{"swp1": 10, "swp10": 0, "eth2": 10, "eth4": 0} {
		if got := some.percent(port); got != want {
			t.Errorf("%s: %d percent, wanted %d", port, got, want)
		}
	}
	if all := (&Enforce{Percent: 40}); all.percent("any") != 40 {
		t.Error("without names all ports are meant")
	}
}

// testLine is a port of 100 Mbit/s with a buffer of 125 KB and a configured RTT of 400 us: a BDP of 5 KB.
var testLine = line{rate: 12.5e6, rtt: 400 * time.Microsecond, target: 25_000, buffer: 125_000}

func TestLine(t *testing.T) {
	for _, row := range []struct {
		handshake   time.Duration
		queue       float64
		empty, full float64
	}{
		{0, 0, 5000, 5000},                                       // only the configuration is known
		{0, 100_000, 5000, 105_000},                              // the same with a queue
		{100 * time.Microsecond, 0, 1250, 1250},                  // a shorter round trip is used
		{100 * time.Microsecond, 60_000, 1250, 61_250},           // a handshake that met an empty queue
		{8400 * time.Microsecond, 60_000, 5000, 105_000},         // a handshake that waited in the queue
		{time.Second, 0, 5000, 130_000}, {0, 4e9, 5000, 130_000}, // at most a full buffer
		{400 * time.Microsecond, -1, 5000, 5000}, {1, 0, 0.0125, .0125}, // never below 0
	} {
		empty, full := testLine.bdp(row.handshake), testLine.bdpWithQueue(row.handshake, row.queue, 0)
		if math.Abs(empty-row.empty) > 1e-3 || math.Abs(full-row.full) > 1e-3 {
			t.Errorf("handshake %v, queue %.0f: BDPs of %g and %g, want %g and %g", row.handshake, row.queue, empty, full, row.empty, row.full)
		}
	}
}

// Ten flows lose half a segment each, because they send whole segments.
func TestLine_WholeSegments(t *testing.T) {
	l := testLine
	l.segment = 1448
	if got := l.bdpWithQueue(0, 4e9, 10); got != 130_000+10*724 {
		t.Errorf("%g", got)
	}
}

// The BDP that is written to the kernel stays between the smallest and the largest measurement, changes only by steps
// of a certain size, and approaches a steady measurement.
func TestSmoothedBDP(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := smoothedBDP{within: bdpTimeConstant}
		least, most := math.Inf(1), 0.0
		for _, bytes := range rapid.SliceOfN(rapid.Float64Range(1, 1e9), 1, 50).Draw(t, "measured") {
			before := p.written
			least, most = min(least, bytes), max(most, bytes)
			p.measured(bytes, time.Duration(rapid.IntRange(0, 10_000).Draw(t, "ms"))*time.Millisecond)
			if slack := 1e-9 * most; p.written < least-slack || p.written > most+slack {
				t.Fatalf("wrote %g, measured %g to %g", p.written, least, most)
			}
			if d := math.Abs(p.written - before); d > 0 && before > 0 && d <= bdpStep*before {
				t.Fatalf("changed from %g to %g: too small a step", before, p.written)
			}
		}
		last := rapid.Float64Range(1, 1e9).Draw(t, "last")
		for range 600 {
			p.measured(last, 250*time.Millisecond)
		}
		if math.Abs(p.written-last) > 2*bdpStep*last {
			t.Fatalf("wrote %g, measured %g for long", p.written, last)
		}
	})
	p := smoothedBDP{within: bdpTimeConstant}
	for range 16 {
		p.measured(1000, 250*time.Millisecond)
	}
	p.measured(2000, 250*time.Millisecond)
	if p.follows != 1062.5 || p.written != 1000 {
		t.Errorf("a quarter of a second later: %+v", p)
	}
	// After a pause the mean begins anew, and then covers what was measured since.
	p.idle(time.Minute)
	if p.written != 1000 {
		t.Errorf("a pause changed the value: %+v", p)
	}
	for i, follows := range []float64{3000, 4000, 5000} {
		if p.measured([]float64{3000, 5000, 7000}[i], 250*time.Millisecond); p.follows != follows {
			t.Errorf("%d quarters of a second after a pause: %+v, want %g", i+1, p, follows)
		}
	}
	p.idle(250 * time.Millisecond) // a short one: the mean weighs less
	if p.measured(8000, 250*time.Millisecond); p.follows != 6000 {
		t.Errorf("after a short pause: %+v", p)
	}
}

// Limited flows must get their share of a queue before a rule can be broken in each part of its time. Otherwise load
// that begins is judged by windows for an empty queue.
func TestCanary_FollowsLoad(t *testing.T) {
	const every, flows, queue = 200 * time.Millisecond, 32, 100_000
	for _, over := range []time.Duration{time.Second, 2 * time.Second, 10 * time.Second, time.Minute} {
		for _, before := range []uint32{0, 1} { // flows, with an empty queue
			c := newCanary(50, &Rollback{If: []Rule{{Goodput, 0.5}}, Over: law.Duration(over)})
			c.line = testLine
			c.line.segment = 1448
			for range time.Minute / every {
				c.read(&portReading{stats: reading.Stats{Flows: before}}, every)
			}
			loaded := &portReading{stats: reading.Stats{Flows: flows, QueueBytes: queue}}
			want, long := c.line.bdpWithQueue(0, queue, flows), every // an idle port knows at once
			if before > 0 {
				long = 2 * max(c.watch.part, bdpTimeLeast)
			}
			for range long / every {
				c.read(loaded, every)
			}
			if h := c.enforcement(); h.BDP < 0.8*want || h.BDP > want {
				t.Errorf("over %v, %d flows before: a BDP of %.0f bytes after %v, measured %.0f", over, before, h.BDP, long, want)
			}
		}
	}
}

func TestCanary_Enforcement(t *testing.T) {
	for _, row := range []struct {
		percent int
		stage   stage
		mode    reading.Mode
		share   uint32
	}{
		{100, stageEnforcing, reading.EnforceAll, 0},
		{0, stageEnforcing, reading.EnforceNone, 0},
		{10, stageEnforcing, reading.EnforcePart, 6553},
		{1, stageEnforcing, reading.EnforcePart, 655},
		{99, stageEnforcing, reading.EnforcePart, 64880},
		{100, stageBefore, reading.EnforceNone, 0},
		{10, stageRolledBack, reading.EnforceNone, 0},
	} {
		c := &canary{percent: row.percent, stage: row.stage, line: testLine}
		if h := c.enforcement(); h != (Enforcement{row.mode, row.share, 5000}) {
			t.Errorf("%+v: %+v", row, h)
		}
	}
	// While unlimited flows fill the queue, limited ones must get their share of it.
	c := &canary{percent: 10, stage: stageEnforcing, line: testLine}
	for range 100 {
		c.read(&portReading{stats: reading.Stats{Flows: 1, QueueBytes: 100_000}}, time.Second)
	}
	if h := c.enforcement(); uint32(h.BDP) != 105_000 {
		t.Errorf("with 100 KB in the queue: %+v", h)
	}
	// With all flows limited the shortest handshake determines the BDP; another configuration changes it.
	c = &canary{percent: 100, stage: stageEnforcing, line: testLine}
	for _, row := range []struct {
		handshake, rtt time.Duration
		rate           float64
		bdp            uint32
	}{
		{0, 400 * time.Microsecond, 12.5e6, 5000},
		{0, 800 * time.Microsecond, 12.5e6, 10_000},
		{200 * time.Microsecond, 800 * time.Microsecond, 12.5e6, 2500},
		{600 * time.Microsecond, 800 * time.Microsecond, 12.5e6, 2500},
		{0, 800 * time.Microsecond, 25e6, 5000},
	} {
		c.line.rtt, c.line.rate = row.rtt, row.rate
		c.read(&portReading{stats: reading.Stats{HandshakeRTT: row.handshake}}, time.Second)
		if h := c.enforcement(); uint32(h.BDP) != row.bdp {
			t.Errorf("%+v: a BDP of %g bytes", row, h.BDP)
		}
	}
}

// world is a port that the canary reads: limited and unlimited flows with so much progress per second.
type world struct {
	unlimited, limited           int
	unlimitedBytes, limitedBytes float64 // of each flow, a second
	dropsPerSecond               float64
	sentPerSecond                float64
	at                           time.Duration
}

func (w *world) reading() *portReading {
	s := w.at.Seconds()
	r := &portReading{queue: attach.RootQueue{Drops: uint32(w.dropsPerSecond * s), SentPackets: uint32(w.sentPerSecond * s), SentBytes: uint64(1500 * w.sentPerSecond * s)}}
	for group, n := range []int{w.unlimited, w.limited} {
		bytes := []float64{w.unlimitedBytes, w.limitedBytes}[group] * s
		a := &r.stats.Groups[group]
		a.Flows, a.DataBytes, a.AckedBytes = uint32(n), uint64(bytes*float64(n)), uint64(bytes*float64(n))
		for i := range n {
			r.flows = append(r.flows, reading.Flow{
				From: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(group), byte(i)}), 1), Limited: group == 1, Counted: true,
				InFlightBytes: 3000, GrantedBytes: 2000, OfferedBytes: 65_000, Acknowledged: uint32(uint64(bytes) + 4e9), // it wraps
			})
		}
	}
	return r
}

// run has the canary read the world for a while, and returns its events.
func (w *world) run(c *canary, long time.Duration) (events []string) {
	const every = 200 * time.Millisecond
	for range long / every {
		w.at += every
		if e := c.read(w.reading(), every); e != "" {
			events = append(events, fmt.Sprintf("%v: %s", w.at, e))
		}
	}
	return events
}

func TestCanary_Stages(t *testing.T) {
	rollback := &Rollback{If: []Rule{{Goodput, 0.9}}, Over: law.Duration(2 * time.Second)}
	c, w := newCanary(50, rollback), &world{unlimited: 12, limited: 12, unlimitedBytes: 5e5, limitedBytes: 5e5}
	if c.stage != stageEnforcing || !c.wantsFlows() {
		t.Errorf("there is a control group: %+v", c)
	}
	if events := w.run(c, time.Minute); len(events) != 0 || c.stage != stageEnforcing {
		t.Errorf("nothing is wrong, but: %v", events)
	}
	w.limitedBytes /= 2 // their counters jump back, which counts as no progress
	events := w.run(c, 4*time.Second)
	if len(events) != 1 || c.stage != stageRolledBack || !strings.Contains(events[0], "goodput < 0.9: it was 0.") {
		t.Errorf("half: %v", events)
	}
	if mode, _ := c.mode(); mode != reading.EnforceNone || c.wantsReading() {
		t.Error("it still enforces")
	}
	w.limitedBytes *= 4
	if events := w.run(c, time.Minute); len(events) != 0 || c.stage != stageRolledBack {
		t.Errorf("it limits flows again: %v", events)
	}

	// With all flows limited: first the time before enforcement, then enforcement.
	c, w = newCanary(100, rollback), &world{unlimited: 8, unlimitedBytes: 1e6, sentPerSecond: 5000}
	if c.stage != stageBefore {
		t.Errorf("nothing to compare with: %+v", c)
	}
	events = w.run(c, 3*time.Second)
	if len(events) != 1 || c.stage != stageEnforcing || !strings.Contains(events[0], "enforcing now") {
		t.Errorf("before: %v", events)
	}
	w = &world{limited: 8, limitedBytes: 1e6, sentPerSecond: 5000, at: w.at}
	if events := w.run(c, 20*time.Second); len(events) != 0 {
		t.Errorf("as before, but: %v", events)
	}

	// Without traffic it waits for some, for a limited time.
	c, w = newCanary(100, rollback), &world{}
	events = w.run(c, 30*time.Second)
	if len(events) != 1 || !strings.HasPrefix(events[0], "20") || !strings.Contains(events[0], "too little traffic") {
		t.Errorf("without traffic: %v", events)
	}

	// Drops are counted for the whole port, so they need a time before enforcement.
	c = newCanary(10, &Rollback{If: []Rule{{Drops, 1.5}}, Over: law.Duration(2 * time.Second)})
	w = &world{unlimited: 9, limited: 1, unlimitedBytes: 1e6, limitedBytes: 1e6, sentPerSecond: 5000, dropsPerSecond: 50}
	if events = w.run(c, 4*time.Second); len(events) != 1 || c.stage != stageEnforcing || c.wantsFlows() {
		t.Errorf("before: %v", events)
	}
	w.dropsPerSecond *= 4
	if events = w.run(c, 4*time.Second); len(events) != 1 || !strings.Contains(events[0], "drops > 1.5: it was ") {
		t.Errorf("four times the drops: %v", events)
	}
}

// A port whose flows change all the time does not fill the memory, and flows that did not exist all of the time are no
// evidence.
func TestRollbackWatch_Flows(t *testing.T) {
	w := newRollbackWatch(&Rollback{If: []Rule{{Goodput, 0.9}}, Over: law.Duration(time.Second)}, false)
	one := func(i int) reading.Flow {
		return reading.Flow{From: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)}
	}
	for step := range 30 {
		r := &portReading{}
		for i := range watchFlows * 2 {
			r.flows = append(r.flows, one(step*watchFlows*2+i))
		}
		w.read(r, &testLine, stageEnforcing, 200*time.Millisecond)
		if len(w.flows) > watchFlows {
			t.Fatalf("%d flows are kept", len(w.flows))
		}
	}
	if n := len(w.judge.flows[0]); n != 0 {
		t.Errorf("%d flows that were seen once are evidence", n)
	}
	steady := reading.Flow{From: one(1).From}
	for range judgeParts + 2 {
		steady.Acknowledged += 1000
		w.read(&portReading{flows: []reading.Flow{steady}}, &testLine, stageEnforcing, 200*time.Millisecond)
	}
	if n := len(w.judge.flows[0]); n != 1 || w.judge.flows[0][0] != even(1000) {
		t.Errorf("a steady flow: %v", w.judge.flows[0])
	}
}

// The answer to a reload lists the ports that are measured before anything is limited.
func TestMeasuredFirst(t *testing.T) {
	kept, limited := &canary{stage: stageBefore, percent: 10}, &canary{stage: stageEnforcing, percent: 20}
	was := map[string]*canary{"a": kept, "b": {stage: stageEnforcing, percent: 10}, "c": {stage: stageEnforcing}}
	is := map[string]*canary{"a": kept, "b": {stage: stageBefore, percent: 100}, "c": limited, "d": {stage: stageBefore, percent: 5}}
	want := []string{
		"port b: limits nothing for 5s and measures; then limits 100 % of its flows",
		"port d: limits nothing for 5s and measures; then limits 5 % of its flows",
	}
	if got := measuredFirst(was, is, law.Duration(5*time.Second)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
