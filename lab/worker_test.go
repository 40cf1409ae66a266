package lab

import (
	"errors"
	"runtime"
	"testing"
)

// A function that ends the worker's goroutine, as t.Skip does, gives an error: the caller does not wait for ever.
func TestWorker_GoexitIsAnError(t *testing.T) {
	w, err := startWorker(func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := w.do(func() error { runtime.Goexit(); return nil }); !errors.Is(err, errEnded) {
		t.Errorf("got %v, want %v", err, errEnded)
	}
	if err := w.do(func() error { return nil }); !errors.Is(err, errGone) {
		t.Errorf("after it: %v, want %v", err, errGone)
	}
}
