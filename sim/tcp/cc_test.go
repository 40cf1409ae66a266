package tcp

import (
	"math/rand/v2"
	"testing"

	"weir/sim/event"
)

const ms = event.Time(1_000_000)

// path generates the ACKs of a sender that always fills its window, one per segment, for a congestion control alone: no
// losses, no queue, a fixed RTT.
type path struct {
	t       *testing.T
	control Control
	w       Window
	s       Sample
	rtt     event.Time
}

func newPath(t *testing.T, name string, o ControlOptions, initial uint32, rtt event.Time) *path {
	t.Helper()
	control, err := newControl(name, o)
	if err != nil {
		t.Fatal(err)
	}
	p := &path{t: t, control: control, rtt: rtt}
	p.w.Start(initial, 0)
	p.s = Sample{MSS: 1460, Limited: true, SRTT: rtt, MinRTT: rtt, Nxt: initial * 1460}
	control.Start(&p.w, &p.s)
	return p
}

// round acknowledges one window, spread over an RTT. marked of its segments have ECE.
func (p *path) round(marked uint32) {
	start, n := p.s.Now, p.w.Cwnd
	end := p.s.Nxt
	p.s.Una = end - n*1460
	for i := range n {
		p.s.Now = start + p.rtt*event.Time(i+1)/event.Time(n)
		p.s.RTT = p.rtt
		p.s.Una += 1460
		p.s.Delivered, p.s.Marked, p.s.Bytes, p.s.InFlight = 1, 0, 1460, n
		if i < marked {
			p.s.Marked = 1
		}
		p.control.Measure(&p.w, &p.s)
		before := p.w.Cwnd
		p.control.Grow(&p.w, &p.s)
		if p.w.Cwnd < before {
			p.t.Fatalf("an ACK shrank the window from %d to %d", before, p.w.Cwnd)
		}
		p.s.Nxt = end + (i+1)*1460 + (p.w.Cwnd-n)*1460
	}
}

// cut reduces the window at once, as recovery does.
func (p *path) cut(why Cause) {
	p.w.Remember(why, false)
	p.w.Ssthresh = p.control.Ssthresh(&p.w, &p.s, why)
	p.w.Cwnd = p.w.Ssthresh
	p.w.Count = 0
	p.s.Nxt = p.s.Una + p.w.Cwnd*1460
}

