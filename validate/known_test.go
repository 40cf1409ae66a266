package main

import "testing"

// rowOf makes the row of a known difference with other figures.
func rowOf(t *testing.T, k *known, ns3, sim float64) *row {
	t.Helper()
	for _, c := range tolerances[k.file] {
		if c.metric == k.metric && c.factor != 0 && (len(c.schemes) == 0 || contains(c.schemes, k.point)) {
			return &row{point: k.point, check: c, ns3: []float64{ns3}, sim: []float64{sim}, a: ns3, b: sim}
		}
	}
	t.Fatalf("%s, %s: %s is not compared", k.file, k.point, k.metric)
	return nil
}

func contains(schemes []string, point string) bool {
	for _, s := range schemes {
		if point == s || len(point) > len(s) && point[:len(s)+1] == s+" " {
			return true
		}
	}
	return false
}

// Each known difference is outside its tolerance. It passes with the known figures, and not when either figure
// changes.
func TestKnownDifferences(t *testing.T) {
	if len(knownDifferences) != 16 {
		t.Errorf("%d known differences; docs/validation.md says 16", len(knownDifferences))
	}
	for i := range knownDifferences {
		k := &knownDifferences[i]
		as := rowOf(t, k, k.ns3, k.sim)
		if as.ok() {
			t.Errorf("%s, %s, %s: its tolerance allows it", k.file, k.point, k.metric)
		}
		if asKnown(k.file, as) != k {
			t.Errorf("%s, %s, %s is not known as itself", k.file, k.point, k.metric)
		}
		moved := [][2]float64{{k.ns3, k.sim*1.1 + 6}, {k.ns3*1.1 + 6, k.sim}}
		if as.check.kind == shape {
			moved = [][2]float64{{0, k.sim + 0.03}, {0, k.sim - 0.03}}
		} else if k.sim > 100 {
			moved = append(moved, [2]float64{k.ns3, k.sim * 0.9})
		}
		for _, m := range moved {
			if asKnown(k.file, rowOf(t, k, m[0], m[1])) != nil {
				t.Errorf("%s, %s, %s: %v is taken for %v and %v", k.file, k.point, k.metric, m, k.ns3, k.sim)
			}
		}
		if asKnown("other", as) != nil {
			t.Errorf("%s: known in another file", k.metric)
		}
		as.sim = nil
		if asKnown(k.file, as) != nil {
			t.Errorf("%s, %s, %s: known without a figure", k.file, k.point, k.metric)
		}
	}
}
