// Command testreport reads what `go test -json` prints and reports it for people: a line for each package, the
// output of the tests that failed, the tests that were skipped and why, and the slowest tests.
//
//	go test -json ./... | go run ./tools/testreport -slowest 10
//
// It exits with status 1 when a test or a package failed, when the input ends before all of them have, or when a test
// that -must names was skipped.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
)

func main() {
	slowest := flag.Int("slowest", 0, "list so many of the slowest tests")
	must := flag.String("must", "", "fail when a test was skipped whose name this regular expression matches")
	flag.Parse()
	r := newReport(os.Stdout)
	if *must != "" {
		r.must = regexp.MustCompile(*must)
	}
	err := r.read(os.Stdin)
	failed := r.finish(*slowest)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport: read the output of go test -json:", err)
	}
	if err != nil || failed {
		os.Exit(1)
	}
}
