package result

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// joinLeave is a run of three long flows on a link of 12000 bytes a step: one from 0 to 6 s, one from 2 to 6 s,
// one from 3 to 5 s. For the time late after each change they have made only three tenths of the step from their
// old shares to the new ones.
func joinLeave(late time.Duration) *Run {
	raw := &Raw{Duration: 6 * time.Second, Bin: 10 * ms, Ports: watched}
	spans := [][2]time.Duration{{0, 6 * time.Second}, {2 * time.Second, 6 * time.Second}, {3 * time.Second, 5 * time.Second}}
	share := func(i int, at time.Duration) float64 {
		n := 0
		for _, s := range spans {
			if s[0] <= at && at < s[1] {
				n++
			}
		}
		if at < spans[i][0] || at >= spans[i][1] {
			return 0
		}
		return 12000 / float64(n)
	}
	for i, s := range spans {
		f := Flow{Group: "flows", Key: tcpKey(1, i+1), Mouse: i, Start: s[0], End: s[1], Done: true, Endless: true}
		for bin := range int32(raw.Duration / raw.Bin) {
			at := time.Duration(bin) * raw.Bin
			n := share(i, at)
			for _, change := range []time.Duration{2, 3, 5} {
				if change *= time.Second; n > 0 && change <= at && at < change+late {
					n = 0.3*n + 0.7*share(i, change-1)
				}
			}
			if n > 0 {
				f.Delivered = append(f.Delivered, Delivery{bin, int32(n)})
				f.Bytes += int64(n)
			}
		}
		raw.Flows = append(raw.Flows, f)
	}
	// A flow with a size is not a long flow: it changes nothing.
	raw.Flows = append(raw.Flows, Flow{Group: "flows", Key: tcpKey(1, 9), Mouse: 9, Start: time.Second, End: 4 * time.Second, Done: true, Bytes: 1})
	return Build(Info{World: "sim", Scheme: "x", Windows: map[string][2]time.Duration{"second": {2500 * ms, 4 * time.Second}}}, raw)
}

func TestSettling(t *testing.T) {
	// No flow is late: the 100 ms after the change are fair already.
	point(t, joinLeave(0), map[string]any{
		"flows.settling.changes": 3, "flows.settling.unsettled": 0, "flows.settling.ms.n": 3, "flows.settling.ms.max": 0,
		"flows.settling.unreached": 0, "flows.settling.reached_ms.max": 0, "flows.settling.held": 1,
		"second.flows.settling.changes": 1,
	})
	// A new flow that has 0.3 of its share for one step has 0.93 of it over ten.
	point(t, joinLeave(10*ms), map[string]any{"flows.settling.ms.max": 0})
	// If it does for 300 ms, the first ten steps with 0.9 begin at 290 ms. When one of three leaves, the others
	// have 0.767 of their new shares: four such steps of ten are within a tenth.
	point(t, joinLeave(300*ms), map[string]any{
		"flows.settling.unsettled": 0, "flows.settling.ms.n": 3, "flows.settling.ms.min": 260, "flows.settling.ms.max": 290,
		"second.flows.settling.ms.mean": 290,
	})
	// Not before the next change, except for the change with 2 s until then.
	point(t, joinLeave(time.Second), map[string]any{
		"flows.settling.changes": 3, "flows.settling.unsettled": 2, "flows.settling.ms.n": 1, "flows.settling.ms.max": 990,
		"flows.settling.unreached": 2, "flows.settling.reached_ms.mean": 990,
		// Rates begin every 10 ms until 100 ms before the next change: 91, 191 and 91 of them.
		"flows.settling.held": 92.0 / 373,
	})
}

// Flows that begin and end together do not join or leave one another; neither does a single flow.
func TestSettling_WithoutChanges(t *testing.T) {
	for _, starts := range [][]time.Duration{{0}, {0, 100 * us, 190 * ms}} {
		raw := &Raw{Duration: 3 * time.Second, Bin: 10 * ms, Ports: watched}
		for i, start := range starts {
			raw.Flows = append(raw.Flows, Flow{Group: "g", Key: tcpKey(1, i+1), Mouse: i, Start: start, End: 3*time.Second - start, Done: true, Endless: true, Bytes: 1e6})
		}
		point(t, Build(Info{World: "sim", Scheme: "x"}, raw), map[string]any{"g.settling.changes": nil})
	}
}

// A change within 200 ms of another counts as the same change, at the time of the last. On a link that is left
// idle no flow has settled.
func TestSettling_ChangesTogether(t *testing.T) {
	raw := &Raw{Duration: 4 * time.Second, Bin: 10 * ms, Ports: watched}
	add := func(i int, start, end time.Duration, perBin func(at time.Duration) int32) {
		f := Flow{Group: "g", Key: tcpKey(1, i), Mouse: i, Start: start, End: end, Done: true, Endless: true}
		for at := start; at < end; at += 10 * ms {
			f.Delivered = append(f.Delivered, Delivery{int32(at / (10 * ms)), perBin(at)})
			f.Bytes += int64(perBin(at))
		}
		raw.Flows = append(raw.Flows, f)
	}
	whole := func(at time.Duration) int32 {
		if at < time.Second {
			return 10000
		}
		return 5000 // also when it is alone again, from 3 s on
	}
	// Fair for a time, then not, then again: reached at once, but not for good.
	gone := func(at time.Duration) int32 {
		if at >= 2*time.Second && at < 2200*ms {
			return 1000
		}
		return 5000
	}
	add(1, 0, 4*time.Second, whole)
	add(2, time.Second, 1100*ms, func(time.Duration) int32 { return 0 })
	add(3, 1100*ms, 3*time.Second, gone)
	point(t, Build(Info{World: "sim", Scheme: "x"}, raw), map[string]any{
		"g.settling.changes": 2, "g.settling.unsettled": 1, "g.settling.unreached": 1,
		"g.settling.reached_ms.max": 0, "g.settling.ms.n": 1, "g.settling.ms.max": 1090,
		// Of 181 starts of 100 ms, 27 are off: those with more than a step in the 0.2 s at a fifth. Of the 91
		// after the second change none is fair.
		"g.settling.held": 154.0 / (181 + 91),
	})
}

// Checked against a direct reading of the definition, step by step.
func TestHistory_IsTheBytesReceived(t *testing.T) {
	raw := &Raw{Duration: 50 * ms, Bin: 10 * ms, Flows: []Flow{{
		Start: 5 * ms, End: 45 * ms, Endless: true, Bytes: 700,
		Delivered: []Delivery{{0, 100}, {2, 200}, {4, 400}},
	}}}
	b := &builder{Info: Info{Series: 10 * ms, Scale: 1}, raw: raw}
	h := b.history(&raw.Flows[0])
	var got []float64
	for t := -10 * ms; t <= 70*ms; t += 5 * ms {
		got = append(got, h.at(t))
	}
	want := []float64{0, 0, 0, 50, 100, 100, 100, 200, 300, 300, 300, 500, 700, 700, 700, 700, 700}
	if !slices.Equal(got, want) {
		t.Errorf("got %s\nwant %s", fmt.Sprint(got), fmt.Sprint(want))
	}
}
