package switchd

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// even is a flow with the same bytes in each part.
func even(bytes float64) (f flowParts) {
	for i := range f {
		f[i] = bytes
	}
	return f
}

func flowsOf(n int, f flowParts) (out []flowParts) {
	for range n {
		out = append(out, f)
	}
	return out
}

func repeat(p part) (out []part) {
	for range judgeParts {
		out = append(out, p)
	}
	return out
}

// judged is a port with 8 of 40 flows limited; all flows get 2 MB/s.
func judged() *judge {
	usual := part{
		Seconds: 2, Groups: [2]groupPart{{32, 128e6, 1.28e6, 128e6}, {8, 32e6, 0.32e6, 32e6}}, Drops: 1000, Sent: 100_000, Busy: true,
	}
	return &judge{
		rules:  []Rule{{Goodput, 0.9}, {Retransmissions, 2}, {Drops, 1.5}},
		before: repeat(usual), parts: repeat(usual), flows: [2][]flowParts{flowsOf(32, even(4e6)), flowsOf(8, even(4e6))},
	}
}

// Without a control group, the time before enforcement is compared.
func judgedWhole() *judge {
	j := judged()
	j.noControl, j.flows = true, [2][]flowParts{}
	for i := range j.parts {
		p := &j.parts[i]
		p.Groups[1].add(&p.Groups[0])
		p.Groups[0] = groupPart{}
	}
	return j
}

func TestJudge(t *testing.T) {
	each := func(change func(*part)) func(*judge) {
		return func(j *judge) {
			for i := range j.parts {
				change(&j.parts[i])
			}
		}
	}
	for _, row := range []struct {
		what  string
		judge *judge
		spoil func(*judge)
		says  string // of the reason; "": nothing is broken
	}{
		{"nothing is wrong", judged(), func(*judge) {}, ""},
		{"limited flows get half", judged(), func(j *judge) { j.flows[1] = flowsOf(8, even(2e6)) },
			"goodput < 0.9: it was 0.50 of that of the unlimited flows over 10s: 8 limited flows had 8 Mbit/s each, 32 unlimited flows 16 Mbit/s each"},
		{"limited flows get nothing", judged(), func(j *judge) { j.flows[1] = flowsOf(8, even(0)) }, "it was 0.00 of"},
		{"a little less", judged(), func(j *judge) { j.flows[1] = flowsOf(8, even(3.7e6)) }, ""},
		{"half, but not in one part", judged(), func(j *judge) {
			for f := range j.flows[1] {
				j.flows[1][f] = even(2e6)
				j.flows[1][f][3] = 4e6
			}
		}, ""},
		{"half of one flow", judged(), func(j *judge) { j.flows[1] = flowsOf(1, even(2e6)) }, ""},
		{"half of two: may be chance", judged(), func(j *judge) { j.flows[1] = flowsOf(2, even(2e6)) }, ""},
		{"half of three: hardly chance", judged(), func(j *judge) { j.flows[1] = flowsOf(3, even(2e6)) }, "3 limited flows had 8 Mbit/s each"},
		{"half of eight of sixteen", judged(), func(j *judge) { j.flows = [2][]flowParts{flowsOf(8, even(4e6)), flowsOf(8, even(2e6))} }, "goodput < 0.9"},
		{"unlimited flows hardly send", judged(), func(j *judge) { j.flows = [2][]flowParts{flowsOf(32, even(1000)), flowsOf(8, even(100))} }, ""},
		{"not long enough", judged(), func(j *judge) { j.flows[1] = flowsOf(8, even(0)); j.parts = j.parts[1:] }, ""},

		{"limited flows lose three times as much", judged(), each(func(p *part) { p.Groups[1].Retransmitted *= 3 }),
			"retransmissions > 2: it was 2.99 of that of the unlimited flows over 10s: limited flows sent 3 % again, unlimited flows 1 %"},
		{"twice, less what may be chance", judged(), each(func(p *part) { p.Groups[1].Retransmitted *= 2 }), ""},
		{"three times, by a handful", judged(), each(func(p *part) { p.Groups[0].Retransmitted, p.Groups[1].Retransmitted = 0, 4500 }), ""},
		{"three times, of three flows", judged(), each(func(p *part) { p.Groups[1].Retransmitted *= 3; p.Groups[1].Flows = 3 }), ""},

		{"the port drops twice as much", judged(), each(func(p *part) { p.Drops *= 2 }),
			"drops > 1.5: it was 1.98 of that before enforcement over 10s: the port dropped 1.96 % of its packets, before 0.99 %"},
		{"twice as much, as sometimes before", judged(), func(j *judge) {
			each(func(p *part) { p.Drops *= 2 })(j)
			j.before[1].Drops *= 2
			j.before[2].Drops = 0
		}, ""},
		{"no time before enforcement", judged(), func(j *judge) { j.before = nil; j.parts = repeat(part{Seconds: 2, Drops: 1e5, Sent: 1e5}) }, ""},
		{"few drops, none before", judged(), func(j *judge) {
			j.before = repeat(part{Seconds: 2, Sent: 1e5})
			each(func(p *part) { p.Drops = 9 })(j)
		}, ""},

		{"all limited: nothing is wrong", judgedWhole(), func(*judge) {}, ""},
		{"all limited: half", judgedWhole(), each(func(p *part) { p.Groups[1].Acked /= 2 }),
			"goodput < 0.9: it was 0.50 of that before enforcement (all flows are limited) over 10s: all flows together had 320 Mbit/s, before 640 Mbit/s"},
		{"all limited: half, because they have no more to send", judgedWhole(), each(func(p *part) { p.Groups[1].Acked /= 2; p.Busy = false }), ""},
		{"all limited: half, because UDP has the other", judgedWhole(), func(j *judge) {
			each(func(p *part) { p.Groups[1].Acked /= 2; p.SentBytes = 170e6 })(j)
			for i := range j.before {
				j.before[i].SentBytes = 170e6
			}
		}, ""},
		{"all limited: half, and before they had no more either", judgedWhole(), func(j *judge) {
			each(func(p *part) { p.Groups[1].Acked /= 2 })(j)
			j.before[2].Busy = false
		}, ""},
		{"all limited: they lose three times as much", judgedWhole(), each(func(p *part) { p.Groups[1].Retransmitted *= 3 }), "flows sent 3 % again, before 1 %"},
	} {
		row.spoil(row.judge)
		if reason := row.judge.decide(); (reason == "") != (row.says == "") || !strings.Contains(reason, row.says) {
			t.Errorf("%s: %q, wanted %q", row.what, reason, row.says)
		}
	}
}

