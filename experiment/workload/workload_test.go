package workload

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/experiment"
	"weir/law"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

const ms = law.Duration(time.Millisecond)

func pairs(n int) []experiment.Pair {
	var out []experiment.Pair
	for i := range n {
		out = append(out, experiment.Pair{Src: fmt.Sprintf("sender%d", i+1), Dst: "receiver1"})
	}
	return out
}

func star(n int, rate law.Rate) *experiment.Graph {
	g := &experiment.Graph{}
	for i := range n {
		g.Links = append(g.Links, experiment.Link{A: fmt.Sprintf("sender%d", i+1), B: "switch", Rate: rate})
	}
	return g
}

func config(items ...experiment.Item) *experiment.Config {
	return &experiment.Config{Duration: 20_000 * ms, RTT: law.Duration(200 * time.Microsecond), Items: items, Graph: star(16, 100e6)}
}

func expand(t interface{ Fatal(...any) }, cfg *experiment.Config, seed int64) *Workload {
	w, err := Expand(cfg, seed)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func text(w *Workload) string {
	var b strings.Builder
	for _, f := range w.Flows {
		fmt.Fprintf(&b, "flow item %d pair %d mouse %d epoch %d start %dns stop %v size %v rate %v\n",
			f.Item, f.Pair, f.Mouse, f.Epoch, int64(f.Start), f.Stop, f.Size, f.Rate)
	}
	for i := range w.Loops {
		l := &w.Loops[i]
		fmt.Fprintf(&b, "loop item %d pair %d mouse %d epoch %d starts %v stop %v requests %d sizes", l.Item, l.Pair, l.Mouse, l.Epoch, l.Starts, l.Stop, l.Requests)
		for n := range 4 {
			fmt.Fprintf(&b, " %v", l.Size(n))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestGolden pins the schedule: a change of it changes every published result of a seed.
func TestGolden(t *testing.T) {
	t.Parallel()
	cfg := config(
		experiment.Item{Pairs: pairs(3), Traffic: experiment.Traffic{Name: "elephants", Pattern: "bulk", Stop: 20_000 * ms}},
		experiment.Item{Pairs: pairs(4), Traffic: experiment.Traffic{Name: "mice", Pattern: "burst", Data: "pull", Size: 11500,
			Start: 2000 * ms, Every: 100 * ms, Epochs: 3, Gap: law.Duration(24 * time.Microsecond)}},
		experiment.Item{Pairs: pairs(2), Traffic: experiment.Traffic{Name: "web", Group: "mice", Pattern: "closed_loop", CDF: "hadoop",
			Requests: 10, Concurrency: 2, Start: 2000 * ms, Every: 2000 * ms, Epochs: 2}},
		experiment.Item{Pairs: pairs(2), Traffic: experiment.Traffic{Name: "background", Pattern: "poisson", CDF: "web_search", Load: 0.3, Stop: 1000 * ms}},
		experiment.Item{Pairs: pairs(1), Traffic: experiment.Traffic{Name: "blast", Proto: "udp", Pattern: "cbr", Rate: 5e6, Start: 5 * ms}},
	)
	got := text(expand(t, cfg, 7))
	const file = "testdata/schedule.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the schedule has changed (-want +got); if meant, run with -update:\n%s", diff)
	}
}

// item draws a traffic item that Expand accepts.
func item(t *rapid.T, i int) experiment.Item {
	it := experiment.Item{Pairs: pairs(rapid.IntRange(1, 16).Draw(t, "pairs"))}
	it.Name = fmt.Sprintf("item%d", i)
	it.Group = rapid.SampledFrom([]string{"", "all"}).Draw(t, "group")
	it.Pattern = rapid.SampledFrom([]string{"bulk", "burst", "closed_loop", "poisson"}).Draw(t, "pattern")
	it.Start = law.Duration(rapid.Int64Range(0, 19_000).Draw(t, "start")) * ms
	if rapid.Bool().Draw(t, "stops") {
		it.Stop = it.Start + law.Duration(rapid.Int64Range(1, 2000).Draw(t, "stop"))*ms
	}
	it.Size = law.Bytes(rapid.Int64Range(1, 1e6).Draw(t, "size"))
	it.Gap = law.Duration(rapid.SampledFrom([]int64{0, 24_000}).Draw(t, "gap"))
	switch it.Pattern {
	case "bulk":
		it.Count = rapid.IntRange(0, 3).Draw(t, "count")
	case "burst":
		it.Count = rapid.IntRange(0, 3).Draw(t, "count")
		it.Epochs = rapid.IntRange(0, 20).Draw(t, "epochs")
		it.Every = law.Duration(rapid.Int64Range(20, 500).Draw(t, "every")) * ms
	case "closed_loop":
		it.Requests = rapid.IntRange(0, 200).Draw(t, "requests")
		it.Concurrency = rapid.IntRange(0, 5).Draw(t, "concurrency")
	case "poisson":
		it.Size = 50_000
		it.Load = rapid.Float64Range(0.01, 0.9).Draw(t, "load")
	}
	return it
}

func TestScheduleProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var items []experiment.Item
		for i := range rapid.IntRange(1, 4).Draw(t, "items") {
			items = append(items, item(t, i))
		}
		cfg := config(items...)
		seed := rapid.Int64().Draw(t, "seed")
		w := expand(t, cfg, seed)
		if diff := cmp.Diff(text(w), text(expand(t, cfg, seed))); diff != "" {
			t.Fatalf("two expansions differ:\n%s", diff)
		}
		if !slices.IsSortedFunc(w.Flows, func(a, b Flow) int { return int(a.Start - b.Start) }) {
			t.Fatal("flows are not in the order of their starts")
		}
		checkOwners(t, cfg, w)
		for i := range items {
			checkItem(t, cfg, w, i)
		}
	})
}

