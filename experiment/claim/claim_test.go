package claim

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"weir/experiment/result"
)

func number(v float64) *float64 { return &v }
func count(v int64) *int64      { return &v }

// group makes a group whose metrics are all derived from x.
func group(x float64) *result.Group {
	return &result.Group{
		Flows: 10, ThroughputMbps: number(x), Drops: count(int64(x)),
		FCT: &result.Distribution{N: 10, Mean: x, P99: 10 * x},
	}
}

type at map[string]string

// doc makes a document: each run is world, scheme, seed, axes and the value of group mice; window loaded has twice
// the value.
type run struct {
	world, scheme string
	seed          int64
	axes          at
	x             float64
}

func document(runs ...run) *result.Document {
	d := &result.Document{Experiment: "test"}
	for _, r := range runs {
		d.Runs = append(d.Runs, &result.Run{
			World: r.world, Scheme: r.scheme, Seed: r.seed, Scale: 1, Axes: r.axes,
			Groups:  map[string]*result.Group{"mice": group(r.x)},
			Ports:   map[string]*result.PortResult{"bottleneck": {Drops: count(int64(r.x))}},
			Windows: map[string]result.Window{"loaded": {Groups: map[string]*result.Group{"mice": group(2 * r.x)}}},
		})
	}
	return d
}

// one decides a claim that has one point and returns the verdict: "yes", "no", "null", "undecided".
func one(t *testing.T, text string, d *result.Document, requested ...string) (string, result.Claim) {
	t.Helper()
	got := Decide([]Statement{{Claim: text}}, d, requested)
	if len(got) != 1 {
		t.Fatalf("%s: %d decisions, want 1: %+v", text, len(got), got)
	}
	return verdict(got[0]), got[0]
}

func verdict(c result.Claim) string {
	switch {
	case c.Undecided:
		return "undecided"
	case c.Holds == nil:
		return "null"
	case *c.Holds:
		return "yes"
	}
	return "no"
}

func TestArithmeticAndPaths(t *testing.T) {
	d := document(run{"lab", "a", 1, nil, 4}, run{"lab", "b", 1, nil, 6})
	for _, c := range []struct{ text, want string }{
		{"a.mice.throughput_mbps == 4", "yes"},
		{"a.mice.throughput_mbps != 4", "no"},
		{"a.mice.fct_ms.p99 == 40", "yes"},
		{"a.loaded.mice.fct_ms.mean == 8", "yes"},
		{"a.bottleneck.drops == 4", "yes"},
		{"a.mice.drops + b.mice.drops * 2 == 16", "yes"},
		{"(a.mice.drops + b.mice.drops) * 2 == 20", "yes"},
		{"b.mice.drops - a.mice.drops - 1 == 1", "yes"}, // left to right
		{"b.mice.drops / 2 / 3 == 1", "yes"},
		{"-a.mice.drops + 5 == 1", "yes"},
		{"2 - -1 < a.mice.drops", "yes"},
		{"abs(a.mice.drops - b.mice.drops) == 2", "yes"},
		{"min(a.mice.drops, b.mice.drops, 5) == 4", "yes"},
		{"max(a.mice.drops, b.mice.drops, 5) == 6", "yes"},
		{"abs(a.mice.drops / b.mice.drops - 1) <= 0.34", "yes"},
		{"a.mice.drops >= b.mice.drops", "no"},
		{"a.mice.drops<b.mice.drops", "yes"},
		{"a.mice.drops / (b.mice.drops - 6) > 0", "null"}, // x/0
		{"a.mice.jain > 0", "null"},                       // absent
		{"a.mice.fct_ms > 0", "null"},                     // not a number
		{"a.ants.drops > 0", "null"},
		{"fraction_below(a.mice.fct_ms, 5) > 0", "null"}, // a document without the values
		{"c.mice.drops > 0", "null"},                     // asked for, but there is no run
	} {
		if got, full := one(t, c.text, d); got != c.want {
			t.Errorf("%s: %s (%s), want %s", c.text, got, full.Why, c.want)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "column 1: found the end"},
		{"a.mice.drops", "expected one of <="},
		{"a.mice.drops = 3", `found "="; expected one of <=`},
		{"a.mice.drops < 3 < 4", "expected the end"},
		{"a.mice < 3", "expected a path: a.GROUP.METRIC"},
		{"a < 3", "expected a path"},
		{"3 < 4", "names no scheme"},
		{"(a.mice.drops < 3", `expected ")"`},
		{"a.mice.drops < 3)", "expected the end"},
		{"a[cc].mice.drops < 3", "expected = and a value"},
		{"a[cc=].mice.drops < 3", "expected a value of the axis"},
		{"a[cc=x.mice.drops < 3", "expected a value of the axis"},
		{"a[cc=x,cc=y].mice.drops < 3", "each axis once"},
		{"sum(a.mice.drops) < 3", `found "sum"; expected abs`},
		{"spread(a.mice.drops) < 3", `expected ","`},
		{"spread(3, cc) < 3", "expected a path"},
		{"first_below(a.mice.drops, cc) < 3", `expected ","`},
		{"fraction_below(a.mice.fct_ms, a.mice.drops) < 3", "expected a number"},
		{"a.mice.drops < 1.2.3", "expected a number"},
		{"a.mice.drops < 1e", "expected the end"},
		{"a.mice.drops < $", "expected a number, a path"},
		{strings.Repeat("(", 100) + "a.b.c" + strings.Repeat(")", 100) + " < 1", "fewer brackets"},
		{strings.Repeat(" ", maxText) + "a.b.c < 1", "at most 2000"},
	} {
		if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: got %v, want ...%s...", c.text, err, c.want)
		}
	}
}

