package controller

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Two controllers have one generation file. One has the switches; the other takes over when the first is killed or hangs. By the
// switches' own log, no order of the old one is carried out after that.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	stop := p.churn()
	rng := rand.New(rand.NewPCG(1, 2))
	const changes = 2
	for i := range changes {
		t.Logf("change %d after %v", i, p.change(t, rng, i%2 == 1))
	}
	p.pausedDraw(t)
	stop()
	p.active(t, "a", "b")
	if n := p.reach(t); n != 0 {
		t.Logf("%d datagrams asked again", n)
	}
	p.Switches.Kill()
	p.verdict(t, changes)
}

func (p *pair) verdict(tb testing.TB, changes int) {
	tb.Helper()
	j := p.judge
	tb.Logf("%d changes at bridges, %d orders of the active controller, %d of the other one refused; %d pins asked for, %d without a controller",
		j.changes, j.orders, j.refused, p.turns.Load(), p.lost.Load())
	if lines := j.obeyed(); len(lines) > 0 {
		tb.Errorf("%d orders of a controller that was not MASTER were taken, such as:\n%s", len(lines), lines[0])
	}
	if j.changes < 3*changes || j.orders < 10*changes || len(j.bridges) != 3 {
		tb.Errorf("the log says too little: %d changes, %d orders, %d bridges\n%s", j.changes, j.orders, len(j.bridges), j.other.String())
	}
}

// BenchmarkTwoControllers moves the fabric from one controller to the other, b.N times (-benchtime 100x), by a kill and by a stop
// in turn. It reports the time until all switches, links and flows are confirmed to the new one.
func BenchmarkTwoControllers(b *testing.B) {
	p := newPair(b)
	stop := p.churn()
	rng := rand.New(rand.NewPCG(1, 2))
	took := [2][]float64{}
	for i := 0; b.Loop(); i++ {
		took[i%2] = append(took[i%2], p.change(b, rng, i%2 == 1).Seconds())
	}
	stop()
	p.Switches.Kill()
	p.verdict(b, len(took[0])+len(took[1]))
	for i, name := range []string{"killed", "stopped"} {
		if n := len(took[i]); n > 0 {
			slices.Sort(took[i])
			b.ReportMetric(took[i][n/2], name+"-p50-s")
			b.ReportMetric(took[i][n-1], name+"-max-s")
		}
	}
	b.ReportMetric(float64(p.judge.orders), "orders")
	b.ReportMetric(float64(p.judge.refused), "orders-refused")
	b.ReportMetric(float64(len(p.judge.obeyed())), "obeyed-wrongly")
	b.ReportMetric(0, "ns/op")
}
