package fairq

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Starting a timer for which the kernel has no memory is tried again. Any other error is returned, and so is a
// lack that stays.
func TestUntilMemory(t *testing.T) {
	for _, c := range []struct {
		name     string
		fails    int // from the first try on
		with     error
		runs     int
		wantsErr error
	}{
		{"at once", 0, nil, 1, nil},
		{"no memory twice", 2, unix.ENOMEM, 3, nil},
		{"never any memory", 1 << 30, unix.ENOMEM, armTries, unix.ENOMEM},
		{"another error", 1 << 30, unix.EINVAL, 1, unix.EINVAL},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			err := untilMemory(func() error {
				if runs++; runs <= c.fails {
					return fmt.Errorf("returned: %w", c.with)
				}
				return nil
			})
			if !errors.Is(err, c.wantsErr) || runs != c.runs {
				t.Errorf("%d runs and %v, want %d and %v", runs, err, c.runs, c.wantsErr)
			}
		})
	}
}
