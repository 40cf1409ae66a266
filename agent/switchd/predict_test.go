package switchd

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// testLoad is n flows that fill a port of 100 Mbit/s and 125 KB with α = 0.2 and R = 400 us: a BDP of 5000 bytes. With
// frames of 1500 and segments of 1200, headers are a fifth.
func testLoad(n int, inFlight float64) *load {
	l := &load{
		Rate: 12.5e6, RTT: 400e-6, Buffer: 125_000, Target: 25_000, Cap: 30_000, Frame: 1500, Segment: 1200,
		Flows: float64(n), Elastic: 1, QueueNow: 100_000, QueueCut: 25_000, DropsPerSecond: 40,
	}
	for range n {
		l.InFlight = append(l.InFlight, inFlight)
	}
	return l
}

func TestPredict(t *testing.T) {
	for _, row := range []struct {
		what                     string
		load                     func() *load
		window, most             float64
		queue, least, mostQueue  float64
		drops, dropsMost         float64
		floored, overfull, other bool
	}{
		// (5000 + 25000) * 1200/1500 / 4
		{"four that fill it", func() *load { return testLoad(4, 20_000) }, 6000, 6000, 25e3, 25e3, 25e3, 0, 0, false, false, false},
		// 16 segments are 24000 bytes on the wire, 5000 of them in flight; 24000/16 = 1500 a flow.
		{"sixteen: a segment and a quarter each", func() *load { return testLoad(16, 6000) }, 1500, 1500, 25e3, 25e3, 25e3, 0, 0, false, false, false},
		// 48 segments: 72000 bytes on the wire less the BDP.
		// 16 * (2048 = a segment and 848 on 1500 and 1148 of wire) - 5000
		{"sixteen, windows in steps of 1024", func() *load {
			l := testLoad(16, 6000)
			l.Granted = 2048
			return l
		}, 1500, 1500, 25e3, 25e3, 16*2648 - 5000, 0, 0, false, false, false},
		{"forty-eight: the floor", func() *load { return testLoad(48, 2400) }, 1201, 1201, 67e3, 25e3, 67e3, 0, 0, true, false, false},
		{"a hundred: more than the buffer has room for", func() *load { return testLoad(100, 1200) }, 1201, 1201, 125e3, 25e3, 125e3, 40, 40, true, true, false},
		{"a configured floor", func() *load {
			l := testLoad(4, 20_000)
			l.Floor = 8000
			return l
		}, 8000, 8000, 4*8000*1.25 - 5000, 25e3, 35e3, 0, 0, true, false, false},
		{"UDP at half the rate", func() *load {
			l := testLoad(16, 6000)
			l.Other = 0.5
			return l // half of 24000 / 16 is below the floor: 24000/0.5 - 5000
		}, 1201, 1201, 43e3, 25e3, 43e3, 0, 0, true, false, false},
		{"UDP at all of it", func() *load {
			l := testLoad(4, 20_000)
			l.Other = 0.99
			return l
		}, 1201, 1201, 100e3, 25e3, 100e3, 40, 40, false, false, true},
		{"flows that never fill a window", func() *load {
			l := testLoad(4, 1000)
			l.Elastic, l.QueueNow, l.QueueCut, l.QueueApp, l.DropsPerSecond = 0, 2000, 1500, 1500, 0
			return l
		}, 6000, 24_000 - 3*1000, 1500, 1500, 1500, 0, 0, false, false, false},
		{"two that leave some to the others", func() *load {
			l := testLoad(4, 20_000)
			l.InFlight[0], l.InFlight[1] = 1000, 3000
			return l
		}, 6000, 10_000, 25e3, 25e3, 25e3, 0, 0, false, false, false},
		{"full half of the time", func() *load {
			l := testLoad(4, 20_000)
			l.Elastic, l.QueueCut, l.QueueApp = 0.5, 12_000, 1000
			return l
		}, 6000, 6000, 13e3, 12e3, 25e3, 0, 0, false, false, false},
		{"one flow: the law's cap", func() *load {
			l := testLoad(1, 60_000)
			l.Cap = 20_000
			return l
		}, 20_000, 20_000, 25e3, 25e3, 25e3, 0, 0, false, false, false},
		{"nobody", func() *load {
			l := testLoad(0, 0)
			l.Elastic, l.QueueNow, l.QueueCut, l.DropsPerSecond = 1, 0, 0, 0
			return l
		}, 24_000, 24_000, 0, 0, 0, 0, 0, false, false, false},
		{"bursts of new flows", func() *load {
			l := testLoad(4, 20_000)
			l.NewFlows = 7 // room for 6: 100000 / (10 * 1500)
			return l
		}, 6000, 6000, 25e3, 25e3, 25e3, 0, 40, false, false, false},
	} {
		p := predict(row.load())
		for _, c := range []struct {
			what      string
			got, want float64
		}{
			{"window", p.Window, row.window}, {"largest window", p.WindowMost, row.most},
			{"queue", p.Queue, row.queue}, {"least queue", p.QueueLeast, row.least}, {"largest queue", p.QueueMost, row.mostQueue},
			{"drops", p.Drops, row.drops}, {"most drops", p.DropsMost, row.dropsMost},
		} {
			if math.Abs(c.got-c.want) > 1 {
				t.Errorf("%s: %s %.0f, wanted %.0f", row.what, c.what, c.got, c.want)
			}
		}
		if p.Floored != row.floored || p.Overfull != row.overfull || p.OtherFillsAll != row.other {
			t.Errorf("%s: %+v", row.what, p)
		}
		if wanted := row.floored || row.other || row.dropsMost > 0; wanted != (len(p.Notes) > 0) {
			t.Errorf("%s: notes %q", row.what, p.Notes)
		}
	}
	l := testLoad(4, 20_000)
	l.NewFlows = 7
	if p := predict(l); p.Room != 6 || !strings.Contains(strings.Join(p.Notes, " "), "6 at once") {
		t.Errorf("room for new flows: %+v", p)
	}
}

