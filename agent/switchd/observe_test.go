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
)

func flowAt(i int, inFlight float64) flowNow {
	return flowNow{
		From: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1), To: netip.MustParseAddrPort("10.1.0.1:80"),
		InFlight: inFlight, Offered: 65_000, Scale: 10,
	}
}

// A histogram's quantile is too large by at most one bin.
func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := histogram{of: 125_000}
		values := rapid.SliceOfN(rapid.Uint32Range(0, 200_000), 1, 300).Draw(t, "bytes")
		for _, v := range values {
			h.add(v)
		}
		slices.Sort(values)
		q := rapid.Float64Range(0.01, 1).Draw(t, "quantile")
		exact := float64(values[int(math.Ceil(q*float64(len(values))))-1])
		got := h.quantile(q)
		if exact < h.of && (got < exact || got > exact+h.of/queueBins) || exact >= h.of && got < h.of || got > float64(h.most) {
			t.Fatalf("quantile %g of %v: %g, exactly %g", q, values, got, exact)
		}
	})
	if empty := (&histogram{of: 1}); empty.mean() != 0 || empty.quantile(0.99) != 0 {
		t.Error("of nothing")
	}
}

// Four flows fill the queue half of the time, one never does, and one was seen once.
func TestGather(t *testing.T) {
	g := newGather(*testLoad(0, 0))
	for look := range 100 {
		flows := []flowNow{flowAt(4, 500)}
		full := look%2 == 0
		for i := range 4 {
			if full {
				flows = append(flows, flowAt(i, 20_000+float64(i)))
			}
		}
		if look == 50 {
			flows = append(flows, flowAt(9, 90_000))
		}
		g.looked(uint32(len(flows)), flows)
		for range 10 {
			if full {
				g.sampled(100_000)
			} else {
				g.sampled(1000)
			}
		}
	}
	l := g.load(40, 0.1)
	if l.Elastic != 0.5 || l.QueueNow != 50_500 || l.QueueCut != 13_000 || l.QueueApp != 1000 || l.DropsPerSecond != 40 || l.Other != 0.1 || l.NewFlows != 1 {
		t.Errorf("%+v", l)
	}
	// Four and a fifth existed in at least half of the readings.
	if len(l.InFlight) != 5 || l.Flows < 5 || l.Flows > 5.05 || g.flowsMax != 6 {
		t.Errorf("flows %g, at most %g: %v", l.Flows, g.flowsMax, l.InFlight)
	}
	if l.Granted != 2048 {
		t.Errorf("a segment and a byte in steps of 1024: %g", l.Granted)
	}
	limited := g.limited()
	if len(limited) != 5 || limited[0].InFlightMean != 90_000 || limited[1].InFlightMean != 20_003 || limited[4].InFlightMost != 20_000 || limited[1].OfferedBytes != 65_000 {
		t.Errorf("limited: %+v", limited)
	}
	if g.limitedNow() != 0 {
		t.Error("no flow is limited")
	}
	full := newGather(*testLoad(0, 0))
	full.looked(2, []flowNow{{From: flowAt(1, 0).From, InFlight: 6000, Limit: 6100}, {From: flowAt(2, 0).From, InFlight: 1300, Limit: 6100}})
	if full.limitedNow() != 1 {
		t.Errorf("one of two fills its window: %d", full.limitedNow())
	}
}

// With 85.3 KB of buffer at 1 Gbit/s and 250 us, the port has room for 48 KB: 33 segments and a byte. 126 flows pace it.
// Each of them then waits for a cycle of 126 segments and bytes, less 48 KB.
func TestGather_Credits(t *testing.T) {
	base := load{Rate: 125e6, RTT: 250e-6, Buffer: 85_300, Target: 17_060, Frame: 1514, Segment: 1448, LongestWait: 1}
	flows := make([]flowNow, 126)
	for i := range flows {
		flows[i] = flowAt(i, 1448)
	}
	for _, row := range []struct {
		flows                     int
		paced, flowsThen, waitsMs float64
	}{{33, 0, 0, 0}, {34, 1, 34, 0.0436}, {126, 1, 126, 1.2}} {
		g := newGather(base)
		for range 10 {
			g.looked(uint32(row.flows), flows[:row.flows])
		}
		l := g.load(0, 0)
		p := predict(l)
		if l.Paced != row.paced || l.PacedFlows != row.flowsThen || math.Abs(1e3*p.Wait-row.waitsMs) > 0.05*row.waitsMs {
			t.Errorf("%d flows: paced %g of the time with %g flows, %g ms", row.flows, l.Paced, l.PacedFlows, 1e3*p.Wait)
		}
		l.LongestWait = 1e-6
		if p := predict(l); row.paced > 0 && p.Wait != 1e-6 {
			t.Errorf("%d flows: a wait of %g s, want 1 us at most", row.flows, p.Wait)
		}
		// An acknowledgement for each segment and byte: 1514 and 67 B at 125 MB/s.
		if want := row.paced * 125e6 / 1581; math.Abs(p.Parked-want) > 1 {
			t.Errorf("%d flows: %g acknowledgements a second wait, want %g", row.flows, p.Parked, want)
		}
	}
}

// The memory is bounded for any number of flows; the others are counted.
func TestGather_IsBounded(t *testing.T) {
	g := newGather(*testLoad(0, 0))
	for look := range 4 {
		var flows []flowNow
		for i := range 20_000 {
			f := flowAt(0, 3000)
			n := look*20_000 + i
			f.From = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 1)
			flows = append(flows, f)
		}
		g.looked(20_000, flows)
	}
	if len(g.seen) != flowsKept || g.unlisted != 80_000-flowsKept || g.newFlows != 20_000 {
		t.Errorf("%d kept, %d not kept, %d new flows", len(g.seen), g.unlisted, g.newFlows)
	}
}

func TestObserveFor_Check(t *testing.T) {
	for _, row := range []struct {
		o    ObserveFor
		says string
	}{
		{ObserveFor{time.Minute, 10}, ""}, {ObserveFor{time.Second, 0}, ""},
		{ObserveFor{0, 10}, "observe for 0ns: use 1s to 24h"}, {ObserveFor{25 * time.Hour, 10}, "1s to 24h"},
		{ObserveFor{time.Minute, -1}, "list -1 flows"}, {ObserveFor{time.Minute, 10_001}, "0 to 10000"},
	} {
		if err := row.o.Check(); (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%+v: %v", row.o, err)
		}
	}
	apart := &ObserveApart{Switch: "default", Its: []string{"a"}, Others: []string{"b"}}
	if text := fmt.Sprint(apart); text != "weir switch default manages a and not b; observe one or the other, or configure it with both and let it observe (enforce: {percent: 0})" {
		t.Error(text)
	}
}
