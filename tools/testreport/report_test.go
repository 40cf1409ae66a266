package main

import (
	"os"
	"strings"
	"testing"
)

// A run with a test that fails in a subtest, one that needs root, one skipped for another reason, a package that
// a panic ended, and one whose end is missing.
func TestReport(t *testing.T) {
	in, err := os.Open("testdata/run.json")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(in); err != nil {
		t.Fatal(err)
	}
	if !r.finish(2) {
		t.Error("a run with failed tests passed")
	}
	want, err := os.ReadFile("testdata/run.txt")
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestReport_Passes(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	in := `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}
{"Action":"output","Package":"p","Output":"ok  \tp\t(cached)\n"}
{"Action":"pass","Package":"p","Elapsed":2}
`
	if err := r.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if r.finish(0) {
		t.Error("a run without failures failed")
	}
	want := "ok        2.0 s  p (cached)\n\n1 tests of 1 packages passed; the packages took 2.0 s, added up\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
