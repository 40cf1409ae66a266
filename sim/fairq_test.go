//go:build cgo

package sim

import (
	"slices"
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/law/fairq"
)

// incastRuns returns the runs of experiments/incast.yaml with these schemes, its first seed and 10 bursts.
func incastRuns(t testing.TB, schemes ...string) []*experiment.Run {
	t.Helper()
	f, err := laws.All().Load("../experiments/incast.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, Schemes: schemes, Set: []string{"duration=3s",
		"traffic.elephants.stop=3s", "traffic.mice.epochs=10", "measure.windows.loaded=[2s, 3s]", "seeds=[1]"}})
	if err != nil {
		t.Fatal(err)
	}
	return p.Runs
}

// shortFlows returns the p99 completion time of the flows that had a size, and how many did not end.
func shortFlows(raw *result.Raw) (p99 time.Duration, open int) {
	var all []time.Duration
	for i := range raw.Flows {
		switch f := &raw.Flows[i]; {
		case f.Endless:
		case !f.Done:
			open++
		default:
			all = append(all, f.FCT())
		}
	}
	slices.Sort(all)
	return all[len(all)*99/100], open
}

// FairQ improves a burst over long flows as intended, with reno and with cubic. The last of the short flows end many
// times sooner, and almost nothing is dropped. The queue is at its target (half of the buffer) and not at the buffer's
// end, and the long flows lose little.
func TestFairQ_Incast(t *testing.T) {
	byCC := map[string]map[string]*result.Raw{}
	for _, r := range incastRuns(t, "droptail", "fairq") {
		cc := r.Point["guest_cc"]
		if byCC[cc] == nil {
			byCC[cc] = map[string]*result.Raw{}
		}
		byCC[cc][r.Scheme] = ran(t, &World{Laws: laws.Sim()}, r)
	}
	for _, cc := range []string{"reno", "cubic"} {
		tail, fair := byCC[cc]["droptail"], byCC[cc]["fairq"]
		before, left := shortFlows(tail)
		after, open := shortFlows(fair)
		queue, _ := settled(fair)
		full, _ := settled(tail)
		rate := func(raw *result.Raw) (sum float64) {
			for i := range raw.Flows {
				if raw.Flows[i].Endless {
					sum += float64(raw.Flows[i].Bytes) * 8 / 3e6
				}
			}
			return sum
		}
		t.Logf("%s: p99 %v and %v, %d and %d not ended, %d and %d drops, queue %.0f and %.0f, long flows %.1f and %.1f Mbit/s", cc, before, after,
			left, open, len(tail.Drops), len(fair.Drops), full, queue, rate(tail), rate(fair))
		if open > 0 || after*5 > before {
			t.Errorf("%s: p99 is %v, with droptail %v; %d did not end", cc, after, before, open)
		}
		if len(fair.Drops)*20 > len(tail.Drops) {
			t.Errorf("%s: %d drops, with droptail %d", cc, len(fair.Drops), len(tail.Drops))
		}
		within(t, cc+": mean queue over target", queue/62_500, 0.8, 1.2)
		within(t, cc+": the long flows' rate over droptail's", rate(fair)/rate(tail), 0.9, 1.1)
	}
	fair := byCC["reno"]["fairq"]
	values := map[time.Duration]map[string]float64{} // by time and metric
	for _, l := range fair.LawSamples {
		if l.Port != "switch->receiver1" {
			t.Fatalf("%+v", l)
		}
		if values[l.At] == nil {
			values[l.At] = map[string]float64{}
		}
		values[l.At][l.Metric] = l.Value.Value
	}
	if n := len(values); n < 299 || n > 301 {
		t.Errorf("%d samples of the law in 3 s", n)
	}
	// After a burst up to a half of the 16 long flows pause until the queue is at its target again.
	for at, v := range values {
		if flows, grant := v["flows"], v["grant_bytes"]; at > time.Second && (flows < 8 || flows > 32 || grant != v["window_bytes"] || grant < 1460) {
			t.Fatalf("after %v: %v", at, v)
		}
	}
	// Data acknowledges too, and nothing limits the other direction.
	all, _ := fair.LawTotal("acks")
	if rewritten, _ := fair.LawTotal("acks_rewritten"); rewritten < all/4 || all < 10_000 || len(fair.Unmet) > 0 {
		t.Errorf("acknowledgements: %+v; %q", fair.LawTotals, fair.Unmet)
	}
	if tail := byCC["reno"]["droptail"]; tail.LawSamples != nil || tail.LawTotals != nil {
		t.Error("droptail has samples of a law")
	}
}

// BenchmarkFairQ is a whole run without FairQ, with it, and with its edge mode, by data packets that arrive.
func BenchmarkFairQ(b *testing.B) {
	runs := incastRuns(b, "droptail", "fairq")
	for _, r := range runs {
		if p, ok := r.Params["fairq"].(fairq.Params); ok && r.Point["guest_cc"] == "cubic" {
			edge := *r
			p.Edge = true
			edge.Scheme, edge.Params = "edge", map[string]any{"fairq": p}
			runs = append(runs, &edge)
		}
	}
	for _, r := range runs {
		if r.Point["guest_cc"] != "cubic" {
			continue
		}
		n := countRun(b, r)
		b.Run(r.Scheme, func(b *testing.B) {
			var best spent
			for b.Loop() {
				best = best.least(timeRun(b, r, n.events))
			}
			b.ReportMetric(1e9/best.per(n.data), "packets/s")
			b.ReportMetric(best.per(n.data), "ns/packet")
		})
	}
}
