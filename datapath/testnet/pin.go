package testnet

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// PinTo keeps the calling goroutine on one of the processors that its thread may use: number n, counted round and round. The thread
// ends with the goroutine.
func PinTo(n int) error {
	runtime.LockOSThread()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("read the processors of a thread: %w", err)
	}
	n %= allowed.Count()
	for cpu := 0; ; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		if n == 0 {
			one.Set(cpu)
			break
		}
		n--
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("keep a thread on a processor: %w", err)
	}
	return nil
}
