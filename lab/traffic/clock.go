package traffic

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC, which the kernel's measuring programs use too, without a system call: Go's own
// monotonic clock is the same clock with another zero.
type clock struct {
	base     time.Time
	baseMono int64
}

func newClock() clock {
	var c clock
	best := time.Hour
	for range 16 {
		var ts unix.Timespec
		before := time.Now()
		// Every Linux has this clock: no error is possible.
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
		if width := time.Since(before); width < best {
			best, c.base, c.baseMono = width, before.Add(width/2), ts.Nano()
		}
	}
	return c
}

// now returns CLOCK_MONOTONIC in ns.
func (c clock) now() int64 { return c.baseMono + int64(time.Since(c.base)) }

// until returns the time until a time of CLOCK_MONOTONIC.
func (c clock) until(mono int64) time.Duration { return time.Duration(mono - c.now()) }

// alarm waits for points in time. It is a timerfd, read through Go's poller: Go's own timers are rounded up to 1
// ms when nothing else runs, and starts are 24 us apart. It uses no thread while it waits.
type alarm struct{ file *os.File }

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	return &alarm{os.NewFile(uintptr(fd), "timer")}, nil
}

// wait returns at the time mono of CLOCK_MONOTONIC, or at once if it has passed; false once the alarm is closed.
func (a *alarm) wait(mono int64) bool {
	raw, err := a.file.SyscallConn()
	if err != nil {
		return false
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(mono, 1))}
	err = raw.Control(func(fd uintptr) {
		// This fails only for a time before the clock's zero, which max excludes.
		_ = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
	if err != nil {
		return false
	}
	var ticks [8]byte
	_, err = a.file.Read(ticks[:])
	return err == nil
}

func (a *alarm) close() { a.file.Close() }

// closeWhen closes the alarm when ctx is done, which ends a wait; the returned function undoes it.
func (a *alarm) closeWhen(ctx context.Context) func() bool { return context.AfterFunc(ctx, a.close) }
