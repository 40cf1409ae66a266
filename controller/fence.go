package controller

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"weir/law"
	"weir/openflow/channel"
)

// How far switches can raise the generation id. A switch that lies about the id that it knows can raise ours by 2^16 a second.
// It would take four million years to get half round the 64-bit circle, where honest switches would mistake a later id for an
// earlier one.
const (
	raiseStep  = 1 << 16
	raiseEvery = time.Second
)

// fence has the generation id of a term. It trusts the generation file more than the switches. If the file has an id above ours,
// another controller drew it: the term ends. A switch that calls our id stale may lie: only its connection ends, and the id is
// raised by a limited step, while the other switches stay connected. So a fabric continues to work if its generation file was
// lost or came from a backup.
type fence struct {
	store *channel.GenerationFile
	log   *slog.Logger
	over  func() // ends the term

	mu         sync.Mutex
	generation uint64
	known      uint64 // the highest id above ours that switches reported since the last raise
	raised     time.Time
	raises     uint64
	unreadable bool // the file could not be read the last time
}

func newFence(store *channel.GenerationFile, generation uint64, log *slog.Logger) *fence {
	return &fence{store: store, log: log, over: func() {}, generation: generation, known: generation}
}

// now returns the id to ask switches for a role with, and how often it was raised in this term.
func (f *fence) now() (generation, raises uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.generation, f.raises
}

// holds reads the generation file and reports whether no other controller has drawn an id above ours. Otherwise it ends the
// term. A file that cannot be read must not stop the fabric: then it reports true.
func (f *fence) holds() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holdsLocked(f.store.Check(f.generation))
}

func (f *fence) holdsLocked(err error) bool {
	if stale := new(channel.StaleError); errors.As(err, &stale) {
		f.log.Error("another controller has drawn a higher generation id: this term is over", "ours", stale.Generation, "file", stale.Kept)
		f.over()
		return false
	}
	if err != nil && !f.unreadable {
		f.log.Error("cannot read or write the generation file: this controller continues", "error", err)
	}
	f.unreadable = err != nil
	return true
}

// refused raises the id above the one that a switch reports, within raiseStep and raiseEvery.
func (f *fence) refused(id law.Switch, why *channel.RefusedIDError) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, above := channel.Above(f.generation, why.Known, raiseStep); !above {
		return
	}
	if why.Known-f.generation > f.known-f.generation {
		f.known = why.Known
	}
	if !f.raised.IsZero() && time.Since(f.raised) < raiseEvery {
		return // it connects again
	}
	next, _ := channel.Above(f.generation, f.known, raiseStep)
	f.raised = time.Now()
	if err := f.store.Raise(f.generation, next); err != nil {
		f.holdsLocked(err)
		return
	}
	f.log.Warn("a switch calls the generation id stale: it is raised", "switch", id, "from", f.generation, "to", next, "switch_says", why.Known)
	f.generation, f.known = next, next
	f.raises++
}
