// Package testroot is for tests that need root: namespaces, queue disciplines, kernel programs.
package testroot

import (
	"os"
	"testing"
)

// Variable names the environment variable that skips the tests that need root, also when root runs them. `make check` sets it.
const Variable = "WEIR_NO_ROOT"

// Reason begins the message of each test that Variable skips. tools/testreport counts these messages.
const Reason = "left out, needs root"

// Need fails a test that does not run as root. `what` is the reason why the test needs it. Need skips the test only if the
// environment variable WEIR_NO_ROOT is set, so that an untested switch does not look tested. Call it on the test's own goroutine.
func Need(tb testing.TB, what string) {
	tb.Helper()
	switch {
	case os.Getenv(Variable) != "":
		tb.Skipf("%s (%s)", Reason, what)
	case os.Geteuid() != 0:
		tb.Fatalf("needs root (%s): run it again with sudo, or skip such tests: %s=1", what, Variable)
	}
}
