// Package alarm waits for points in time.
package alarm

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Alarm is a timerfd, read through Go's poller. Go's own timers are up to 1 ms late when nothing else runs: the poller waits for whole
// milliseconds. It uses no thread while it waits. One goroutine may wait at a time.
type Alarm struct{ file *os.File }

// New makes an alarm.
func New() (*Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	return &Alarm{os.NewFile(uintptr(fd), "timer")}, nil
}

// Wait returns at a time of CLOCK_MONOTONIC, in ns, or at once if it has passed; false once the alarm is closed.
func (a *Alarm) Wait(mono int64) bool {
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

// Close ends a wait, and all later ones.
func (a *Alarm) Close() { a.file.Close() }

// CloseWhen closes the alarm when ctx is done; the returned function undoes it.
func (a *Alarm) CloseWhen(ctx context.Context) func() bool { return context.AfterFunc(ctx, a.Close) }
