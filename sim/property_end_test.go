package sim

import (
	"fmt"
	"strings"
	"testing"

	"weir/law"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/tcp"
)

const (
	lookEvents = 300                 // about so many events happen between two looks
	mostEvents = 20_000_000          // in a run, without samples: one of some thousand packets that needs more does not end
	lastCalm   = 2000 * event.Second // within which all is over after the last flow
	patience   = 600 * event.Second  // within which a flow that will end gets data
)

// drive runs up to end or until over, and checks meanwhile.
func (l *ledger) drive(end event.Time, over func() bool) {
	q := l.s.queue
	chunk := event.Microsecond
	for q.Now() < end && !over() {
		before := q.Happened()
		q.Run(min(end, q.Now()+chunk))
		l.look()
		l.programs()
		switch n := q.Happened() - before; {
		case n > 2*lookEvents:
			chunk = max(chunk/2, 1)
		case n < lookEvents/2:
			chunk = min(2*chunk, 10*event.Second)
		}
		if q.Happened() > l.mostEvents {
			l.checkEvents()
		}
	}
	l.samples()
}

// toEnd drives to the end of all flows. While they get data at the end of the run's duration, they have more time: a
// receiver with a buffer below one segment may get 200 bytes at each timeout.
func toEnd(t *traffic, drive func(end event.Time)) {
	drive(t.end)
	for before := int64(-1); t.left > 0; {
		after := t.ended
		for _, c := range t.conns {
			if c != nil && c.clientUp {
				after += c.client.Counters().Received
			}
			if c != nil && c.serverUp {
				after += c.server.Counters().Received
			}
		}
		if after == before {
			return
		}
		before = after
		drive(t.queue.Now() + patience)
	}
}

// checkEvents checks that the run has not had too many events. Samples by FairQ's timers have a limit of their own. While
// flows are active, a port takes one every T. That is thousands a packet if each packet waits for a delayed ACK.
func (l *ledger) checkEvents() {
	if n, samples := l.s.queue.Happened(), l.samples(); n-samples > l.mostEvents {
		broken("%d events without %d samples of queues, and no end:\n%s", n-samples, samples, stuck(l.s.traffic))
	}
}

// samples returns the number of samples by FairQ's timers. It checks that no port has more than one every T.
func (l *ledger) samples() (n uint64) {
	if l.fairq == nil {
		return 0
	}
	for _, t := range l.s.laws.Tallies() {
		n += t[fairq.Samples]
	}
	passed := l.s.queue.Now()
	most := l.sampled * uint64(passed/event.Time(l.fairq.Interval)+1)
	if n > most {
		broken("%d ports took %d samples in %d ns, at most %d are due", l.sampled, n, passed, most)
	}
	return n
}

// stuck lists the flows that have not ended.
func stuck(t *traffic) string {
	out := ""
	n := 0
	for f := t.alive; f != nil && n < 10; f = f.after {
		n++
		r := f.result()
		out += fmt.Sprintf("  %s %s -> %s, %d of %d bytes, since %v", r.Item, r.Src, r.Dst, r.Bytes, f.size, r.Start)
		if c := f.carrier; c != nil {
			out += "\n    " + describe(c.client)
			if c.server != nil {
				out += "\n    " + describe(c.server)
			}
		}
		out += "\n"
	}
	return out
}

// describe returns all values of an endpoint that are visible from outside.
func describe(e *tcp.Endpoint) string {
	srtt, rto := e.RTT()
	return fmt.Sprintf("conn %d dialled=%v %v window %+v srtt %d rto %d unsent %d %+v",
		e.Index(), e.Dialled(), e.State(), e.Window(), srtt, rto, e.Unsent(), e.Counters())
}

// slow returns a run in which every segment fills the receiver's buffer and waits for a delayed acknowledgement, 40 ms,
// under a FairQ that samples every microsecond.
func slow(t *testing.T, most uint64) *ledger {
	t.Helper()
	text := baseWith("{name: long, from: sender1, to: receiver1, pattern: bulk, size: 8KB}")
	text = strings.Replace(text, "{name: droptail}", "{name: fairq, params: {interval: 1us, updates: 1}}", 1)
	text, _, _ = strings.Cut(text, "measure:") // a measured port is sampled too
	r := planned(t, text, "duration=10s")[0]
	s, err := build(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	it := &s.traffic.items[0]
	c := *it.tcp
	c.Buffer, c.QuickACKs, it.tcp = 400, 0, &c
	s.stack.Listen(it.ends[0][1], it.port, it.tcp, s.traffic.accept)
	l := newLedger(s, &troubles{s: s, lives: map[*tcp.Endpoint]int{}}, &tally{}, r)
	l.mostEvents = most
	s.begin()
	return l
}

// carried runs to the end of all flows, and returns what was broken, or "".
func (l *ledger) carried() (fault string) {
	defer func() {
		if p := recover(); p != nil {
			fault = string(p.(violation))
		}
	}()
	t := l.s.traffic
	toEnd(t, func(end event.Time) { l.drive(end, func() bool { return t.left == 0 }) })
	if t.left > 0 {
		return "the flow has not ended"
	}
	return ""
}

// A slow flow under FairQ has 260,000 samples and few other events. It is not taken for one without an end.
func TestRandomEnd_SlowFlowUnderFairQ(t *testing.T) {
	l := slow(t, 2000)
	if fault := l.carried(); fault != "" {
		t.Error(fault)
	}
	n, samples := l.s.queue.Happened(), l.samples()
	t.Logf("%d events, %d of them samples, in %d ms", n, samples, l.s.queue.Now()/event.Millisecond)
	if samples < 100_000 || n-samples < 100 {
		t.Error("the test shows little")
	}
}

// The same run with an event that repeats for ever has no end. Neither has one whose timers sample too often.
func TestRandomEnd_FindsRepeats(t *testing.T) {
	l := slow(t, 2000)
	var again func()
	again = func() { doAt(l.s.queue, l.s.queue.Now()+100*event.Microsecond, again) }
	again()
	if fault := l.carried(); !strings.Contains(fault, "and no end") {
		t.Errorf("an event every 100 us: %q", fault)
	}
	l = slow(t, 2000)
	l.fairq.Interval = 3 * law.Duration(event.Microsecond)
	if fault := l.carried(); !strings.Contains(fault, "are due") {
		t.Errorf("three samples an interval: %q", fault)
	}
}

// A flow that still gets data at the end of the duration may go on. One whose receiver has stopped reading may not.
func TestRandomEnd_WaitsForSlowFlows(t *testing.T) {
	l := slow(t, mostEvents)
	l.s.traffic.end = l.s.traffic.t0 + 200*event.Millisecond
	if fault := l.carried(); fault != "" || l.s.queue.Now() < 2*l.s.traffic.end {
		t.Errorf("at %d ns, %q", l.s.queue.Now(), fault)
	}
	l = slow(t, mostEvents)
	l.s.traffic.end = l.s.traffic.t0 + 200*event.Millisecond
	doAt(l.s.queue, l.s.traffic.end-1, func() { l.s.traffic.conns[0].server.Pause(true) })
	if fault := l.carried(); fault != "the flow has not ended" || l.s.queue.Now() > 3*patience {
		t.Errorf("not read: at %d ns, %q", l.s.queue.Now(), fault)
	}
}
