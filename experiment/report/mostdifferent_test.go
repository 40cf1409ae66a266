package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"weir/experiment/compare"
)

// The short form of a comparison has the ten main metrics that differ most, and the number of those left out.
func TestComparison_Short(t *testing.T) {
	p := &compare.Pair{A: compare.CellName{World: "sim", Scheme: "a"}, B: compare.CellName{World: "sim", Scheme: "b"},
		SeedsA: []int64{1}, SeedsB: []int64{1}, OnlyB: []string{"all.law.acks"}}
	add := func(metric string, a, b float64) {
		p.Metrics = append(p.Metrics, compare.Difference{Metric: metric, A: a, B: b, Difference: b - a, NA: 1, NB: 1})
	}
	for i := range 12 { // by 1, 2, 3 ... per cent
		add(fmt.Sprintf("g%d.throughput_mbps", i), 100, 101+float64(i))
	}
	add("g1.fct_ms.p99", 2031, 22)
	add("g1.fct_ms.sd", 660, 1) // another statistic of the same distribution
	add("loaded.g1.fct_ms.p99", 2031, 22)
	add("g1.flows", 7, 7)
	fatal := compare.Input{Name: "a", Fatal: []string{"traffic mice: no connection opened"}}
	c := &compare.Comparison{A: fatal, Confidence: 0.95, Pairs: []*compare.Pair{p}}
	text := func(all bool) string {
		var out bytes.Buffer
		if err := Comparison(&out, c, all); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	short := text(false)
	for _, want := range []string{
		"\n  g1.fct_ms.p99 ", "\n  g11.throughput_mbps ", "\n  g3.throughput_mbps ",
		"A: metrics are left out, because traffic mice: no connection opened\n",
		"No intervals: they need two seeds or more on both sides",
		"not shown: 5 metrics that differ, 1 that do not, 1 of one side only; --all shows them",
	} {
		if !strings.Contains(short, want) {
			t.Errorf("%q is missing:\n%s", want, short)
		}
	}
	for _, absent := range []string{"g2.throughput_mbps", "fct_ms.sd", "loaded."} {
		if strings.Contains(short, absent) {
			t.Errorf("%q is shown:\n%s", absent, short)
		}
	}
	whole := text(true)
	for _, want := range []string{"g0.throughput_mbps", "g1.fct_ms.sd", "loaded.g1.fct_ms.p99", "the same: g1.flows 7", "in B only: all.law.acks"} {
		if !strings.Contains(whole, want) {
			t.Errorf("with --all %q is missing:\n%s", want, whole)
		}
	}
	if strings.Contains(whole, "not shown") {
		t.Errorf("with --all something is left out:\n%s", whole)
	}
}
