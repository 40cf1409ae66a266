//go:build cgo

package sim

import (
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/law/fairq"
)

// shortened runs these schemes of a file with its first seed, at the first point of its axes.
func shortened(t *testing.T, file string, schemes []string, set ...string) map[string]*result.Raw {
	t.Helper()
	f, err := laws.All().Load("../experiments/" + file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, Schemes: schemes, Set: append(set, "seeds=[1]")})
	if err != nil {
		t.Fatal(err)
	}
	raws := map[string]*result.Raw{}
	for _, r := range p.Runs {
		if raws[r.Scheme] == nil {
			raws[r.Scheme] = ran(t, &World{Laws: laws.Sim()}, r)
		}
	}
	return raws
}

// Edge mode over TCP: a fraction of the ACKs advertise a window. Flows end, and the queue is as long, as in full mode,
// where every ACK is written. With an interval of 100 ms still fewer advertise.
func TestFairQ_EdgeModeOverTCP(t *testing.T) {
	raws := shortened(t, "edge.yaml", []string{"fairq", "edge", "edge_slow"}, "duration=3s", "traffic.elephants.stop=3s", "traffic.mice.epochs=10", "measure.windows.loaded=[2s, 3s]")
	full := raws["fairq"]
	before, _ := shortFlows(full)
	queue, _ := settled(full)
	share := map[string]float64{}
	for _, scheme := range []string{"edge", "edge_slow"} {
		raw := raws[scheme]
		after, open := shortFlows(raw)
		now, _ := settled(raw)
		total := func(metric string) float64 { v, _ := raw.LawTotal(metric); return v }
		all, advertising, left := total("acks"), total("acks_advertised"), total("acks_left")
		share[scheme] = advertising / all
		t.Logf("%s: of %v ACKs %v advertise, %v are left, %v rewritten; p99 %v, full mode %v; queue %.0f, %.0f; %d and %d drops", scheme, all, advertising, left,
			total("acks_rewritten"), after, before, now, queue, len(raw.Drops), len(full.Drops))
		if advertising == 0 || advertising+left > all || left*2 < all {
			t.Errorf("%s: of %v ACKs %v advertise and %v are left", scheme, all, advertising, left)
		}
		if open > 0 || after > before*11/10 {
			t.Errorf("%s: p99 is %v, in full mode %v; %d did not end", scheme, after, before, open)
		}
		within(t, scheme+": mean queue over full mode's", now/queue, 0.9, 1.1)
	}
	if share["edge"] > 0.2 || share["edge_slow"] >= share["edge"] {
		t.Errorf("%.3f advertise, and once in 100 ms %.3f", share["edge"], share["edge_slow"])
	}
	if _, advertising := full.LawTotal("acks_advertised"); advertising {
		t.Errorf("full mode: %+v", full.LawTotals)
	}
}

// Over equal paths, one flow in two has both directions at one spine. Limited to half of their twin's window, the
// others no longer fill the ports; they do if their ACKs pass unlimited.
func TestFairQ_EqualPathsOverTCP(t *testing.T) {
	raws := shortened(t, "ecmp.yaml", []string{"one_sided", "divided"}, "duration=3s", "traffic.flows.stop=3s", "measure.windows.steady=[1s, 3s]")
	mean := func(raw *result.Raw) (worst float64) {
		for i := range raw.Ports {
			p := &raw.Ports[i]
			if p.Name != "spine1->leaf3" && p.Name != "spine2->leaf3" {
				continue
			}
			sum, n := 0.0, 0.0
			for _, s := range p.Samples {
				if s.At >= time.Second {
					sum, n = sum+float64(s.Backlog)*float64(s.Count), n+float64(s.Count)
				}
			}
			worst = max(worst, sum/n)
		}
		return worst
	}
	one, divided := raws["one_sided"], raws["divided"]
	t.Logf("drops: one_sided %d, divided %d; the longer of two mean queues %.0f, %.0f", len(one.Drops), len(divided.Drops), mean(one), mean(divided))
	if len(divided.Drops)*2 > len(one.Drops) {
		t.Errorf("%d drops, and %d where half of the flows pass", len(divided.Drops), len(one.Drops))
	}
	within(t, "divided: the longer of two mean queues over the target", mean(divided)/62_500, 0.8, 1.2)
	if q := mean(one); q < 90_000 {
		t.Errorf("where half of the flows pass a queue of %.0f: this test shows nothing", q)
	}
}

// Every SYN is seen here, so `scale: shim` adds nothing to what `learn` knows, and results are equal to the bit.
func TestFairQ_ShimIsLearnHere(t *testing.T) {
	digests := map[string]string{}
	for _, scale := range []string{"learn", "shim", "unify"} {
		for _, r := range incastRuns(t, "fairq") {
			if r.Point["guest_cc"] != "cubic" {
				continue
			}
			p := r.Params["fairq"].(fairq.Params)
			p.Scale, p.UnifyShift = scale, 3
			r.Params["fairq"] = p
			r.Config.Duration = 500e6
			digests[scale] = Digest(ran(t, &World{Laws: laws.Sim()}, r))
		}
	}
	if digests["learn"] != digests["shim"] || digests["learn"] == digests["unify"] {
		t.Errorf("%v: learn and shim are the same, unify another", digests)
	}
}