// The median over seeds of LEFT - RIGHT decides, not the median of each side.
func TestMedianOverSeeds(t *testing.T) {
	d := document(
		run{"lab", "a", 1, nil, 10}, run{"lab", "b", 1, nil, 11},
		run{"lab", "a", 2, nil, 1}, run{"lab", "b", 2, nil, 2},
		run{"lab", "a", 3, nil, 90}, run{"lab", "b", 3, nil, 1},
	)
	got, c := one(t, "a.mice.drops < b.mice.drops", d) // -1, -1, 89; the medians alone are 10 and 2
	if got != "yes" {
		t.Errorf("%s, want yes", got)
	}
	if !slices.Equal(c.Left, result.PerSeed{10, 1, 90}) || !slices.Equal(c.Right, result.PerSeed{11, 2, 1}) || !slices.Equal(c.Seeds, []int64{1, 2, 3}) {
		t.Errorf("left %v right %v seeds %v", c.Left, c.Right, c.Seeds)
	}
	// Even count: the mean of the middle two (-1 and 0).
	d = document(run{"lab", "a", 1, nil, 1}, run{"lab", "b", 1, nil, 2}, run{"lab", "a", 2, nil, 2}, run{"lab", "b", 2, nil, 2})
	if got, _ := one(t, "a.mice.drops < b.mice.drops", d); got != "yes" {
		t.Errorf("even count: %s, want yes", got)
	}
	// If one scheme lacks a seed, the claim stays open.
	d = document(run{"lab", "a", 1, nil, 1}, run{"lab", "b", 1, nil, 2}, run{"lab", "a", 2, nil, 1})
	got, c = one(t, "a.mice.drops < b.mice.drops", d)
	if got != "null" || !math.IsNaN(c.Right[1]) || c.Left[1] != 1 || !strings.Contains(c.Why, "no run of b with seed 2") {
		t.Errorf("%s %+v", got, c)
	}
}

var axes = document(
	run{"lab", "a", 1, at{"cc": "cubic", "n": "5"}, 10}, run{"lab", "a", 1, at{"cc": "cubic", "n": "20"}, 40}, run{"lab", "a", 1, at{"cc": "cubic", "n": "100"}, 15},
	run{"lab", "a", 1, at{"cc": "reno", "n": "5"}, 20}, run{"lab", "a", 1, at{"cc": "reno", "n": "20"}, 50}, run{"lab", "a", 1, at{"cc": "reno", "n": "100"}, 30},
	run{"lab", "b", 1, at{"n": "5"}, 11}, run{"lab", "b", 1, at{"n": "20"}, 12}, run{"lab", "b", 1, at{"n": "100"}, 13},
	run{"sim", "a", 1, at{"cc": "cubic", "n": "5"}, 1}, run{"sim", "b", 1, at{"n": "5"}, 2},
)

