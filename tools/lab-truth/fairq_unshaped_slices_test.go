package main

import (
	"slices"
	"testing"
)

// A slice without traffic counts as a rate of 0 with the subject, and gives no ratio without it. Only more of them than
// without make a row fail.
func TestCompareSlices(t *testing.T) {
	slicesOf := func(rate float64, silent ...int) []float64 {
		all := slices.Repeat([]float64{rate}, 80)
		for _, i := range silent {
			all[i] = 0
		}
		return all
	}
	for _, c := range []struct {
		name          string
		with, without []float64
		ratio         float64
		ok            bool
	}{
		{"equal", slicesOf(100), slicesOf(100), 1, true},
		{"below the limit", slicesOf(96), slicesOf(100), 0.96, false},
		{"one silent slice without", slicesOf(98), slicesOf(100, 7), 0.98, true},
		{"one silent slice with", slicesOf(98, 3), slicesOf(100), 0.98, true},
		{"as many with as without", slicesOf(98, 1, 2, 3, 4, 5, 6), slicesOf(100, 11, 12, 13, 14, 15), 0.98, true},
		{"more with than without", slicesOf(98, 1, 2, 3, 4, 5), slicesOf(100), 0.98, false},
	} {
		r, err := compareSlices(c.with, c.without, 0.97)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := r.ratio() - c.ratio; d > 1e-9 || d < -1e-9 || r.ok() != c.ok {
			t.Errorf("%s: ratio %v, ok %v, want %v, %v", c.name, r.ratio(), r.ok(), c.ratio, c.ok)
		}
	}
	mostly := make([]float64, 80)
	if r, err := compareSlices(slicesOf(100), mostly, 0.97); err == nil {
		t.Errorf("nothing arrived without the subject, and the row is %v", r)
	}
	if r, err := compareSlices(mostly, slicesOf(100), 0.97); err != nil || r.ok() {
		t.Errorf("nothing arrived with the subject: row %v, error %v", r, err)
	}
}
