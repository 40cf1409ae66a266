package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A run with a test that fails in a subtest, one that needs root, one skipped for another reason, a package that a
// panic ended, and one without an end.
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
	want := "ok        2.0 s  p (cached)\n\n1 tests of 1 packages passed; the packages took 2.0 s in total\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// A skipped test that must run fails the run.
func TestReport_Must(t *testing.T) {
	in := `{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Test":"TestTsharkReads","Output":"    x_test.go:3: no tshark\\n"}
{"Action":"skip","Package":"p","Test":"TestTsharkReads"}
{"Action":"pass","Package":"p"}
`
	for must, want := range map[string]bool{"Tshark": true, "Osken": false} {
		var out strings.Builder
		r := newReport(&out)
		r.must = regexp.MustCompile(must)
		if err := r.read(strings.NewReader(in)); err != nil {
			t.Fatal(err)
		}
		if got := r.finish(0); got != want {
			t.Errorf("%s: failed %t, want %t:\n%s", must, got, want, out.String())
		}
	}
}
