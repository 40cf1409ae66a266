package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/experiment/claim"
	"weir/experiment/result"
)

// aRun is a run with a single metric, mice.drops.
func aRun(world, scheme, axes string, seed, drops int64) *result.Run {
	r := &result.Run{
		World: world, Scheme: scheme, Seed: seed, Scale: 1, Axes: map[string]string{},
		Groups: map[string]*result.Group{"mice": {Drops: &drops}}, Ports: map[string]*result.PortResult{},
	}
	for _, a := range strings.Fields(axes) {
		axis, value, _ := strings.Cut(a, "=")
		r.Axes[axis] = value
	}
	return r
}

func side(name string, runs ...*result.Run) Side {
	return Side{Name: name, Doc: &result.Document{Experiment: "x", Weir: name, Runs: runs}}
}

func pairsOf(c *Comparison) []string {
	var out []string
	for _, p := range c.Pairs {
		text := fmt.Sprintf("%s | %s", p.A, p.B)
		for _, d := range p.Metrics {
			if d.Metric == "mice.drops" {
				text += fmt.Sprintf(" | %v %v", d.A, d.B)
			}
		}
		out = append(out, text)
	}
	return out
}

// Cells that are compared, and cells without a partner.
func TestCompare_Matches(t *testing.T) {
	lab := side("lab", aRun("lab", "droptail", "cc=reno", 1, 10), aRun("lab", "droptail", "cc=cubic", 1, 11), aRun("lab", "ecn", "cc=reno mark=10KB", 1, 12))
	both := side("both", aRun("lab", "droptail", "cc=reno", 1, 20), aRun("sim", "droptail", "cc=reno", 1, 21), aRun("sim", "red", "", 1, 22))
	swept := side("swept", aRun("sim", "ecn", "load=0.5", 1, 30), aRun("sim", "ecn", "load=0.8", 1, 31), aRun("sim", "droptail", "", 1, 32))
	plain := side("plain", aRun("sim", "ecn", "", 1, 40))
	numbers := side("numbers", aRun("sim", "ecn", "load=0.50", 1, 50))
	for name, c := range map[string]struct {
		a, b         Side
		o            Options
		want         []string
		onlyA, onlyB []string
	}{
		"same scheme, world and point": {a: lab, b: both,
			want:  []string{"droptail in lab, cc=reno | droptail in lab, cc=reno | 10 20"},
			onlyA: []string{"droptail in lab, cc=cubic", "ecn in lab, cc=reno, mark=10KB"}, onlyB: []string{"droptail in sim, cc=reno", "red in sim"}},
		"worlds within one": {a: both, b: both, o: Options{Worlds: [2]string{"lab", "sim"}},
			want: []string{"droptail in lab, cc=reno | droptail in sim, cc=reno | 20 21"}, onlyB: []string{"red in sim"}},
		"schemes, one of which an axis does not touch": {a: lab, b: lab, o: Options{Schemes: [2]string{"droptail", "ecn"}},
			want:  []string{"droptail in lab, cc=reno | ecn in lab, cc=reno, mark=10KB | 10 12"},
			onlyA: []string{"droptail in lab, cc=cubic"}},
		"a scheme that is run once for all values": {a: swept, b: swept, o: Options{Schemes: [2]string{"droptail", "ecn"}},
			want: []string{"droptail in sim | ecn in sim, load=0.5 | 32 30", "droptail in sim | ecn in sim, load=0.8 | 32 31"}},
		"two values of an axis": {a: swept, b: swept, o: Options{At: map[string][2]string{"load": {"0.5", "0.80"}}},
			want: []string{"ecn in sim, load=0.5 | ecn in sim, load=0.8 | 30 31"}, onlyA: []string{"droptail in sim"}, onlyB: []string{"droptail in sim"}},
		"an axis that the other has not, chosen": {a: plain, b: swept, o: Options{At: map[string][2]string{"load": {"0.8", "0.8"}}},
			want: []string{"ecn in sim | ecn in sim, load=0.8 | 40 31"}, onlyB: []string{"droptail in sim"}},
		"one world each, which differ": {a: lab, b: side("sim", aRun("sim", "droptail", "cc=reno", 1, 60)),
			want:  []string{"droptail in lab, cc=reno | droptail in sim, cc=reno | 10 60"},
			onlyA: []string{"droptail in lab, cc=cubic", "ecn in lab, cc=reno, mark=10KB"}},
		"a value written otherwise": {a: swept, b: numbers,
			want: []string{"ecn in sim, load=0.5 | ecn in sim, load=0.50 | 30 50"}, onlyA: []string{"ecn in sim, load=0.8", "droptail in sim"}},
	} {
		c.o.Confidence = 0.95
		got, err := Compare(c.a, c.b, c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff([][]string{c.want, append([]string{}, c.onlyA...), append([]string{}, c.onlyB...)}, [][]string{pairsOf(got), got.OnlyA, got.OnlyB}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A comparison that is impossible gives an error of one line, which says what can be compared.
func TestCompare_Refuses(t *testing.T) {
	a := side("a.json", aRun("sim", "ecn", "load=0.5", 1, 1), aRun("sim", "droptail", "", 1, 1))
	plain := side("b.json", aRun("sim", "ecn", "", 1, 1))
	partial := aRun("sim", "ecn", "", 1, 1)
	partial.Partial = true
	other := aRun("sim", "ecn", "load=0.5", 1, 1)
	other.Groups = map[string]*result.Group{"elephants": {}}
	for _, c := range []struct {
		a, b Side
		o    Options
		want string
	}{
		{a, plain, Options{}, "only A has an axis load: choose a value of it with --at load=VALUE"},
		{a, side("c.json", aRun("lab", "red", "load=0.5", 1, 1), aRun("sim", "red", "load=0.5", 1, 1)), Options{}, "put one against the other with --scheme X,Y"},
		{a, side("empty.json"), Options{}, "empty.json has no runs"},
		{a, side("cut.json", partial), Options{}, "cut.json has no finished run"},
		{a, a, Options{Schemes: [2]string{"ecn", "red"}}, `a.json has no scheme "red"; it has ecn, droptail`},
		{a, a, Options{Worlds: [2]string{"lab", "sim"}}, `a.json has no runs in world "lab"; it has sim`},
		{a, a, Options{At: map[string][2]string{"cc": {"x", "y"}}}, `there is no axis "cc"; there are: load`},
		{a, a, Options{At: map[string][2]string{"load": {"0.5", "9"}}}, "load=9 was not run in B; there are: 0.5"},
		{a, a, Options{Metrics: []string{"mice.nothing"}, Schemes: [2]string{"droptail", "ecn"}}, "has the metric mice.nothing"},
		{a, side("d.json", aRun("sim", "droptail", "", 1, 1), aRun("sim", "droptail", "", 1, 2)), Options{}, "d.json holds two runs of droptail in sim with seed 1"},
		{plain, plain, Options{Confidence: 1}, "between 0 and 1"},
		{a, side("e.json", other), Options{Metrics: []string{"elephants.drops"}}, "has the metric elephants.drops"},
	} {
		if c.o.Confidence == 0 {
			c.o.Confidence = 0.95
		}
		_, err := Compare(c.a, c.b, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// Pairing is checked against a plain reading of its rule: two cells belong together when no axis that both have
// differs, and an axis that one lacks is an axis that its result has elsewhere.
func TestCompare_PairsAsTheRuleSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Side {
			var runs []*result.Run
			seen := map[string]bool{}
			for i := range rapid.IntRange(1, 6).Draw(t, name) {
				var axes []string
				for _, axis := range []string{"x", "y"} {
					if v := rapid.SampledFrom([]string{"", "1", "1.0", "2"}).Draw(t, axis); v != "" {
						axes = append(axes, axis+"="+v)
					}
				}
				r := aRun(rapid.SampledFrom([]string{"lab", "sim"}).Draw(t, "world"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "scheme"), strings.Join(axes, " "), 1, int64(i))
				if key := fmt.Sprint(r.World, r.Scheme, r.Axes); !seen[key] {
					seen[key], runs = true, append(runs, r)
				}
			}
			return side(name, runs...)
		}
		a, b := draw("left"), draw("right")
		has := func(s Side, axis string) bool {
			return slices.ContainsFunc(s.Doc.Runs, func(r *result.Run) bool { _, ok := r.Axes[axis]; return ok })
		}
		distinct := func(s Side, of func(*result.Run) string) int {
			set := map[string]bool{}
			for _, r := range s.Doc.Runs {
				set[of(r)] = true
			}
			return len(set)
		}
		byWorld, byScheme := func(r *result.Run) string { return r.World }, func(r *result.Run) string { return r.Scheme }
		var want []string
		for _, x := range a.Doc.Runs {
			for _, y := range b.Doc.Runs {
				belong := (x.World == y.World || distinct(a, byWorld) == 1 && distinct(b, byWorld) == 1) &&
					(x.Scheme == y.Scheme || distinct(a, byScheme) == 1 && distinct(b, byScheme) == 1)
				for _, axis := range []string{"x", "y"} {
					v, inX := x.Axes[axis]
					w, inY := y.Axes[axis]
					switch {
					case inX && inY:
						belong = belong && claim.SameValue(v, w)
					case inX:
						belong = belong && has(b, axis)
					case inY:
						belong = belong && has(a, axis)
					}
				}
				if belong {
					want = append(want, fmt.Sprintf("%d %d", *x.Groups["mice"].Drops, *y.Groups["mice"].Drops))
				}
			}
		}
		got, err := Compare(a, b, Options{Confidence: 0.95})
		if (err != nil) != (len(want) == 0) {
			t.Fatalf("%v; want %d pairs", err, len(want))
		}
		if err != nil {
			return
		}
		var pairs []string
		for _, p := range got.Pairs {
			for _, d := range p.Metrics {
				if d.Metric == "mice.drops" {
					pairs = append(pairs, fmt.Sprintf("%v %v", d.A, d.B))
				}
			}
		}
		if !slices.Equal(pairs, want) {
			t.Fatalf("pairs %v, want %v", pairs, want)
		}
	})
}

// A metric that only one side has is listed and not made up. If some seeds lack it, the others are compared.
func TestCompare_AbsentMetrics(t *testing.T) {
	var left, right []*result.Run
	for seed := range int64(3) {
		x, y := aRun("lab", "ecn", "", seed, 10+seed), aRun("sim", "ecn", "", seed, 13+2*seed)
		y.Groups["mice"].FLoss = new(int64(0))
		if seed == 1 {
			y.Groups["mice"].Drops = nil
		}
		left, right = append(left, x), append(right, y)
	}
	c, err := Compare(side("a", left...), side("b", right...), Options{Confidence: 0.95, Metrics: []string{"mice.drops", "mice.timeouts_floss"}})
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pairs[0]
	if !slices.Equal(p.OnlyB, []string{"mice.timeouts_floss"}) || len(p.OnlyA) != 0 || len(p.Metrics) != 1 {
		t.Fatalf("%+v", p)
	}
	if d := p.Metrics[0]; d.A != 11 || d.B != 15 || d.NA != 2 || d.By != Paired {
		t.Errorf("%+v, want the means of seeds 0 and 2", d)
	}
}

// Beyond lists the differences that are both larger than the share and significant.
func TestBeyond(t *testing.T) {
	var left, right []*result.Run
	for seed := range int64(4) {
		x, y := aRun("sim", "ecn", "", seed, 100), aRun("sim", "ecn", "", seed, 110)
		x.Groups["mice"].Flows, y.Groups["mice"].Flows = 50, 50+int(seed%2)*40 // 40 % more, but not significant
		x.Groups["mice"].Bytes, y.Groups["mice"].Bytes = 0, 1
		left, right = append(left, x), append(right, y)
	}
	c, err := Compare(side("a", left...), side("b", right...), Options{Confidence: 0.95, Metrics: []string{"mice.drops", "mice.flows", "mice.bytes"}})
	if err != nil {
		t.Fatal(err)
	}
	for share, want := range map[float64]int{0.05: 2, 0.1: 1, 0.2: 1} { // from 0 is beyond any share
		if got := c.Beyond(share); len(got) != want {
			t.Errorf("beyond %v: %v, want %d", share, got, want)
		}
	}
	if c.Intervals != 3 || c.Significant != 2 {
		t.Errorf("%d of %d intervals", c.Significant, c.Intervals)
	}
}

// Missing names everything that one side lacks, because it could hide a difference. A metric that another scheme lacks is no loss, unless it is named.
func TestMissing(t *testing.T) {
	runs := func(scheme string, fct bool, seeds ...int64) (out []*result.Run) {
		for _, s := range seeds {
			r := aRun("sim", scheme, "", s, 10)
			if fct {
				r.Groups["mice"].FCT = &result.Distribution{N: 1, Mean: 3, P50: 3, P99: 3}
			}
			out = append(out, r)
		}
		return out
	}
	whole := side("a", append(runs("ecn", true, 1, 2), runs("red", true, 1, 2)...)...)
	p99 := []string{"mice.fct_ms.p99"}
	lost := "ecn in sim: mice.fct_ms.p99 is only in A"
	for name, c := range map[string]struct {
		a, b    Side
		o       Options
		want    []string // some of what is listed
		nothing bool
	}{
		"nothing":                    {a: whole, b: whole, nothing: true, o: Options{Schemes: [2]string{"ecn", "red"}}},
		"a scheme":                   {a: whole, b: side("b", runs("ecn", true, 1, 2)...), want: []string{"red in sim is only in A"}},
		"a named metric":             {a: side("a", runs("ecn", true, 1, 2)...), b: side("b", runs("ecn", false, 1, 2)...), o: Options{Metrics: append(p99, "mice.drops")}, want: []string{lost}},
		"a metric":                   {a: side("a", runs("ecn", true, 1, 2)...), b: side("b", runs("ecn", false, 1, 2)...), want: []string{lost}},
		"a named metric, in A":       {a: side("a", runs("ecn", false, 1, 2)...), b: side("b", runs("ecn", true, 1, 2)...), o: Options{Metrics: p99}, want: []string{"ecn in sim: mice.fct_ms.p99 is only in B"}},
		"a metric of another scheme": {a: side("a", runs("ecn", true, 1, 2)...), b: side("b", runs("red", false, 1, 2)...), nothing: true},
		"an interval":                {a: side("a", runs("ecn", true, 1, 2)...), b: side("b", runs("ecn", true, 1)...), o: Options{Metrics: p99}, want: []string{"ecn in sim: mice.fct_ms.p99 has no interval"}},
	} {
		c.o.Confidence = 0.95
		got, err := Compare(c.a, c.b, c.o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list := got.Missing(c.o.Metrics)
		if c.nothing && len(list) > 0 {
			t.Errorf("%s: %q", name, list)
		}
		for _, w := range c.want {
			if !slices.Contains(list, w) {
				t.Errorf("%s: %q, want %q", name, list, w)
			}
		}
	}
}

// A metric of a run with a fatal unmet setting is not compared, as claims about it are undecided. The setting is named.
func TestCompare_FatalUnmet(t *testing.T) {
	runs := func(unmet ...result.Unmet) []*result.Run {
		a, b, c := aRun("sim", "ecn", "", 1, 10), aRun("sim", "ecn", "", 2, 12), aRun("sim", "ecn", "", 3, 14)
		for _, r := range []*result.Run{a, b, c} {
			r.Groups["long"] = &result.Group{Drops: new(int64(5))}
		}
		c.Unmet = unmet
		return []*result.Run{a, b, c}
	}
	mice := result.Unmet{Key: "traffic", Group: "mice", Severity: result.Fatal, Text: "traffic mice: no connection ever opened"}
	c, err := Compare(side("a", runs()...), side("b", runs(mice)...), Options{Confidence: 0.95, Metrics: []string{"mice.drops", "long.drops"}})
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Pairs[0].Metrics; d[0].NB != 2 || d[0].A != 11 || d[1].NB != 3 {
		t.Errorf("%+v, want two seeds of mice and three of long", d)
	}
	if !slices.Equal(c.B.Fatal, []string{mice.Text}) || len(c.A.Fatal) != 0 {
		t.Errorf("the head names %q and %q", c.A.Fatal, c.B.Fatal)
	}
	whole := []*result.Run{runs()[0]}
	whole[0].Unmet = []result.Unmet{mice}
	if c, err = Compare(side("a", runs()...), side("b", whole...), Options{Confidence: 0.95, Metrics: []string{"mice.drops"}}); err != nil || c.HasInterval() || len(c.Missing([]string{"mice.drops"})) == 0 {
		t.Errorf("%v; one side has no whole run, but there is an interval, or nothing is missing", err)
	}
	other := runs()[0]
	other.Unmet = whole[0].Unmet
	_, err = Compare(side("a", other), side("b", whole...), Options{Confidence: 0.95, Metrics: []string{"mice.drops"}})
	if err == nil || !strings.Contains(err.Error(), mice.Text) {
		t.Errorf("%v, want the reason", err)
	}
}

func TestFileChanges(t *testing.T) {
	a := json.RawMessage(`{"id":"x","network":{"rate":"1Gbit"},"traffic":[{"name":"m","size":"1KB"}],"seeds":[1],"lab":{"seeds":[1]},"vary":[{"key":"a"}],"guests":{"ecn":false},
		"worlds":["lab"],"schemes":[{"name":"ecn"}]}`)
	b := json.RawMessage(`{"id":"x","network":{"rate":"2Gbit"},"traffic":[{"name":"m","size":"1KB","count":2}],"seeds":[2],"claims":["a"],"guests":{"ecn":true},
		"worlds":["lab","sim"],"schemes":[{"name":"ecn","worlds":["sim"]}]}`)
	want := []FileChange{{"guests.ecn", "false", "true"}, {"network.rate", "1Gbit", "2Gbit"}, {"traffic.m.count", "", "2"}}
	if diff := cmp.Diff(want, fileChanges(a, b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := fileChanges(nil, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// withFlows returns a document whose runs have completion times: those of seed s are base + s, base + s + 1 ...
func withFlows(scheme string, base float64, seeds ...int64) *result.Document {
	doc := &result.Document{Experiment: "x"}
	for _, s := range seeds {
		r := aRun("sim", scheme, "load=0.5", s, 0)
		r.Groups["mice"].FCT = &result.Distribution{N: 5}
		r.Detail = &result.Detail{}
		for i := range 5 {
			r.Detail.Flows = append(r.Detail.Flows, result.FlowDetail{Group: "mice", FCTMs: new(base + float64(s) + float64(4-i))})
		}
		r.Detail.Flows = append(r.Detail.Flows, result.FlowDetail{Group: "mice"}) // unfinished
		doc.Runs = append(doc.Runs, r)
	}
	return doc
}

func writeFlows(t *testing.T, doc *result.Document) string {
	t.Helper()
	var b bytes.Buffer
	if err := doc.WriteFlows(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "flows.parquet")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Distributions of flows cover only the seeds that are compared.
func TestFlows_ComparedBySeed(t *testing.T) {
	a, b := withFlows("ecn", 0, 1, 2, 9), withFlows("ecn", 10, 1, 2, 3)
	left, right := Side{Name: "a", Doc: a}, Side{Name: "b", Doc: b}
	var err error
	if left.Flows, err = ReadFlows(writeFlows(t, a), a); err != nil {
		t.Fatal(err)
	}
	if right.Flows, err = ReadFlows(writeFlows(t, b), b); err != nil {
		t.Fatal(err)
	}
	if want := []float64{1, 2, 3, 4, 5}; !slices.Equal(left.Flows[0]["mice"], want) {
		t.Errorf("flows %v, want %v", left.Flows[0]["mice"], want)
	}
	c, err := Compare(left, right, Options{Confidence: 0.95})
	if err != nil {
		t.Fatal(err)
	}
	d := c.Pairs[0].Distributions
	if len(d) != 1 || d[0].Group != "mice" || d[0].A.N != 10 || d[0].B.N != 10 || d[0].A.Max != 6 || d[0].B.Max != 16 || math.Abs(d[0].KS-1) > 1e-9 {
		t.Fatalf("%+v, want 2 x 5 flows up to 6 and 16 ms, distance 1", d)
	}
	if d[0].A.Quantiles[2] != 3.5 || d[0].BetweenA == nil || math.Abs(*d[0].BetweenA-0.2) > 1e-9 {
		t.Errorf("median %v, from seed to seed %v; want 3.5, 0.2", d[0].A.Quantiles[2], d[0].BetweenA)
	}
}

// A file of flows that belongs to other results is refused.
func TestReadFlows_Refuses(t *testing.T) {
	doc := withFlows("ecn", 0, 1, 2)
	for name, other := range map[string]*result.Document{
		"other scheme": withFlows("red", 0, 1, 2), "other seeds": withFlows("ecn", 0, 1, 3), "more runs": withFlows("ecn", 0, 1, 2, 3),
	} {
		if _, err := ReadFlows(writeFlows(t, other), doc); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	moved := withFlows("ecn", 0, 1, 2)
	moved.Runs[1].Axes = maps.Clone(moved.Runs[1].Axes)
	moved.Runs[1].Axes["load"] = "0.9"
	if _, err := ReadFlows(writeFlows(t, moved), doc); err == nil {
		t.Error("other axes: taken")
	}
	path := filepath.Join(t.TempDir(), "flows.parquet")
	for _, text := range []string{"", "no parquet"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFlows(path, doc); err == nil {
			t.Errorf("%q: taken", text)
		}
	}
	var series bytes.Buffer
	if err := doc.WriteSeries(&series); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, series.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFlows(path, doc); err == nil || !strings.Contains(err.Error(), "it has no column") {
		t.Errorf("rows of something else: %v", err)
	}
}