// There is one decision in each world for each value of every axis that the claim leaves open. A scheme that does
// not use an axis has the same runs at all its values.
func TestOpenAxes(t *testing.T) {
	decide := func(text string) map[string]string {
		out := map[string]string{}
		for _, c := range Decide([]Statement{{Claim: text}}, axes, nil) {
			key, _ := json.Marshal(c.For)
			out[c.World+string(key)] = verdict(c)
		}
		return out
	}
	equal := func(text string, want map[string]string) {
		t.Helper()
		got := decide(text)
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s at %s: %q, want %s (all: %v)", text, k, got[k], v, got)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d decisions, want %d: %v", text, len(got), len(want), got)
		}
	}
	equal("a.mice.drops < b.mice.drops", map[string]string{
		`lab{"cc":"cubic","n":"5"}`: "yes", `lab{"cc":"cubic","n":"20"}`: "no", `lab{"cc":"cubic","n":"100"}`: "no",
		`lab{"cc":"reno","n":"5"}`: "no", `lab{"cc":"reno","n":"20"}`: "no", `lab{"cc":"reno","n":"100"}`: "no",
		`sim{"cc":"cubic","n":"5"}`: "yes",
	})
	equal("a[n=5].mice.drops < a[cc=cubic,n=20].mice.drops", map[string]string{
		`lab{"cc":"cubic"}`: "yes", `lab{"cc":"reno"}`: "yes", `sim{}`: "undecided",
	})
	equal("a[cc=cubic].mice.drops - b.mice.drops > 0", map[string]string{
		`lab{"n":"5"}`: "no", `lab{"n":"20"}`: "yes", `lab{"n":"100"}`: "yes", `sim{"n":"5"}`: "no",
	})
	// b has no axis cc: its runs count for every cc.
	equal("b[cc=reno,n=5].mice.drops == 11", map[string]string{`lab{}`: "yes", `sim{}`: "no"})
	// The axis of spread and first_below is not left open.
	equal("spread(a.mice.drops, n) == 30", map[string]string{`lab{"cc":"cubic"}`: "yes", `lab{"cc":"reno"}`: "yes", `sim{"cc":"cubic"}`: "no"})
	// 15 is the first below 0.5 x 40, and 10 comes before it; 20 is below half of 50.
	equal("first_below(a.mice.drops, n, 0.5) == 5", map[string]string{`lab{"cc":"cubic"}`: "yes", `lab{"cc":"reno"}`: "yes", `sim{"cc":"cubic"}`: "no"})
	equal("first_below(b.mice.drops, n, 0.5) > 100", map[string]string{`lab{}`: "yes", `sim{}`: "yes"}) // never reached: +Inf, above everything
	equal("first_below(b.mice.drops, n, 0.5) == first_below(b.mice.drops, n, 0.1)", map[string]string{`lab{}`: "null", `sim{}`: "null"})
}

func TestUndecided(t *testing.T) {
	d := document(run{"lab", "a", 1, at{"cc": "reno"}, 1})
	d.Skipped = []result.Skip{{Scheme: "s", World: "lab", Reason: "law static exists in sim only"}}
	d.File = json.RawMessage(`{"vary":[{"key":"guests.cc"},{"as":"n","key":"topology.senders","values":[5,1e6]},{"key":"schemes.ecn.params.threshold","values":["15KB"]},
		{"as":"net","cases":{"fast":{}}},{"key":"topology.links","values":[[1],[2]]}]}`)
	for _, c := range []struct{ text, want, why string }{
		{"a.mice.drops < b.mice.drops", "undecided", "scheme b was not asked for"},
		{"a.mice.drops < s.mice.drops", "undecided", "scheme s was skipped: law static"},
		{"a[cc=cubic].mice.drops < 3", "undecided", "cc=cubic was not run"},
		{"a[cc=reno].mice.drops < 3", "yes", ""},
		{"a[n=5].mice.drops < 3", "yes", ""}, // declared, but a does not use it
		{"a[n=1000000].mice.drops < 3", "yes", ""},
		{"a[n=6].mice.drops < 3", "undecided", "n=6 was not run"},
		{"a[threshold=15KB].mice.drops < 3", "yes", ""},
		{"a[threshold=30KB].mice.drops < 3", "undecided", "threshold=30KB was not run"}, // a sweep of one value
		{"a[net=fast].mice.drops < 3", "yes", ""},
		{"a[net=slow].mice.drops < 3", "undecided", "net=slow was not run"},
		{"a[links=1].mice.drops < 3", "yes", ""},
		{"a[m=5].mice.drops < 3", "undecided", "m=5"}, // an option removed the axis
		{"spread(a.mice.drops, n) < 3", "undecided", "a was not run over n"},
	} {
		got, full := one(t, c.text, d, "a", "s")
		if got != c.want || !strings.Contains(full.Why, c.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", c.text, got, full.Why, c.want, c.why)
		}
	}
	if got := Decide([]Statement{{Claim: "a.mice.drops < 3"}}, &result.Document{}, nil); len(got) != 0 {
		t.Errorf("decided without a run: %+v", got)
	}
}

