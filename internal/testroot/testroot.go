// Package testroot is for tests of what only root may do: namespaces, queue disciplines, kernel programs.
package testroot

import (
	"os"
	"testing"
)

// Need fails a test that is not run by root, for what it needs root. It does not skip it: a switch that
// nobody has tested must not look tested.
func Need(tb testing.TB, what string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatalf("needs root (%s): run it again with sudo", what)
	}
}