// checkOwners checks that a mouse of a group belongs to one pair of one item.
func checkOwners(t *rapid.T, cfg *experiment.Config, w *Workload) {
	type mouse struct {
		group string
		n     int32
	}
	owners := map[mouse][2]int32{}
	own := func(item, pair, n int32) {
		m := mouse{Group(&cfg.Items[item].Traffic), n}
		if o, ok := owners[m]; ok && o != [2]int32{item, pair} {
			t.Fatalf("mouse %v belongs to %v and to %v", m, o, [2]int32{item, pair})
		}
		owners[m] = [2]int32{item, pair}
	}
	for _, f := range w.Flows {
		own(f.Item, f.Pair, f.Mouse)
	}
	for _, l := range w.Loops {
		for c := range l.Starts {
			own(l.Item, l.Pair, l.Mouse+int32(c))
		}
	}
}

// checkItem checks counts and start times of one item.
func checkItem(t *rapid.T, cfg *experiment.Config, w *Workload, i int) {
	it := &cfg.Items[i]
	limit := cfg.Duration
	if it.Stop > 0 {
		limit = min(limit, it.Stop)
	}
	perEpoch := map[int32]int{}
	for _, f := range w.Flows {
		if f.Item != int32(i) {
			continue
		}
		perEpoch[f.Epoch]++
		if f.Start < it.Start || f.Start >= limit {
			t.Fatalf("%s: start %v is outside %v..%v", it.Name, f.Start, it.Start, limit)
		}
		late := f.Start - it.Start - law.Duration(f.Epoch)*it.Every
		if it.Gap == 0 && it.Pattern != "poisson" && (late < 0 || late >= cfg.RTT) {
			t.Fatalf("%s: jitter %v is not below one RTT", it.Name, late)
		}
	}
	if it.Pattern == "burst" && it.Stop == 0 && it.Gap == 0 {
		fit := int((cfg.Duration-it.Start-1)/it.Every) + 1
		if it.Epochs > 0 {
			fit = min(fit, it.Epochs)
		}
		for e := range fit - 1 { // the end may cut off the last
			if want := len(it.Pairs) * max(it.Count, 1); perEpoch[int32(e)] != want {
				t.Fatalf("%s: epoch %d has %d flows, not %d", it.Name, e, perEpoch[int32(e)], want)
			}
		}
	}
	if it.Pattern == "closed_loop" {
		n := 0
		for _, l := range w.Loops {
			if l.Item == int32(i) {
				n++
				if int(l.Requests) != it.Requests || len(l.Starts) > max(it.Concurrency, 1) {
					t.Fatalf("%s: loop of %d requests on %d connections", it.Name, l.Requests, len(l.Starts))
				}
			}
		}
		if it.Start < limit && n != len(it.Pairs) {
			t.Fatalf("%s: %d loops for %d pairs", it.Name, n, len(it.Pairs))
		}
	}
}

// TestSourcesAreIndependent checks that a change of one item does not change the schedule of the others.
func TestSourcesAreIndependent(t *testing.T) {
	t.Parallel()
	mice := experiment.Item{Pairs: pairs(8), Traffic: experiment.Traffic{Name: "mice", Pattern: "burst", CDF: "storage", Every: 100 * ms, Epochs: 10, Gap: 1000}}
	other := experiment.Item{Pairs: pairs(2), Traffic: experiment.Traffic{Name: "other", Pattern: "poisson", Size: 1000, Load: 0.1}}
	alone := expand(t, config(mice), 1)
	var among []Flow
	for _, f := range expand(t, config(mice, other), 1).Flows {
		if f.Item == 0 {
			among = append(among, f)
		}
	}
	if diff := cmp.Diff(alone.Flows, among); diff != "" {
		t.Errorf("another item changed the mice:\n%s", diff)
	}
	if text(alone) == text(expand(t, config(mice), 2)) {
		t.Error("two seeds give the same schedule")
	}
}

