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

// Controllers that share a generation file act as one controller: one is active, the others stand by. The active one has a lock
// on the lease file next to the generation file, and writes a heartbeat to it. When its process ends, the kernel releases the
// lock at once.
//
// If the active one hangs, another controller replaces the lease file by a new one after a time. The old one stands by as soon
// as it notices that. Until then two controllers may both act as the active one, and the switches decide: the later one has the
// higher generation id.
//
// A controller that pauses between taking the lock and drawing its generation id can get the higher id without the lease. So the
// owner of the lease also checks that its id is the highest (fence), and begins again if it is not.
const (
	leaseEvery = 250 * time.Millisecond // the active one writes; the others look
	leaseStale = 3 * time.Second        // without a heartbeat the active one counts as hung
)

// lease is the right to be active.
type lease struct {
	path string // next to the generation file
	name string // of this controller
	log  *slog.Logger

	file       *os.File // locked while this one is active
	heartbeats uint64
}

func newLease(generation, name string, log *slog.Logger) *lease {
	return &lease{path: generation + ".active", name: name, log: log}
}

// take waits until this controller is the active one, or ctx ends. It calls waits with the controller that it waits for.
func (l *lease) take(ctx context.Context, waits func(of string)) error {
	look := time.NewTicker(leaseEvery)
	defer look.Stop()
	said, holder, heard := "", "", time.Now() // the last heartbeat of the active one, its name, and the time of the heartbeat
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
			l.log.Warn("the active controller hangs: this one takes over", "hangs", holder)
			return l.replace()
		}
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// try takes the lock if it is free, and else returns the holder's heartbeat.
func (l *lease) try() (got bool, says string, err error) {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, "", fmt.Errorf("read which controller is active: %w", err)
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
	return true, "", l.heartbeat()
}

// replace replaces the lease file of a controller that hangs by a new, locked file.
func (l *lease) replace() error {
	f, err := os.CreateTemp(filepath.Dir(l.path), "active.new-*")
	if err != nil {
		return fmt.Errorf("become active: %w", err)
	}
	l.file = f
	err = errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), l.heartbeat())
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

// ours reports whether the file under the name is still the one that is locked.
func (l *lease) ours() bool {
	named, err := os.Stat(l.path)
	if err != nil {
		return false
	}
	held, err := l.file.Stat()
	return err == nil && os.SameFile(named, held)
}

// heartbeat writes that this controller runs.
func (l *lease) heartbeat() error {
	l.heartbeats++
	if _, err := l.file.WriteAt(fmt.Appendf(nil, "%s\n%d\n", l.name, l.heartbeats), 0); err != nil {
		return fmt.Errorf("write the heartbeat: %w", err)
	}
	return nil
}

// keep sends heartbeats until ctx is done, or until another controller is active: then it calls lost. fenced reports whether
// another one has drawn a higher generation id; it ends the term itself.
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
		if err := l.heartbeat(); err != nil { // a full disk must not stop the fabric; waiting controllers may take over
			l.log.Error("cannot write the heartbeat of this controller", "error", err)
		}
	}
}

// release releases the lock.
func (l *lease) release() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