func TestUnknownControlIsNamed(t *testing.T) {
	_, err := newControl("bbr", ControlOptions{})
	if err == nil {
		t.Fatal("bbr was accepted")
	}
	for _, name := range []string{"reno", "newreno", "sack", "cubic", "dctcp", "d2tcp"} {
		control, err := newControl(name, ControlOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if control.Name() != name {
			t.Errorf("%s calls itself %s", name, control.Name())
		}
		if exact := name == "dctcp" || name == "d2tcp"; control.ExactECN() != exact {
			t.Errorf("%s: ExactECN %v", name, control.ExactECN())
		}
	}
}

// RFC 6928 and RFC 5681 3.1: the window doubles every RTT up to the threshold, then grows by one. The counts follow the
// RFC's arithmetic.
func TestSlowStartDoublesUpToTheThreshold(t *testing.T) {
	p := newPath(t, "reno", ControlOptions{}, 10, ms)
	p.w.Ssthresh = 50
	for i, want := range []uint32{20, 40, 50, 51, 52} {
		p.round(0)
		// The round that crosses the threshold has 40 ACKs: 10 to reach 50, 30 of the 50 for one more.
		if p.w.Cwnd != want {
			t.Fatalf("after round %d: cwnd %d, want %d", i+1, p.w.Cwnd, want)
		}
	}
}

// A window that the sender did not fill does not grow (RFC 2861).
func TestUnusedWindowDoesNotGrow(t *testing.T) {
	for _, name := range []string{"reno", "cubic", "dctcp"} {
		p := newPath(t, name, ControlOptions{}, 10, ms)
		p.s.Limited = false
		p.round(0)
		if p.w.Cwnd != 10 {
			t.Errorf("%s: cwnd %d, want 10", name, p.w.Cwnd)
		}
	}
}

func TestClampBoundsTheWindow(t *testing.T) {
	for _, name := range []string{"reno", "cubic", "dctcp"} {
		p := newPath(t, name, ControlOptions{NoHyStart: true}, 10, ms)
		p.w.Clamp = 37
		for range 100 {
			p.round(0)
		}
		if p.w.Cwnd != 37 {
			t.Errorf("%s: cwnd %d, want the clamp, 37", name, p.w.Cwnd)
		}
	}
}

// A spurious reduction is undone; a reduction for a mark is not.
func TestUndo(t *testing.T) {
	for _, name := range []string{"reno", "cubic", "dctcp", "d2tcp"} {
		p := newPath(t, name, ControlOptions{}, 100, ms)
		p.w.Ssthresh = 90
		p.cut(CauseLoss)
		if p.w.Cwnd >= 100 {
			t.Fatalf("%s: a loss left cwnd %d of 100", name, p.w.Cwnd)
		}
		p.w.Restore(p.control.Undo(&p.w))
		if p.w.Cwnd != 100 || p.w.Ssthresh != 90 {
			t.Errorf("%s: cwnd %d, ssthresh %d after undo, want 100, 90", name, p.w.Cwnd, p.w.Ssthresh)
		}
		p.cut(CauseECE)
		cwnd := p.w.Cwnd
		p.w.Restore(p.control.Undo(&p.w))
		if p.w.Cwnd != cwnd {
			t.Errorf("%s: a cut for a mark was undone", name)
		}
	}
}

// Linux restores three quarters of the window of a sender whose threshold was lower.
func TestUndoOfATimeoutKeepsWhatThePathBore(t *testing.T) {
	w := Window{Cwnd: 100, Ssthresh: 20, Clamp: maxCwnd}
	w.Remember(CauseTimeout, false)
	w.Ssthresh, w.Cwnd = 50, 1
	w.Restore(100)
	if w.Ssthresh != 75 || w.Cwnd != 100 {
		t.Errorf("ssthresh %d, cwnd %d, want 75, 100", w.Ssthresh, w.Cwnd)
	}
	w.Restore(200)
	if w.Cwnd != 100 {
		t.Errorf("the same reduction was undone twice")
	}
}

func TestRestartHalvesPerTimeout(t *testing.T) {
	for _, c := range []struct {
		cwnd          uint32
		idle          event.Time // in tenths of the timeout
		initial, want uint32
	}{
		{64, 11, 10, 32}, {64, 20, 10, 32}, {64, 21, 10, 16}, {64, 35, 10, 10}, {64, 10000, 2, 2}, {7, 50, 10, 7},
	} {
		w := Window{Cwnd: c.cwnd, Ssthresh: 20, Clamp: maxCwnd}
		w.Restart(c.idle*20*ms, 200*ms, c.initial)
		if w.Cwnd != c.want {
			t.Errorf("cwnd %d, idle for %d tenths: %d, want %d", c.cwnd, c.idle, w.Cwnd, c.want)
		}
		if want := max(20, c.cwnd*3/4); w.Ssthresh != want {
			t.Errorf("cwnd %d: ssthresh %d, want %d", c.cwnd, w.Ssthresh, want)
		}
	}
}

// The steady state allocates nothing.
func TestControlsDoNotAllocate(t *testing.T) {
	for _, name := range []string{"reno", "cubic", "dctcp", "d2tcp"} {
		p := newPath(t, name, ControlOptions{}, 10, ms)
		p.s.Deadline, p.s.Remaining = 1e15, 1e6
		if n := testing.AllocsPerRun(20, func() { p.round(1); p.cut(CauseECE) }); n != 0 {
			t.Errorf("%s: %v allocations a round", name, n)
		}
	}
}

// Windows stay within their bounds for any ACKs and losses.
func TestControlsStayWithinBounds(t *testing.T) {
	for seed := range uint64(300) {
		for _, name := range []string{"reno", "cubic", "dctcp", "d2tcp"} {
			random := rand.New(rand.NewPCG(seed, 1))
			control, err := newControl(name, ControlOptions{Tick: event.Time(random.IntN(2)), GShift: uint8(random.IntN(12))})
			if err != nil {
				t.Fatal(err)
			}
			w, s := new(Window), new(Sample)
			w.Start(1+random.Uint32N(20), random.Uint32N(2)*5000)
			s.MSS = 1 + random.Int32N(9000)
			control.Start(w, s)
			for step := range 300 {
				wander(random, control, w, s)
				if w.Cwnd < 1 || w.Cwnd > w.Clamp || w.Ssthresh < 1 || control.Alpha() > alphaOne {
					t.Fatalf("seed %d, %s, step %d: %+v, alpha %d", seed, name, step, *w, control.Alpha())
				}
			}
		}
	}
}

// wander passes random events to a sender.
func wander(random *rand.Rand, control Control, w *Window, s *Sample) {
	s.Now += event.Time(random.Int64N(1 << random.Uint32N(36)))
	s.RTT = event.Time(random.Int64N(1 << random.Uint32N(34)))
	s.SRTT, s.Deadline, s.Remaining = s.RTT, s.Now+event.Time(random.Int64N(1<<30)-1<<29), random.Int64N(1<<40)
	s.Delivered = random.Uint32N(1 << random.Uint32N(16))
	s.Marked = s.Delivered * random.Uint32N(2)
	s.Una += s.Delivered
	s.Nxt = s.Una + random.Uint32N(1<<20)
	s.InFlight, s.Limited = random.Uint32N(1<<20), random.IntN(4) > 0
	control.Measure(w, s)
	switch random.IntN(12) {
	case 0:
		why := Cause(random.IntN(3))
		w.Remember(why, random.IntN(2) == 0)
		w.Ssthresh = control.Ssthresh(w, s, why)
		w.Cwnd = min(w.Cwnd, w.Ssthresh)
		if why == CauseTimeout {
			control.Timeout(w, s)
			w.Cwnd = 1
		}
	case 1:
		w.Restore(control.Undo(w))
	case 2:
		control.Idle(w, s, s.RTT)
		w.Restart(s.RTT+1, 1+s.RTT/8, 10)
	default:
		control.Grow(w, s)
	}
}