// The rank test against all orders, one by one.
func TestSmaller(t *testing.T) {
	if got := smaller([]float64{1, 2}, []float64{3, 4, 5}); math.Abs(got-0.1) > 1e-9 {
		t.Errorf("the two least of five: %g, wanted 1 in 10", got)
	}
	if smaller(nil, []float64{1}) != 1 || smaller([]float64{1}, nil) != 1 {
		t.Error("no values are no evidence")
	}
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(1, 4).Draw(t, "n"), rapid.IntRange(1, 5).Draw(t, "m")
		values := rapid.Permutation([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9}[:n+m]).Draw(t, "values")
		wins := func(a uint) (w int) { // number of pairs that the set a wins
			for i := range n + m {
				for k := range n + m {
					if a>>i&1 == 1 && a>>k&1 == 0 && values[i] > values[k] {
						w++
					}
				}
			}
			return w
		}
		drawn := uint(1)<<n - 1
		var few, all float64
		for a := range uint(1) << (n + m) {
			size := 0
			for i := range n + m {
				size += int(a >> i & 1)
			}
			if size == n {
				all++
				if wins(a) <= wins(drawn) {
					few++
				}
			}
		}
		if got := smaller(values[:n], values[n:]); math.Abs(got-few/all) > 1e-9 {
			t.Fatalf("%v below %v: %g, by all orders %g", values[:n], values[n:], got, few/all)
		}
	})
	// Equal values show nothing, and count as half a win each otherwise.
	if got := smaller([]float64{1, 1}, []float64{1, 1}); got != 1 {
		t.Errorf("equal values: %g, wanted 1", got)
	}
	if got := smaller([]float64{1, 2}, []float64{2, 3}); math.Abs(got-1./3) > 1e-9 {
		t.Errorf("with a tie: %g, wanted 2 of the 6 orders", got)
	}
}

// Flows differ a lot among themselves, over their life and from part to part, and a hash limits some that are no worse
// off. How often is a rule broken by chance? judgeChance is the promise; docs/observe.md has the logged rate.
func TestJudge_FalseAlarms(t *testing.T) {
	const draws = 20_000
	for _, flows := range []int{8, 16, 48, 200} {
		for _, treatment := range []float64{0.1, 0.5} {
			r := rand.New(rand.NewPCG(uint64(flows), uint64(treatment*100)))
			broken, would := 0, 0
			for range draws {
				j := &judge{rules: []Rule{{Goodput, 0.9}}, parts: repeat(part{Seconds: 2})}
				for range flows {
					var f flowParts
					own := 4e6 * math.Exp(r.NormFloat64()) // a third gets more than 2.7 times the usual, or less than a third
					for i := range f {
						f[i] = own * math.Exp(0.3*r.NormFloat64())
					}
					group := 0
					if r.Float64() < treatment {
						group = 1
					}
					j.flows[group] = append(j.flows[group], f)
				}
				if ratio, ok := j.ratio(j.rules[0], -1); ok && ratio < 0.9 {
					would++
				}
				if j.decide() != "" {
					broken++
				}
			}
			rate := float64(broken) / draws
			t.Logf("%d flows, %.0f %% of them limited: %.5f false alarms a population (by the ratio alone %.2f)", flows, 100*treatment, rate, float64(would)/draws)
			if rate > judgeChance {
				t.Errorf("%d flows, %.0f %% limited: %g false alarms, promised %g", flows, 100*treatment, rate, judgeChance)
			}
		}
	}
}

// How often it is detected that limited flows are worse off.
func TestJudge_Power(t *testing.T) {
	const draws = 500
	r := rand.New(rand.NewPCG(1, 2))
	for _, row := range []struct {
		flows, treatment int
		spread, ratio    float64
		least            float64
	}{{48, 24, 0.3, 0.5, 0.99}, {48, 5, 0.3, 0.5, 0.4}, {48, 5, 0.3, 0.25, 0.99}, {16, 8, 0.1, 0.5, 0.99}, {200, 20, 0.3, 0.75, 0.1}} {
		seen := 0
		for range draws {
			j := &judge{rules: []Rule{{Goodput, 0.9}}, parts: repeat(part{Seconds: 2})}
			for i := range row.flows {
				group, bytes := 0, 4e6*math.Exp(row.spread*r.NormFloat64())
				if i < row.treatment {
					group, bytes = 1, bytes*row.ratio
				}
				j.flows[group] = append(j.flows[group], even(bytes))
			}
			if j.decide() != "" {
				seen++
			}
		}
		rate := float64(seen) / draws
		t.Logf("%d limited of %d get %.0f %%: seen in %.3f", row.treatment, row.flows, 100*row.ratio, rate)
		if rate < row.least {
			t.Errorf("%+v: seen in %g", row, rate)
		}
	}
}
