// Command testreport reads the output of `go test -json` and prints a report: a line for each package, the output
// of failed tests, skipped tests with the reason, and the slowest tests.
//
//	go test -json ./... | go run ./tools/testreport -slowest 10
//
// It exits with status 1 if a test or a package failed, if the input ends before all packages have, or if a test
// that -must names was skipped.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
)

func main() {
	slowest := flag.Int("slowest", 0, "list this number of the slowest tests")
	must := flag.String("must", "", "fail if a skipped test's name matches this regular expression")
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
