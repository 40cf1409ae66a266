// Package testroot is for tests of what only root may do: namespaces, queue disciplines, kernel programs.
package testroot

import (
	"os"
	"testing"
)

// Variable names the environment variable that leaves out the tests that need root, whoever runs them. `make check`
// sets it.
const Variable = "WEIR_NO_ROOT"

// Reason begins the message of each test that Variable left out. tools/testreport counts these messages.
const Reason = "left out, needs root"

// Need fails a test that needs root for what, and is run by another user. Without root it skips the test only where
// the environment variable WEIR_NO_ROOT is set: a switch that nobody has tested must not look tested. Call it on the
// test's own goroutine.
func Need(tb testing.TB, what string) {
	tb.Helper()
	switch {
	case os.Getenv(Variable) != "":
		tb.Skipf("%s (%s)", Reason, what)
	case os.Geteuid() != 0:
		tb.Fatalf("needs root (%s): run it again with sudo, or leave such tests out: %s=1", what, Variable)
	}
}