// A fatal unmet setting leaves the claims that it concerns undecided, with any seed; the others are decided.
func TestUndecided_FatalUnmet(t *testing.T) {
	for _, c := range []struct {
		what  string
		unmet result.Unmet
		claim string
		want  string
	}{
		{"a note", result.Unmet{Key: "network.rtt", Severity: result.Note, Text: "t"}, "a.mice.drops > 1", "yes"},
		{"a warning", result.Unmet{Severity: result.Warning}, "a.mice.drops > 5", "no"},
		{"the run", result.Unmet{Severity: result.Fatal, Text: "no such cc"}, "a.mice.drops > 1", "undecided"},
		{"the run, of a port", result.Unmet{Severity: result.Fatal}, "a.bottleneck.drops > 5", "undecided"},
		{"the run, another scheme", result.Unmet{Severity: result.Fatal}, "b.mice.drops > 1", "yes"},
		{"the run, on the right", result.Unmet{Severity: result.Fatal}, "b.mice.drops > a.mice.drops", "undecided"},
		{"the group", result.Unmet{Group: "mice", Severity: result.Fatal}, "a.mice.drops > 5", "undecided"},
		{"the group, in a window", result.Unmet{Group: "mice", Severity: result.Fatal}, "a.loaded.mice.drops > 1", "undecided"},
		{"the group, absent metric", result.Unmet{Group: "mice", Severity: result.Fatal}, "a.mice.jain > 1", "undecided"},
		{"the group, a port", result.Unmet{Group: "mice", Severity: result.Fatal}, "a.bottleneck.drops > 1", "yes"},
		{"another group", result.Unmet{Group: "long", Severity: result.Fatal}, "a.mice.drops > 5", "no"},
	} {
		d := document(run{"lab", "a", 1, nil, 4}, run{"lab", "a", 2, nil, 4}, run{"lab", "b", 1, nil, 6}, run{"lab", "b", 2, nil, 6})
		d.Runs[1].Unmet = []result.Unmet{c.unmet}
		got, decided := one(t, c.claim, d)
		if got != c.want || got == "undecided" && !strings.Contains(decided.Why, "a, seed 2: "+c.unmet.Text) {
			t.Errorf("%s: %s is %s (%s), want %s", c.what, c.claim, got, decided.Why, c.want)
		}
	}
}

func TestAxisValuesAsNumbers(t *testing.T) {
	for text, want := range map[string]float64{"45": 45, "0.5": 0.5, "2.5ms": 2.5, "100us": 0.1, "1Gbit": 1000, "11.5KB": 11500, "15pkt": 15, "cubic": 3} {
		if got := axisNumber(text, 2); got != want {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{{"0.50", "0.5", true}, {"1000us", "1000us", true}, {"1", "1ms", false}, {"5", "50", false}, {"1e6", "1000000", true}, {"cubic", "reno", false}, {"15pkt", "15", false}} {
		if got := SameValue(c.a, c.b); got != c.same {
			t.Errorf("%s and %s: same %v", c.a, c.b, got)
		}
	}
}

// A run that was cut short has fewer drops because it was cut short.
func TestPartialRun_DecidesNothing(t *testing.T) {
	d := document(run{"lab", "a", 1, nil, 4}, run{"lab", "b", 1, nil, 6}, run{"lab", "a", 2, nil, 4}, run{"lab", "b", 2, nil, 6})
	d.Runs[2].Partial = true
	got, c := one(t, "a.mice.drops < b.mice.drops", d)
	if got != "undecided" || c.Why != "a, seed 2: the run was cut short" {
		t.Errorf("%s (%s)", got, c.Why)
	}
	if got, _ := one(t, "b.mice.drops > 5", d); got != "yes" {
		t.Errorf("a claim about whole runs: %s", got)
	}
}

// Over one value of an axis that has two, the spread is 0, which says nothing.
func TestOverAxis_NeedsAllItsValues(t *testing.T) {
	d := document(run{"sim", "a", 1, at{"cc": "cubic"}, 4}, run{"sim", "b", 1, at{"cc": "cubic"}, 4}, run{"sim", "b", 1, at{"cc": "reno"}, 9})
	for _, file := range []string{`{"vary":[{"key":"guests.cc","values":["cubic","reno"]}]}`, `{"vary":[{"as":"cc","cases":{"cubic":{},"reno":{}}}]}`} {
		d.File = []byte(file)
		for _, text := range []string{"spread(a.mice.drops, cc) <= 1", "first_below(a.mice.drops, cc, 0.5) > 1"} {
			got, c := one(t, text, d)
			if got != "undecided" || c.Why != "a was run at 1 of 2 values of cc" {
				t.Errorf("%s: %s (%s)", text, got, c.Why)
			}
		}
		if got, c := one(t, "spread(b.mice.drops, cc) == 5", d); got != "yes" {
			t.Errorf("over all values: %s (%s)", got, c.Why)
		}
	}
}
