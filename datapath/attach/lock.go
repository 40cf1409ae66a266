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

// A pin directory belongs to one process at a time. It holds a lock on the directory itself: whoever
// sees the tables sees the lock, and it goes with the process, however that ends. Beside the tables is a
// small one of user space's own, which says who has the lock and who asks for it. Its layout is the
// same in all versions of Weir, for an upgrade must be able to ask.
const (
	OwnerPin      = "owner"
	ownerHolder   = uint32(0) // who has the lock
	ownerClaim    = uint32(1) // who asks for it
	ownerEntries  = 2
	claimFresh    = time.Second // who asks says so again and again
	takeOverLimit = 5 * time.Second
	lockRetry     = 10 * time.Millisecond
)

// ownerEntry is an entry of that table: 64 bytes.
type ownerEntry struct {
	AtNs    uint64 // CLOCK_MONOTONIC: since when it has the lock, or when it last asked
	PID     uint32
	_       uint32
	Version [48]byte
}

// Holder is the process that has a pin directory, or had it last.
type Holder struct {
	PID     int // in its own PID namespace; 0: not known
	Version string
	Since   time.Duration // ago
}

func (h Holder) String() string {
	if h.PID == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d (weir %s)", h.PID, h.Version)
}

// Busy is the error for a pin directory that a living process has.
type Busy struct {
	Dir    string
	Holder Holder
	// Asked: it was asked to leave, and did not.
	Asked bool
}

func (e *Busy) Error() string {
	if e.Asked {
		return fmt.Sprintf("%s was asked to leave %s and did not within %v: end it", e.Holder, e.Dir, takeOverLimit)
	}
	return fmt.Sprintf("%s is at work on %s: stop it, or take over from it (--take-over)", e.Holder, e.Dir)
}

// ErrTakenOver is what Heartbeat returns when another process asks for the pin directory. All that is to be
// done then is Leave.
var ErrTakenOver = errors.New("another process takes over")

// PinLock is this process's hold on a pin directory.
type PinLock struct {
	dir   *os.File
	owner *ebpf.Map
	since uint64
}

// LockPins makes this process the one that has dir, which must exist. Before another is asked to leave it,
// rehearse must find that this one can do its work.
func LockPins(dir, version string, takeOver bool, rehearse func() error) (*PinLock, error) {
	deadline := time.Now().Add(takeOverLimit)
	for asked := false; ; asked = true {
		d, err := lockfile.Take(dir)
		switch {
		case err == nil:
			return newPinLock(d, dir, version)
		case !errors.Is(err, lockfile.ErrHeld):
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		case !takeOver:
			return nil, &Busy{Dir: dir, Holder: ReadHolder(dir)}
		case time.Now().After(deadline):
			// Or it would leave when it wakes, and nobody would come.
			withdrawn := claim(dir, 0)
			return nil, errors.Join(&Busy{Dir: dir, Holder: ReadHolder(dir), Asked: true}, withdrawn)
		}
		if !asked {
			if err := rehearse(); err != nil {
				return nil, err
			}
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

// claim asks the process that has dir to leave, or with atNs 0 no more. That one may still be setting
// up: then there is nothing to ask by yet.
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

// Claimed says whether a living process asks for the directory.
func (l *PinLock) Claimed() (bool, error) {
	var c ownerEntry
	if err := l.owner.Lookup(ownerClaim, &c); err != nil {
		return false, fmt.Errorf("look who asks for the pins: %w", err)
	}
	return c.AtNs > l.since && MonotonicNs()-c.AtNs < uint64(claimFresh), nil
}

// Close gives the directory to whoever asks next.
func (l *PinLock) Close() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.owner.Close(), l.dir.Close())
}

// ReadHolder says who has dir, or had it last. It leaves out what it cannot read.
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