func TestDistributionMeans(t *testing.T) {
	t.Parallel()
	want := map[string]float64{"web_search": 1711250, "data_mining": 12658199, "hadoop": 120421, "storage": 40870}
	for _, name := range Distributions() {
		d, err := DistributionOf(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Mean(); math.Abs(got-want[name]) > 1 {
			t.Errorf("%s: mean %.1f B, published %.0f B", name, got, want[name])
		}
		// The quantiles at the middles of n equal slices average to the mean.
		sum, n := 0.0, 200_000
		last := law.Bytes(0)
		for i := range n {
			q := d.Quantile((float64(i) + 0.5) / float64(n))
			if q < max(last, 1) {
				t.Fatalf("%s: quantile falls from %v to %v", name, last, q)
			}
			last = q
			sum += float64(q)
		}
		if got := sum / float64(n); math.Abs(got/want[name]-1) > 0.002 {
			t.Errorf("%s: sampled mean %.0f B, published %.0f B", name, got, want[name])
		}
	}
}

func TestLn(t *testing.T) {
	t.Parallel()
	r := newRandom(1, "", "")
	for range 100_000 {
		x := r.unit() + 1e-300
		if got, want := ln(x), math.Log(x); math.Abs(got-want) > 4e-16*max(1, math.Abs(want)) {
			t.Fatalf("ln(%g) = %.17g, not %.17g", x, got, want)
		}
	}
}

func TestPoissonLoad(t *testing.T) {
	t.Parallel()
	cfg := config(experiment.Item{Pairs: pairs(4), Traffic: experiment.Traffic{Name: "p", Pattern: "poisson", Size: 10_000, Load: 0.5}})
	w := expand(t, cfg, 1)
	// 4 links x 100 Mbit/s x 0.5 x 20 s / 80,000 bit = 50,000 flows, standard deviation 224.
	if n := len(w.Flows); math.Abs(float64(n)-50_000) > 3*224 {
		t.Errorf("%d flows, expected 50000", n)
	}
	var gaps, squares float64
	last := law.Duration(0)
	for _, f := range w.Flows {
		g := float64(f.Start - last)
		last = f.Start
		gaps += g
		squares += g * g
	}
	n := float64(len(w.Flows))
	if cv2 := squares/n/(gaps/n*gaps/n) - 1; math.Abs(cv2-1) > 0.05 {
		t.Errorf("gaps have a squared coefficient of variation of %.3f, exponential ones 1", cv2)
	}
}

// TestPoissonSharedUplink checks that virtual machines behind one uplink share its load.
func TestPoissonSharedUplink(t *testing.T) {
	t.Parallel()
	cfg := config(experiment.Item{Pairs: []experiment.Pair{{Src: "s.vm1", Dst: "r"}, {Src: "s.vm2", Dst: "r"}},
		Traffic: experiment.Traffic{Name: "p", Pattern: "poisson", Size: 10_000, Load: 0.5}})
	cfg.Graph = &experiment.Graph{Links: []experiment.Link{{A: "s.vm1", B: "s.hv"}, {A: "s.vm2", B: "s.hv"}, {A: "s.hv", B: "switch", Rate: 100e6}}}
	// 100 Mbit/s x 0.5 x 20 s / 80,000 bit = 12,500 flows, standard deviation 112.
	if n := len(expand(t, cfg, 1).Flows); math.Abs(float64(n)-12_500) > 3*112 {
		t.Errorf("%d flows, expected 12500", n)
	}
}

// TestGapMean checks that with gap, starts follow each other at exponential distances, in another order each time.
func TestGapMean(t *testing.T) {
	t.Parallel()
	gap := law.Duration(24 * time.Microsecond)
	cfg := config(experiment.Item{Pairs: pairs(16), Traffic: experiment.Traffic{Name: "m", Pattern: "burst", Size: 1, Every: 10 * ms, Gap: gap}})
	w := expand(t, cfg, 3)
	sum, n, inOrder := law.Duration(0), 0, 0
	for i := 1; i < len(w.Flows); i++ {
		a, b := w.Flows[i-1], w.Flows[i]
		if a.Epoch == b.Epoch {
			sum += b.Start - a.Start
			n++
			if b.Pair > a.Pair {
				inOrder++
			}
		}
	}
	// 30,000 gaps: the mean's standard error is 0.6 %.
	if mean := float64(sum) / float64(n); math.Abs(mean/float64(gap)-1) > 0.02 {
		t.Errorf("mean gap %.0f ns, asked %v", mean, gap)
	}
	if share := float64(inOrder) / float64(n); math.Abs(share-0.5) > 0.02 {
		t.Errorf("%.3f of the neighbours rise, random order gives 0.5", share)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		traffic experiment.Traffic
		want    string
	}{
		"too many":     {experiment.Traffic{Pattern: "burst", Size: 1, Every: 1000}, "lower count or epochs"},
		"too loaded":   {experiment.Traffic{Pattern: "poisson", Size: 1, Load: 0.9}, "lower load"},
		"no size":      {experiment.Traffic{Pattern: "burst"}, "needs a size or a cdf"},
		"unknown cdf":  {experiment.Traffic{Pattern: "burst", CDF: "x"}, "one of [web_search data_mining hadoop storage]"},
		"pattern":      {experiment.Traffic{Pattern: "x"}, "one of bulk"},
		"udp":          {experiment.Traffic{Pattern: "burst", Proto: "udp", Size: 1}, "take bulk or cbr"},
		"cbr":          {experiment.Traffic{Pattern: "cbr"}, "needs a rate"},
		"stop":         {experiment.Traffic{Pattern: "bulk", Start: 5, Stop: 4}, "is not after start"},
		"epochs":       {experiment.Traffic{Pattern: "burst", Size: 1, Epochs: 3}, "needs every"},
		"bulk repeats": {experiment.Traffic{Pattern: "bulk", Every: 5}, "does not repeat"},
	} {
		c.traffic.Name = "it"
		_, err := Expand(config(experiment.Item{Pairs: pairs(2), Traffic: c.traffic}), 1)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "traffic it: ") {
			t.Errorf("%s: error %v does not say %q", name, err, c.want)
		}
	}
}

