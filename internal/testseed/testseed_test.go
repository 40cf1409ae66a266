package testseed

import (
	"fmt"
	"testing"
)

// log stores the log of a test.
type log struct {
	testing.TB
	text string
}

func (l *log) Helper()                      {}
func (l *log) Name() string                 { return "TestX" }
func (l *log) Logf(format string, a ...any) { l.text = fmt.Sprintf(format, a...) }

func TestSeed_IsThatOfTheEnvironment(t *testing.T) {
	t.Setenv(Variable, "42")
	l := &log{TB: t}
	if got := Seed(l); got != 42 {
		t.Errorf("seed %d, want 42", got)
	}
	if want := "seed 42; again with the same: WEIR_SEED=42 go test -run '^TestX$'"; l.text != want {
		t.Errorf("logged %q, want %q", l.text, want)
	}
	if a, b := New(l).Uint64(), New(l).Uint64(); a != b {
		t.Errorf("two sources of the same seed begin with %d and %d", a, b)
	}
}

// Two sources in one process have the same seed, so the log of a failed test is right for all its random numbers.
func TestSeed_IsOneForTheProcess(t *testing.T) {
	t.Setenv(Variable, "")
	if a, b := Seed(t), Seed(t); a != b {
		t.Errorf("seeds %d and %d", a, b)
	}
}
