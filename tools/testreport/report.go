package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"weir/internal/testroot"
)

// event is one line of `go test -json`: see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // in build output
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// test is a test, a subtest or, without a name, the output of a package itself.
type test struct{ pkg, name string }

type timed struct {
	test
	seconds float64
}

// report collects the events of a run.
type report struct {
	out     io.Writer
	outputs map[test][]string // of tests that have not ended
	open    map[string]bool   // packages that have not ended
	times   []timed           // of top-level tests
	skipped map[test]string   // by top-level test, with its reason
	passed  int               // top-level tests
	packs   int               // packages that passed
	seconds float64           // of all these packages
	failed  []string          // packages
	must    *regexp.Regexp    // names of tests that must not be skipped; nil: none
}

func newReport(out io.Writer) *report {
	return &report{out: out, outputs: map[test][]string{}, open: map[string]bool{}, skipped: map[test]string{}}
}

// read reads all events of a run and prints a line for each package that ends. Lines that are not events are
// printed unchanged.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprint(r.out, line)
			} else {
				r.add(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "start":
		r.open[e.Package] = true
	case "output":
		r.outputs[t] = append(r.outputs[t], e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			r.endPackage(e)
			return
		}
		r.endTest(t, e)
	}
}

func (r *report) endTest(t test, e event) {
	top, _, isSub := strings.Cut(t.name, "/")
	switch e.Action {
	case "skip":
		if _, known := r.skipped[test{t.pkg, top}]; !known {
			r.skipped[test{t.pkg, top}] = reason(r.outputs[t])
		}
	case "fail":
		r.print(t)
	}
	delete(r.outputs, t)
	if !isSub {
		r.times = append(r.times, timed{t, e.Elapsed})
		if _, left := r.skipped[t]; e.Action == "pass" && !left {
			r.passed++
		}
	}
}

// print prints the output of a test, without the lines that it began, paused and continued.
func (r *report) print(t test) {
	for _, line := range r.outputs[t] {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(r.out, line)
		}
	}
}

// reason returns why a test was skipped: testroot's message, or the last line before the one with the skip.
func reason(output []string) string {
	last := "no reason given"
	for _, line := range output {
		line = strings.TrimSpace(line)
		if i := strings.Index(line, testroot.Reason); i >= 0 {
			return line[i:]
		}
		if strings.HasPrefix(line, "--- SKIP") {
			break
		}
		if line != "" && !strings.HasPrefix(line, "=== ") {
			last = line
		}
	}
	if _, why, ok := strings.Cut(last, ".go:"); ok { // FILE.go:LINE: REASON
		_, last, _ = strings.Cut(why, ": ")
	}
	return last
}

func (r *report) endPackage(e event) {
	delete(r.open, e.Package)
	own := test{e.Package, ""}
	if e.Action == "fail" {
		r.failed = append(r.failed, e.Package)
		var left []test // tests that a panic or the deadline ended
		for t := range r.outputs {
			if t.pkg == e.Package && t != own {
				left = append(left, t)
			}
		}
		slices.SortFunc(left, func(a, b test) int { return cmp.Compare(a.name, b.name) })
		for _, t := range append(left, own) {
			r.print(t)
			delete(r.outputs, t)
		}
		fmt.Fprintf(r.out, "FAIL  %7.1f s  %s\n", e.Elapsed, e.Package)
		return
	}
	if e.Action == "pass" { // a package without tests is skipped
		cached := ""
		if slices.ContainsFunc(r.outputs[own], func(line string) bool { return strings.Contains(line, "\t(cached)") }) {
			cached = " (cached)"
		}
		fmt.Fprintf(r.out, "ok    %7.1f s  %s%s\n", e.Elapsed, e.Package, cached)
		r.packs++
		r.seconds += e.Elapsed
	}
	delete(r.outputs, own)
}

// finish prints the summary of the run, and reports whether it failed.
func (r *report) finish(slowest int) (failed bool) {
	slices.SortStableFunc(r.times, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	if n := min(slowest, len(r.times)); n > 0 {
		fmt.Fprintf(r.out, "\nthe %d slowest tests:\n", n)
		for _, t := range r.times[:n] {
			fmt.Fprintf(r.out, "      %7.1f s  %s %s\n", t.seconds, t.pkg, t.name)
		}
	}
	root := 0
	var others, missing []string
	for t, why := range r.skipped {
		if r.must != nil && r.must.MatchString(t.name) {
			missing = append(missing, t.name)
		}
		if strings.HasPrefix(why, testroot.Reason) {
			root++
			continue
		}
		others = append(others, fmt.Sprintf("skip  %s %s: %s", t.pkg, t.name, why))
	}
	slices.Sort(others)
	fmt.Fprintln(r.out)
	for _, line := range others {
		fmt.Fprintln(r.out, line)
	}
	var never []string
	for p := range r.open {
		never = append(never, p)
	}
	slices.Sort(never)
	for _, p := range never {
		fmt.Fprintf(r.out, "FAIL  %s: did not end\n", p)
	}
	fmt.Fprintf(r.out, "%d tests of %d packages passed; the packages took %.1f s in total\n", r.passed, r.packs, r.seconds)
	if root > 0 {
		fmt.Fprintf(r.out, "%d tests need root and were left out: run 'make test' for them\n", root)
	}
	failed = len(r.failed)+len(never)+len(missing) > 0
	if len(missing) > 0 {
		slices.Sort(missing)
		fmt.Fprintf(r.out, "skipped, and must run here: %s\n", strings.Join(missing, " "))
	}
	if len(r.failed)+len(never) > 0 {
		fmt.Fprintf(r.out, "failed: %s\n", strings.Join(append(r.failed, never...), " "))
	}
	return failed
}
