//go:build cgo

package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"weir/datapath/fairq/fluid"
	"weir/datapath/native"
)

// The axes of the map. An update takes M*T; the path answers within a round trip.
var (
	alphas  = []float64{0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 0.9}
	periods = []float64{1. / 64, 1. / 32, 1. / 16, 1. / 8, 1. / 4, 1. / 2, 1, 2, 4, 8, 16, 32} // M*T / RTT
	gains   = []struct {
		name string
		of   native.Gain
	}{{"paper", native.GainPaper}, {"code", native.GainOVS}}
	ticks   = []time.Duration{5e3, 20e3, 50e3, 200e3, 1e6}
	updates = []int{1, 2, 5, 10, 40}
	trips   = []time.Duration{20e3, 50e3, 100e3, 250e3, 500e3, 1e6, 2e6, 5e6}
)

type stability struct {
	swing [][][]float64       // by gain, alpha, period: over the target
	tm    [][][]fluid.Verdict // by gain, T, M
	rtt   [][]fluid.Verdict   // by gain, RTT
}

// measure runs all cases, on all processors.
func measure() *stability {
	var wg sync.WaitGroup
	judge := func(c fluid.Case, to func(fluid.Verdict)) { wg.Go(func() { to(c.Judge()) }) }
	s := &stability{}
	for _, g := range gains {
		c := asReported()
		c.Gain = g.of
		swing := make([][]float64, len(alphas))
		for i, a := range alphas {
			swing[i] = make([]float64, len(periods))
			for j, p := range periods {
				c.Alpha, c.Tick = a, time.Duration(math.Round(p*float64(c.RTT)/float64(c.Updates)))
				judge(c, func(v fluid.Verdict) { swing[i][j] = v.Swing })
			}
		}
		tm := make([][]fluid.Verdict, len(ticks))
		for i, t := range ticks {
			tm[i] = make([]fluid.Verdict, len(updates))
			for j, m := range updates {
				c := asReported()
				c.Gain, c.Tick, c.Updates = g.of, t, m
				judge(c, func(v fluid.Verdict) { tm[i][j] = v })
			}
		}
		rtt := make([]fluid.Verdict, len(trips))
		for i, r := range trips {
			c := asReported()
			c.Gain, c.RTT = g.of, r
			judge(c, func(v fluid.Verdict) { rtt[i] = v })
		}
		s.swing, s.tm, s.rtt = append(s.swing, swing), append(s.tm, tm), append(s.rtt, rtt)
	}
	wg.Wait()
	return s
}

// word returns how a case ends: "settles" where the queue stays within a tenth of the target, else its swing in targets.
func word(v fluid.Verdict) string {
	if v.Settles() {
		return "settles"
	}
	return fmt.Sprintf("swings by %.1f", v.Swing)
}

func all(verdicts [][]fluid.Verdict) bool {
	for _, row := range verdicts {
		if slices.ContainsFunc(row, func(v fluid.Verdict) bool { return !v.Settles() }) {
			return false
		}
	}
	return true
}

func (s *stability) tables(w *bytes.Buffer) {
	fmt.Fprintf(w, "\nOver RTT (alpha 0.2, T 50 us, M 10). A swing is the largest queue minus the smallest, divided by the target:\n\n| gain |")
	for _, r := range trips {
		fmt.Fprintf(w, " %v |", r)
	}
	fmt.Fprintf(w, "\n|---|")
	for range trips {
		fmt.Fprint(w, "---|")
	}
	fmt.Fprintln(w)
	for i, g := range gains {
		fmt.Fprintf(w, "| %s |", g.name)
		for _, v := range s.rtt[i] {
			fmt.Fprintf(w, " %s |", word(v))
		}
		fmt.Fprintln(w)
	}
	for i, g := range gains {
		if all(s.tm[i]) {
			fmt.Fprintf(w, "\nOver T (%v to %v) and M (%d to %d) with the %s's gain, alpha 0.2, RTT 100 us: the queue settles everywhere.\n",
				ticks[0], ticks[len(ticks)-1], updates[0], updates[len(updates)-1], g.name)
			continue
		}
		fmt.Fprintf(w, "\nOver T and M with the %s's gain (alpha 0.2, RTT 100 us):\n\n| T |", g.name)
		for _, m := range updates {
			fmt.Fprintf(w, " M %d |", m)
		}
		fmt.Fprintf(w, "\n|---|")
		for range updates {
			fmt.Fprint(w, "---|")
		}
		fmt.Fprintln(w)
		for j, t := range ticks {
			fmt.Fprintf(w, "| %v |", t)
			for _, v := range s.tm[i][j] {
				fmt.Fprintf(w, " %s |", word(v))
			}
			fmt.Fprintln(w)
		}
	}
}