func drawLoad(t *rapid.T) *load {
	l := &load{
		Rate: rapid.Float64Range(1e5, 1e11).Draw(t, "rate"), RTT: rapid.Float64Range(1e-6, 1).Draw(t, "rtt"),
		Buffer: rapid.Float64Range(1e3, 4e9).Draw(t, "buffer"),
		Frame:  rapid.Float64Range(600, 9014).Draw(t, "frame"), Other: rapid.Float64Range(0, 1.2).Draw(t, "other"),
		Elastic: rapid.Float64Range(0, 1).Draw(t, "elastic"), DropsPerSecond: rapid.Float64Range(0, 1e6).Draw(t, "drops"),
		NewFlows: rapid.Float64Range(0, 1e5).Draw(t, "newcomers"),
	}
	l.Target = l.Buffer * rapid.Float64Range(0.001, 0.999).Draw(t, "alpha")
	l.Segment = l.Frame - 66
	if rapid.Bool().Draw(t, "capped") {
		l.Cap = l.bdp() + l.Target
	}
	if rapid.Bool().Draw(t, "floored") {
		l.Floor = rapid.Float64Range(1, 1e6).Draw(t, "floor")
	}
	l.QueueNow = l.Buffer * rapid.Float64Range(0, 1).Draw(t, "queue")
	l.QueueCut = min(l.QueueNow, l.Target)
	l.QueueApp = rapid.Float64Range(0, 1).Draw(t, "app") * l.Target
	l.InFlight = rapid.SliceOfN(rapid.Float64Range(0, 1e7), 0, 200).Draw(t, "in flight")
	l.Flows = float64(len(l.InFlight))
	return l
}

// For any load, the prediction is physically possible.
func TestPredict_IsPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLoad(t)
		p := predict(l)
		floor := l.floor()
		switch {
		case p.Window < floor || p.WindowMost < p.Window:
			t.Fatalf("windows %g, at most %g, floor %g", p.Window, p.WindowMost, floor)
		case l.Cap > 0 && p.WindowMost > max(l.Cap, floor):
			t.Fatalf("window %g above the cap %g", p.WindowMost, l.Cap)
		case p.QueueLeast < 0 || p.Queue < p.QueueLeast || p.QueueMost < p.Queue || p.QueueMost > l.Buffer:
			t.Fatalf("queue %g, %g to %g, of %g", p.Queue, p.QueueLeast, p.QueueMost, l.Buffer)
		case p.Drops < 0 || p.DropsMost < p.Drops || p.DropsMost > l.DropsPerSecond:
			t.Fatalf("drops %g to %g, now %g", p.Drops, p.DropsMost, l.DropsPerSecond)
		case !p.Floored && !p.OtherFillsAll && p.QueueMost > l.Target:
			t.Fatalf("queue %g above the target %g with windows above the floor", p.QueueMost, l.Target)
		}
	})
}

// More flows get no larger share. supply and queueOf are inverse functions. Without floor and cap, the windows give the
// target queue.
func TestPredict_Shares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLoad(t)
		n := rapid.Float64Range(1, 1e4).Draw(t, "n")
		if l.window(n+1) > l.window(n) {
			t.Fatalf("%g flows get %g each, %g get %g", n, l.window(n), n+1, l.window(n+1))
		}
		q := rapid.Float64Range(0, 1e9).Draw(t, "q")
		if got := l.queueOf(l.supply(q)); math.Abs(got-q) > 1e-6*(q+l.bdp()+1) {
			t.Fatalf("a queue of %g comes back as %g", q, got)
		}
		w := l.window(n)
		if w > l.floor() && (l.Cap == 0 || w < l.Cap) {
			if got := l.queueOf(n * w); math.Abs(got-l.Target) > 1e-6*(l.Target+l.bdp()) {
				t.Fatalf("%g flows with %g each: a queue of %g, target %g", n, w, got, l.Target)
			}
		}
	})
}

// windowLeft equals a slow calculation: raise the window until the flows' total is the supply.
func TestPredict_WindowLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLoad(t)
		l.Cap, l.Floor, l.Segment = 0, 1, l.Frame
		if len(l.InFlight) == 0 {
			return
		}
		supply := l.supply(l.Target)
		low, high := 0.0, supply
		// The flow with the most always takes the rest.
		most := slices.Max(l.InFlight)
		taken := func(w float64) (sum float64) {
			last := false
			for _, have := range l.InFlight {
				if have == most && !last {
					last, have = true, math.Inf(1)
				}
				sum += min(have, w)
			}
			return sum
		}
		for range 200 {
			if w := (low + high) / 2; taken(w) < supply {
				low = w
			} else {
				high = w
			}
		}
		if got, want := l.windowLeft(), max(low, l.floor()); math.Abs(got-want) > 1e-6*(want+1) {
			t.Fatalf("%v with %g: %g, the slow way %g", l.InFlight, supply, got, want)
		}
	})
}
