package alarm

import (
	"testing"

	"golang.org/x/sys/unix"
)

func now(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}

// A wait ends at its time, not before. A time that has passed, also one before the clock's zero, ends it at once.
func TestAlarm_Wait(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, at := range []int64{now(t) + 300_000, now(t) - 1e9, -1} {
		if !a.Wait(at) {
			t.Fatal("the alarm is closed")
		}
		if early := at - now(t); early > 0 {
			t.Errorf("%d ns too early", early)
		}
	}
}

// Close ends a wait, and those that follow.
func TestAlarm_Close(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	waited, at := make(chan bool), now(t)+3600e9
	go func() { waited <- a.Wait(at) }()
	a.Close()
	if <-waited || a.Wait(0) {
		t.Error("a closed alarm rings")
	}
}
