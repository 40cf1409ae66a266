package measure

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/testroot"
)

// A kernel with nohz_full= refuses MEMBARRIER_CMD_GLOBAL. Then another call waits, and other errors are reported.
func TestRecorder_WithoutMembarrier(t *testing.T) {
	testroot.Need(t, "makes maps of the kernel")
	for errno, refused := range map[unix.Errno]bool{0: false, unix.EINVAL: false, unix.EPERM: true} {
		barrier := func() error {
			if errno == 0 {
				return nil
			}
			return fmt.Errorf("membarrier: %w", errno)
		}
		if err := awaitPrograms(barrier); (err != nil) != refused || refused && !errors.Is(err, errno) {
			t.Errorf("membarrier gives %v: %v", errno, err)
		}
	}
}
