package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment/store"
)

// A summary in a repository is replaced by a complete experiment only: neither a stop nor a report of what has
// finished so far writes one.
func TestSummary_OfCompleteExperimentsOnly(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	written := func() bool { _, err := os.Stat(root + "/lab/three.json"); return err == nil }
	conclude := func(w *fakeWorld) error {
		runs, runErr := runThree(t, dir, w, resumeSame, threeRuns)
		plan, err := (&store.Asked{Name: "three.yaml", File: threeRuns}).Plan(laws.All())
		if err != nil {
			t.Fatal(err)
		}
		doc, err := newDocument(plan)
		if err != nil {
			t.Fatal(err)
		}
		doc.Runs = runs
		m := &outcome{doc: doc, plan: plan, flags: runFlags{summary: root}, err: runErr}
		return m.conclude(io.Discard, io.Discard)
	}
	if err := conclude(&fakeWorld{failAt: "fairq 2", stop: func() {}}); err == nil || written() {
		t.Errorf("after a stop: %v; a summary is written: %v", err, written())
	}
	again := func() error {
		return figures(t.Context(), "", "", runFlags{out: dir, summary: root}, io.Discard, io.Discard)
	}
	if err := again(); err == nil || !strings.Contains(err.Error(), "--summary needs all runs, and 3 of 6 are missing") || written() {
		t.Errorf("of the runs so far: %v; a summary is written: %v", err, written())
	}
	if err := conclude(&fakeWorld{}); err != nil || !written() {
		t.Errorf("of all runs: %v; a summary is written: %v", err, written())
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}
