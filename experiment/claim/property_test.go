package claim

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/experiment/result"
)

// tree is a random expression with its value, calculated as it is built.
type tree struct {
	text  string
	value []float64 // by seed
}

// expression draws an expression over two schemes; left and right are their mice.throughput_mbps.
func expression(t *rapid.T, left, right []float64, depth int) tree {
	kind := rapid.IntRange(0, 8).Draw(t, "kind")
	if depth == 0 {
		kind %= 3
	}
	sub := func() tree { return expression(t, left, right, depth-1) }
	both := func(op string, f func(a, b float64) float64) tree {
		a, b := sub(), sub()
		out := tree{text: fmt.Sprintf("(%s) %s (%s)", a.text, op, b.text)}
		for i := range a.value {
			out.value = append(out.value, f(a.value[i], b.value[i]))
		}
		return out
	}
	switch kind {
	case 0:
		return tree{"a.mice.throughput_mbps", left}
	case 1:
		return tree{"b.mice.throughput_mbps", right}
	case 2:
		n := rapid.IntRange(0, 9).Draw(t, "n")
		return tree{fmt.Sprint(n), slices.Repeat([]float64{float64(n)}, len(left))}
	case 3:
		return both("+", func(a, b float64) float64 { return a + b })
	case 4:
		return both("-", func(a, b float64) float64 { return a - b })
	case 5:
		return both("*", func(a, b float64) float64 { return a * b })
	case 6:
		return both("/", func(a, b float64) float64 {
			if b == 0 {
				return math.NaN()
			}
			return a / b
		})
	}
	a, b := sub(), sub()
	out := tree{text: fmt.Sprintf("%s(%s, %s)", []string{"min", "max"}[kind-7], a.text, b.text)}
	for i := range a.value {
		out.value = append(out.value, []func(x, y float64) float64{math.Min, math.Max}[kind-7](a.value[i], b.value[i]))
	}
	return out
}

// For every expression, the decision is that of the median of the differences, calculated by hand.
func TestDecisionsMatchHandCalculation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seeds := rapid.IntRange(1, 5).Draw(t, "seeds")
		values := func(name string) []float64 {
			return rapid.SliceOfN(rapid.Map(rapid.IntRange(-20, 20), func(n int) float64 { return float64(n) }), seeds, seeds).Draw(t, name)
		}
		left, right := values("a"), values("b")
		d := &result.Document{}
		for i := range seeds {
			for scheme, x := range map[string]float64{"a": left[i], "b": right[i]} {
				d.Runs = append(d.Runs, &result.Run{World: "sim", Scheme: scheme, Seed: int64(i), Groups: map[string]*result.Group{"mice": group(x)}})
			}
		}
		l, r := expression(t, left, right, 4), expression(t, left, right, 3)
		op := rapid.SampledFrom([]string{"<", "<=", ">", ">=", "==", "!="}).Draw(t, "op")
		text := l.text + op + r.text
		if len(text) > maxText {
			return
		}
		want := byHand(l.value, r.value, op)
		got := Decide([]Statement{{Claim: text}}, d, nil)
		if _, err := Parse(text); err != nil { // it has no scheme, or the expression is too deep
			if want := fmt.Sprintf("the claim %q names no scheme; write SCHEME.GROUP.METRIC on at least one side", text); err.Error() != want {
				t.Fatal(err)
			}
			return
		}
		if len(got) != 1 || verdict(got[0]) != want {
			t.Fatalf("%s over %v and %v: %+v, want %s", text, left, right, got, want)
		}
	})
}

func byHand(left, right []float64, op string) string {
	var differences []float64
	for i := range left {
		d := left[i] - right[i]
		if math.IsNaN(d) || math.IsInf(d, 0) {
			return "null"
		}
		differences = append(differences, d)
	}
	slices.Sort(differences)
	n := len(differences)
	m := (differences[(n-1)/2] + differences[n/2]) / 2
	holds := map[string]bool{"<": m < 0, "<=": m <= 0, ">": m > 0, ">=": m >= 0, "==": m == 0, "!=": m != 0}[op]
	return map[bool]string{true: "yes", false: "no"}[holds]
}

// The parser ends on every text, and the paths that it accepts print as they parse.
func FuzzParseClaim(f *testing.F) {
	for _, s := range []string{
		"a.b.c < 1", "droptail.mice.fct_ms.p99 / fairq.mice.fct_ms.p99 >= 10", "spread(a[x=1,y=2ms].b.c, z) <= 5",
		"first_below(a.b.c, n, 0.5) < first_below(d.b.c, n, .5)", "abs(a.b.c - 1) * -2 == max(1, 2, (3))", "fraction_below(a.b.c, 200) != 0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		for _, p := range c.Paths() {
			again, err := Parse(p.String() + " < 1")
			if err != nil || again.Paths()[0].String() != p.String() {
				t.Fatalf("%q has path %q, which parses as %v", text, p, err)
			}
		}
	})
}
