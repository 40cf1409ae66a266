package attach

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"
)

// MonotonicNs returns the time of the kernel programs' clock (CLOCK_MONOTONIC) in ns.
func MonotonicNs() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("datapath: no monotonic clock: " + err.Error())
	}
	return uint64(t.Nano())
}

// Age returns how long ago ns was, a time of the kernel programs' clock. It is never negative.
func Age(ns uint64) time.Duration { return time.Duration(max(0, int64(MonotonicNs()-ns))) }

// TextOf returns the text of a C string: the bytes before the first 0.
func TextOf(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
