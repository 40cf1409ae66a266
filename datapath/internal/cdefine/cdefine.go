// Package cdefine reads constants of C headers, for tests that compare them with those of Go.
package cdefine

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// Value returns the number that a header defines as a macro. It fails the test if there is none.
func Value(tb testing.TB, header, name string) uint64 {
	tb.Helper()
	text, err := os.ReadFile(header)
	if err != nil {
		tb.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^#define ` + regexp.QuoteMeta(name) + ` (0x[0-9a-fA-F]+|[0-9]+)(?:u|ull)?(?:\s|$)`).FindSubmatch(text)
	if found == nil {
		tb.Fatalf("%s: no number is defined as %s", header, name)
	}
	n, err := strconv.ParseUint(string(found[1]), 0, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
