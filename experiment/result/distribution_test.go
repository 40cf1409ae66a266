package result

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var near = cmpopts.EquateApprox(1e-9, 1e-9)

func TestDistribute(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		want   *Distribution
	}{
		{"nothing", nil, nil},
		{"one value is every quantile", []float64{7}, &Distribution{1, 7, 0, 7, 7, 7, 7, 7, 7, 7, 7}},
		// h = 3p: p10 at 0.3, p25 at 0.75, p50 at 1.5, p75 at 2.25, p90 at 2.7, p99 at 2.97.
		// Deviations from 3.75: 2.75, 1.75, 0.25, 4.25; their squares sum to 28.75.
		{"between order statistics", []float64{8, 1, 4, 2}, &Distribution{
			4, 3.75, math.Sqrt(28.75 / 4), 1, 1.3, 1.75, 3, 5, 6.8, 7.88, 8,
		}},
		{"a small deviation of large values", []float64{1e9, 1e9 + 2}, &Distribution{
			2, 1e9 + 1, 1, 1e9, 1e9 + 0.2, 1e9 + 0.5, 1e9 + 1, 1e9 + 1.5, 1e9 + 1.8, 1e9 + 1.98, 1e9 + 2,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.values)
			if diff := cmp.Diff(tt.want, distribute(tt.values), near); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if !slices.Equal(before, tt.values) {
				t.Error("the order of the values was changed")
			}
		})
	}
}

func TestDistributeTime(t *testing.T) {
	if d := distributeTime(nil); d != nil {
		t.Errorf("no time gave %+v", d)
	}
	// 10 ms in total: 6 at 0, 3 at 10, 1 at 100. At or below 10 for exactly 90 % of the time.
	got := distributeTime([]level{{100, 1 * ms, 2}, {0, 6 * ms, 12}, {10, 3 * ms, 6}})
	want := &Distribution{20, 13, math.Sqrt((6*169 + 3*9 + 87*87) / 10.0), 0, 0, 0, 0, 10, 10, 100, 100}
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Levels with weights give the same as every unit of time written out.
func TestDistributeTime_AgainstEveryInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var levels []level
		var instants []float64
		for range rapid.IntRange(1, 12).Draw(t, "levels") {
			v := float64(rapid.IntRange(0, 9).Draw(t, "value"))
			n := rapid.Int64Range(1, 30).Draw(t, "length")
			levels = append(levels, level{v, time.Duration(n), n})
			instants = append(instants, slices.Repeat([]float64{v}, int(n))...)
		}
		slices.Sort(instants)
		slow := func(p float64) float64 { // smallest value at or below which a share p of the instants lie
			for i, v := range instants {
				if float64(i+1) >= p*float64(len(instants)) {
					return v
				}
			}
			return math.NaN()
		}
		mean, sd := moments(instants)
		n := len(instants)
		want := &Distribution{
			n, mean, sd, instants[0], slow(0.1), slow(0.25), slow(0.5), slow(0.75), slow(0.9), slow(0.99), instants[n-1],
		}
		if diff := cmp.Diff(want, distributeTime(levels), near); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
		if got := slices.Sorted(slices.Values(expand(levels))); !slices.Equal(got, instants) {
			t.Fatalf("expand gave %v, want %v", got, instants)
		}
	})
}

func TestJain(t *testing.T) {
	tests := []struct {
		name  string
		rates []float64
		want  *float64
	}{
		{"no flows", nil, nil},
		{"nothing arrived: not defined", []float64{0, 0}, nil},
		{"equal", []float64{3, 3, 3}, new(1.0)},
		{"one has all", []float64{5, 0, 0, 0}, new(0.25)},
		{"1 and 3: 16 / (2 x 10)", []float64{1, 3}, new(0.8)},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, jain(tt.rates), near); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
