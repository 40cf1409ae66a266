package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Controllers that share a generation file are one controller to its switches: one is active, the others stand by.
// The active one holds a lock on the file beside it, and writes there that it lives. Who ends or is killed loses the
// lock at once. Who hangs is replaced after a time, by another file under that name; it stands by as soon as it finds
// out. Until then two may think that they are active, and it is the switches that decide: the later one has the
// higher generation id. One that pauses between the lock and its generation id can draw the higher id and not have
// the lease. So whoever has the lease also looks whether its id is the highest (fence), and begins anew if not.
const (
	leaseEvery = 250 * time.Millisecond // the active one writes; the others look
	leaseStale = 3 * time.Second        // without a word the active one hangs
)

// lease is the right to be active.
type lease struct {
	path string // beside the generation file
	name string // of this controller
	log  *slog.Logger

	file  *os.File // locked while this one is active
	beats uint64
}

func newLease(generation, name string, log *slog.Logger) *lease {
	return &lease{path: generation + ".active", name: name, log: log}
}

// take waits until this controller is the active one, or ctx ends. waits is told for whom it waits.
func (l *lease) take(ctx context.Context, waits func(of string)) error {
	look := time.NewTicker(leaseEvery)
	defer look.Stop()
	said, holder, heard := "", "", time.Now() // what the active one wrote last, and when that was new
	for ctx.Err() == nil {
		got, says, err := l.try()
		if err != nil || got {
			return err
		}
		if said != says {
			said, heard = says, time.Now()
			holder, _, _ = strings.Cut(clip(says), "\n")
			waits(holder)
		}
		if time.Since(heard) >= leaseStale {
			l.log.Warn("the active controller hangs: its place is taken", "hangs", holder)
			return l.replace()
		}
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// try takes the lock if nobody has it, else gives what its holder says.
func (l *lease) try() (got bool, says string, err error) {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, "", fmt.Errorf("who is active: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		b, err := os.ReadFile(l.path)
		return false, string(b), errors.Join(err, f.Close())
	case err != nil:
		_ = f.Close()
		return false, "", fmt.Errorf("lock %s: %w", l.path, err)
	}
	l.file = f
	if !l.ours() { // it was replaced between the two calls
		l.release()
		return false, "", nil
	}
	return true, "", l.beat()
}

// replace puts a locked file in the place of the one whose holder hangs.
func (l *lease) replace() error {
	f, err := os.CreateTemp(filepath.Dir(l.path), "active.new-*")
	if err != nil {
		return fmt.Errorf("become active: %w", err)
	}
	l.file = f
	err = errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), l.beat())
	if err == nil {
		err = os.Rename(f.Name(), l.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		l.release()
		return fmt.Errorf("become active: %w", err)
	}
	return nil
}

// ours tells whether the file under the name is still the one that is locked.
func (l *lease) ours() bool {
	named, err := os.Stat(l.path)
	if err != nil {
		return false
	}
	held, err := l.file.Stat()
	return err == nil && os.SameFile(named, held)
}

// beat says that this controller lives.
func (l *lease) beat() error {
	l.beats++
	if _, err := l.file.WriteAt(fmt.Appendf(nil, "%s\n%d\n", l.name, l.beats), 0); err != nil {
		return fmt.Errorf("say who is active: %w", err)
	}
	return nil
}

// keep says so until ctx is done, or another one is active: then it calls lost. fenced tells whether another one has
// drawn a higher generation id; it ends the term itself.
func (l *lease) keep(ctx context.Context, fenced func() bool, lost func()) {
	defer l.release()
	every := time.NewTicker(leaseEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if !l.ours() {
			l.log.Error("another controller has taken over while this one hung: it stands by")
			lost()
			return
		}
		if fenced() {
			return
		}
		if err := l.beat(); err != nil { // a full disk must not stop the fabric; who waits decides
			l.log.Error("cannot say that this controller lives", "error", err)
		}
	}
}

// release gives the lock back.
func (l *lease) release() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
