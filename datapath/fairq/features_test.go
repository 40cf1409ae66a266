package fairq_test

import (
	"errors"
	"slices"
	"testing"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/fairq/edge"
	"weir/datapath/mark"
	"weir/internal/testroot"
)

// Every feature is listed once with the parts that need it. This kernel, on which the programs load, has those
// of the switch: a wrong probe would keep an operator from it.
func TestFeatures(t *testing.T) {
	testroot.Need(t, "asks the kernel about BPF")
	rehearsed := fairq.Rehearse()
	parts := []attach.Needs{fairq.Needs(), mark.Needs(), edge.Needs(), attach.MeasureNeeds()}
	seen := map[string]bool{}
	uses := map[attach.Use]int{}
	for _, f := range attach.Features(parts...) {
		if seen[f.Name] || f.Since == "" || len(f.Uses) == 0 {
			t.Errorf("%+v", f)
		}
		seen[f.Name] = true
		for _, u := range f.Uses {
			uses[u]++
		}
		var missing *attach.MissingFeature
		if f.Err != nil && (!errors.As(f.Err, &missing) || missing.Feature != f.Name) {
			t.Errorf("%s: %v", f.Name, f.Err)
		}
		if rehearsed == nil && f.Err != nil && slices.Contains(f.Uses, attach.UseSwitch) {
			t.Errorf("the programs load, and yet: %v", f.Err)
		}
	}
	for _, p := range parts {
		if uses[p.Use] < len(p.Probes) {
			t.Errorf("%s needs %d features, %d are listed", p.Use, len(p.Probes), uses[p.Use])
		}
	}
	if fairq.Check() == nil && rehearsed != nil {
		t.Errorf("all features are there, and the programs do not load: %v", rehearsed)
	}
}
