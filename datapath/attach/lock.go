package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"weir/internal/lockfile"
)

// A pin directory belongs to one process at a time. The process holds a lock on the directory itself, so
// everyone who can see the tables can see the lock, and the kernel drops it however the process ends. A small
// table next to the others, used by user space only, records which process has the lock and which one asks for
// it. All versions of Weir share its layout, so that an upgrade can ask.
const (
	OwnerPin      = "owner"
	ownerHolder   = uint32(0) // the process that has the lock
	ownerClaim    = uint32(1) // the process that asks for it
	ownerEntries  = 2
	claimFresh    = time.Second // a process that asks repeats its request within this time
	takeOverLimit = 15 * time.Second
	lockRetry     = 10 * time.Millisecond
)

// ownerEntry is an entry of that table: 64 bytes.
type ownerEntry struct {
	AtNs    uint64 // CLOCK_MONOTONIC: when it got the lock, or last asked for it
	PID     uint32
	_       uint32
	Version [48]byte
}

// Holder is the process that has a pin directory, or had it last.
type Holder struct {
	PID     int // in its own PID namespace; 0: unknown
	Version string
	Since   time.Duration // ago
}

func (h Holder) String() string {
	if h.PID == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d (weir %s)", h.PID, h.Version)
}

// Busy is the error for a pin directory that another running process has.
type Busy struct {
	Dir    string
	Holder Holder
	// Asked: the process was asked to leave, and did not.
	Asked bool
}

func (e *Busy) Error() string {
	if e.Asked {
		return fmt.Sprintf("%s was asked to leave %s and did not within %v: end it", e.Holder, e.Dir, takeOverLimit)
	}
	return fmt.Sprintf("%s is running on %s: stop it, or take over from it (--take-over)", e.Holder, e.Dir)
}

// ErrTakenOver is what Heartbeat returns when another process asks for the pin directory. The caller must then
// call Leave.
var ErrTakenOver = errors.New("another process takes over")

// PinLock is this process's lock on a pin directory.
type PinLock struct {
	dir   *os.File
	owner *ebpf.Map
	since uint64
}

// LockPins locks dir, which must exist, for this process. It calls rehearse before it asks another process to
// leave: rehearse must find that this process can do the work. The other process has takeOverLimit to leave, from when
// it is asked.
func LockPins(dir, version string, takeOver bool, rehearse func() error) (*PinLock, error) {
	d, err := takePins(dir, takeOver, rehearse, time.Now)
	if err != nil {
		return nil, err
	}
	return newPinLock(d, dir, version)
}

// takePins is LockPins without the record of the holder.
func takePins(dir string, takeOver bool, rehearse func() error, now func() time.Time) (*os.File, error) {
	var deadline time.Time // zero: nobody was asked
	for {
		d, err := lockfile.Take(dir)
		switch {
		case err == nil:
			return d, nil
		case !errors.Is(err, lockfile.ErrHeld):
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		case !takeOver:
			return nil, &Busy{Dir: dir, Holder: ReadHolder(dir)}
		case deadline.IsZero():
			if err := rehearse(); err != nil {
				return nil, err
			}
			deadline = now().Add(takeOverLimit) // after rehearse, which takes seconds on a busy machine
		case now().After(deadline):
			// Otherwise a stopped process would leave when it wakes, and no other process would follow it.
			withdrawn := claim(dir, 0)
			return nil, errors.Join(&Busy{Dir: dir, Holder: ReadHolder(dir), Asked: true}, withdrawn)
		}
		if err := claim(dir, MonotonicNs()); err != nil {
			return nil, err
		}
		time.Sleep(lockRetry)
	}
}

func newPinLock(d *os.File, dir, version string) (*PinLock, error) {
	l := &PinLock{dir: d, since: MonotonicNs()}
	owner, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: OwnerPin, Type: ebpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: ownerEntries, Pinning: ebpf.PinByName,
	}, ebpf.MapOptions{PinPath: dir})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map %s: %w", OwnerPin, err), d.Close())
	}
	l.owner = owner
	holder := ownerEntry{AtNs: l.since, PID: uint32(os.Getpid())}
	copy(holder.Version[:len(holder.Version)-1], version)
	if err := errors.Join(owner.Put(ownerHolder, holder), owner.Put(ownerClaim, ownerEntry{})); err != nil {
		return nil, errors.Join(fmt.Errorf("say who has %s: %w", dir, err), l.Close())
	}
	return l, nil
}

// claim asks the process that has dir to leave; with atNs 0 it withdraws the request. If that process is still
// setting up, there is no table yet in which to ask.
func claim(dir string, atNs uint64) error {
	owner, err := ebpf.LoadPinnedMap(filepath.Join(dir, OwnerPin), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for %s: %w", dir, err)
	}
	defer func() { _ = owner.Close() }()
	if err := owner.Put(ownerClaim, ownerEntry{AtNs: atNs, PID: uint32(os.Getpid())}); err != nil {
		return fmt.Errorf("ask for %s: %w", dir, err)
	}
	return nil
}

// Purge locks dir, calls clearPins to remove what is pinned there, calls rest, and removes dir. If no parent of dir exists, it only
// calls rest. If a running process has dir, the error is *Busy, and nothing changes.
func Purge(dir string, clearPins, rest func() error) error {
	if _, err := os.Stat(filepath.Dir(dir)); errors.Is(err, os.ErrNotExist) {
		return rest() // no file system for pins, or none of Weir's in it
	}
	if err := MakePinDir(dir); err != nil { // needed for the lock: a process that starts now makes it too
		return fmt.Errorf("purge %s: %w", dir, err)
	}
	d, err := lockfile.Take(dir)
	switch {
	case errors.Is(err, lockfile.ErrHeld):
		return &Busy{Dir: dir, Holder: ReadHolder(dir)}
	case err != nil:
		return fmt.Errorf("purge %s: %w", dir, err)
	}
	if err := errors.Join(clearPins(), rest(), RemovePinDir(dir), d.Close()); err != nil {
		return fmt.Errorf("purge %s: %w", dir, err)
	}
	return nil
}

// Claimed reports whether a running process asks for the directory.
func (l *PinLock) Claimed() (bool, error) {
	var c ownerEntry
	if err := l.owner.Lookup(ownerClaim, &c); err != nil {
		return false, fmt.Errorf("read which process asks for the pins: %w", err)
	}
	return c.AtNs > l.since && MonotonicNs()-c.AtNs < uint64(claimFresh), nil
}

// Close releases the directory.
func (l *PinLock) Close() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.owner.Close(), l.dir.Close())
}

// ReadHolder returns the process that has dir, or had it last. It leaves out fields that it cannot read.
func ReadHolder(dir string) (h Holder) {
	owner, err := ebpf.LoadPinnedMap(filepath.Join(dir, OwnerPin), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return h
	}
	defer func() { _ = owner.Close() }()
	var e ownerEntry
	if err := owner.Lookup(ownerHolder, &e); err != nil || e.PID == 0 {
		return h
	}
	return Holder{PID: int(e.PID), Version: TextOf(e.Version[:]), Since: Age(e.AtNs)}
}
