package attach

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"
)

// MonotonicNs is the kernel programs' clock.
func MonotonicNs() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("datapath: no monotonic clock: " + err.Error())
	}
	return uint64(t.Nano())
}

// Age is how long ago a time of the kernel programs' clock is.
func Age(ns uint64) time.Duration { return time.Duration(max(0, int64(MonotonicNs()-ns))) }

// TextOf is the text of a C string.
func TextOf(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
