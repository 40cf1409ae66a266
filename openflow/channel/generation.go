package channel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"weir/internal/replace"
)

// GenerationStore keeps the highest generation id that this controller has used, so that it never decreases, even after a
// restart. Many connections use it at once.
type GenerationStore interface {
	// Advance stores an id before it is used. An id below the stored one is refused with a [StaleError]; the same id is
	// accepted. After it returns nil, the id survives a loss of power.
	Advance(generation uint64) error
}

// StaleError reports a generation id below the stored one.
type StaleError struct{ Generation, Kept uint64 }

func (e *StaleError) Error() string {
	return fmt.Sprintf("generation id %d is below %d, which was used already", e.Generation, e.Kept)
}

// GenerationFile stores the generation id in a file, as one decimal number. Several processes may share it. A file that cannot
// be read, or has other content, is an error: an operator must decide to start again.
type GenerationFile struct {
	Path string

	mu sync.Mutex
}

// Advance implements [GenerationStore].
func (g *GenerationFile) Advance(generation uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := g.locked(func(kept uint64, ok bool) (uint64, error) {
		if ok && older(generation, kept) {
			return 0, &StaleError{Generation: generation, Kept: kept}
		}
		return generation, nil
	})
	return err
}

// Next stores and returns the id above the stored one, 1 in a new file: for a controller without another source of its term.
func (g *GenerationFile) Next() (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.locked(func(kept uint64, _ bool) (uint64, error) {
		if kept+1 == noGeneration {
			return 0, nil
		}
		return kept + 1, nil
	})
}

// Raise replaces the id from by a higher one, for a controller whose id a switch calls stale. If the file has an id above from,
// another controller wrote it: then the file stays unchanged, and the error is a [StaleError].
func (g *GenerationFile) Raise(from, to uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := g.locked(func(kept uint64, ok bool) (uint64, error) {
		if ok && older(from, kept) {
			return 0, &StaleError{Generation: from, Kept: kept}
		}
		return to, nil
	})
	return err
}

// Check returns a [StaleError] if the file has an id above this one, which another controller put there. Other errors
// mean that the file cannot be read. A missing file has no id.
func (g *GenerationFile) Check(generation uint64) error {
	kept, ok, err := readGeneration(g.Path)
	if err == nil && ok && older(generation, kept) {
		err = &StaleError{Generation: generation, Kept: kept}
	}
	return err
}

// Above returns the id after known, but at most step above generation. False: known is not above generation, or stands for "no
// id".
func Above(generation, known, step uint64) (uint64, bool) {
	if known == noGeneration || !older(generation, known) {
		return 0, false
	}
	next := generation + min(known-generation+1, step)
	if next == noGeneration {
		next++
	}
	return next, true
}

// locked changes the number while no other process can, and returns the new one.
func (g *GenerationFile) locked(change func(kept uint64, ok bool) (uint64, error)) (uint64, error) {
	lock, err := os.OpenFile(g.Path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, fmt.Errorf("generation id: %w", err)
	}
	defer lock.Close() // releases the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return 0, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	kept, ok, err := readGeneration(g.Path)
	if err != nil {
		return 0, err
	}
	next, err := change(kept, ok)
	if err != nil || ok && next == kept {
		return kept, err
	}
	return next, writeGeneration(g.Path, next)
}

func readGeneration(path string) (generation uint64, ok bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("generation id: %w", err)
	}
	generation, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("generation id in %s: %w: write the highest one used there, or remove it", path, err)
	}
	return generation, true, nil
}

// writeGeneration replaces the file in one step: after a loss of power it has the old number or the new one.
func writeGeneration(path string, generation uint64) error {
	if err := replace.Bytes(path, 0o600, fmt.Appendln(nil, generation)); err != nil {
		return fmt.Errorf("store generation id %d: %w", generation, err)
	}
	return nil
}