// Flows begin at the times given, in order; those that could not begin then keep their schedule.
func TestStartAt(t *testing.T) {
	cfg := &experiment.Config{Duration: 1000, Items: []experiment.Item{{Traffic: experiment.Traffic{Name: "a"}}, {Traffic: experiment.Traffic{Name: "b"}}}}
	w := Workload{Flows: []Flow{{Start: 10}, {Item: 1, Start: 20}, {Item: 1, Epoch: 1, Start: 30}, {Item: 1, Mouse: 1, Start: 40, Stop: 90}, {Start: 50, Epoch: 7}}}
	w.StartAt(cfg, map[experiment.FlowName]experiment.FlowStart{
		{Item: "a"}: {At: 35}, {Item: "b", Epoch: 1}: {At: 1000, Wrote: 3}, {Item: "b", Mouse: 1}: {At: 90}, {Item: "b"}: {At: 15, Wrote: 7}, {Item: "c"}: {At: 5},
	})
	want := []Flow{{Item: 1, Start: 15, Wrote: 7}, {Item: 1, Epoch: 1, Start: 30}, {Start: 35}, {Item: 1, Mouse: 1, Start: 40, Stop: 90}, {Start: 50, Epoch: 7}}
	if !slices.Equal(w.Flows, want) {
		t.Errorf("%v\nwant %v", w.Flows, want)
	}
}

// A connection of a closed loop begins with its first request, whichever of the loop's requests that was.
func TestStartAt_ClosedLoops(t *testing.T) {
	cfg := &experiment.Config{Duration: 1000, Items: []experiment.Item{{Traffic: experiment.Traffic{Name: "a"}}}}
	w := Workload{Loops: []Loop{
		{Mouse: 4, Epoch: 10, Requests: 3, Starts: []law.Duration{1, 2, 3}},
		{Mouse: 7, Stop: 50, Starts: []law.Duration{4}},
		{Mouse: 8, Stop: 50, Starts: []law.Duration{5}},
	}}
	at := func(t law.Duration) experiment.FlowStart { return experiment.FlowStart{At: t} }
	w.StartAt(cfg, map[experiment.FlowName]experiment.FlowStart{
		{Item: "a", Mouse: 4, Epoch: 10}: at(20), {Item: "a", Mouse: 4, Epoch: 12}: at(40), {Item: "a", Mouse: 5, Epoch: 11}: at(30),
		{Item: "a", Mouse: 6, Epoch: 13}: at(60), {Item: "a", Mouse: 7}: at(50), {Item: "a", Mouse: 8}: at(49),
	})
	got := []law.Duration{w.Loops[0].Starts[0], w.Loops[0].Starts[1], w.Loops[0].Starts[2], w.Loops[1].Starts[0], w.Loops[2].Starts[0]}
	if want := []law.Duration{20, 30, 3, 4, 49}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
