package attach

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"weir/internal/lockfile"
)

// The process that has the pins gets its time to leave from when it is asked. The rehearsal before that may take longer.
func TestTakePins_RehearsalTakesLong(t *testing.T) {
	dir := t.TempDir()
	holder, err := lockfile.Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	clock, looks, asked := time.Unix(0, 0), 0, false
	rehearse := func() error {
		clock, asked = clock.Add(2*takeOverLimit), true
		return nil
	}
	now := func() time.Time {
		if looks++; looks == 4 && asked { // the other process leaves after it was asked
			_ = holder.Close()
		}
		return clock
	}
	d, err := takePins(dir, true, rehearse, now)
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
}

// A process that does not leave is reported, with the advice to end it.
func TestTakePins_NotLeft(t *testing.T) {
	dir := t.TempDir()
	holder, err := lockfile.Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close() }()
	clock := time.Unix(0, 0)
	now := func() time.Time {
		clock = clock.Add(time.Second)
		return clock
	}
	_, err = takePins(dir, true, func() error { return nil }, now)
	var busy *Busy
	if !errors.As(err, &busy) || !busy.Asked {
		t.Errorf("%v", err)
	}
}

// The page about switches names the time that a process has to leave.
func TestTakePins_IsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/switch.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("does not answer within %.0f s keeps its ports", takeOverLimit.Seconds()); !strings.Contains(string(page), want) {
		t.Errorf("docs/switch.md does not say %q", want)
	}
}
