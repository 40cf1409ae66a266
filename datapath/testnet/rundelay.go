package testnet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// RunDelay returns how long the present threads of this process were ready to run but did not run, summed up
// (run_delay of the kernel's sched_info). It hardly grows on a machine with an idle processor.
func RunDelay(tb testing.TB) (sum time.Duration) {
	tb.Helper()
	list, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil || len(list) == 0 {
		tb.Fatalf("%d threads with schedstat, %v: needs a kernel with CONFIG_SCHED_INFO", len(list), err)
	}
	for _, name := range list {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		var ran, waited time.Duration
		if err == nil {
			_, err = fmt.Sscan(string(text), &ran, &waited)
		}
		if err != nil {
			tb.Fatalf("read %s: %v", name, err)
		}
		sum += waited
	}
	return sum
}
