package testnet

import (
	"errors"
	"runtime"
	"testing"

	"weir/internal/testroot"
)

// A function that ends the namespace's goroutine, as t.Skip and t.Fatal do, makes Enter return an error. The
// test does not wait for ever.
func TestNamespace_GoexitIsAnError(t *testing.T) {
	n := NewNamespace(t)
	for range 2 {
		if err := n.Enter(func() error { runtime.Goexit(); return nil }); !errors.Is(err, errGone) {
			t.Errorf("got %v, want %v", err, errGone)
		}
	}
}

// A goroutine that still runs when its test has ended gets an error, and does not end the process.
func TestNamespace_CallAfterTheTest(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	var n *Namespace
	t.Run("", func(t *testing.T) { n = NewNamespace(t) })
	if err := n.Enter(func() error { return nil }); err == nil {
		t.Error("the namespace of a test that has ended still takes calls")
	}
}
