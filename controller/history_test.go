//go:build cgo

package controller

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	leases "weir/bus/lease"
	"weir/internal/testseed"
)

var plays = flag.Int("histories", 400, "TestHistories: how many")

// summary is what histories showed.
type summary struct {
	n, obeyed, applied, limited int
	refused                     map[leases.Reason]int
	first                       string // failure
}

// histories plays until one fails.
func histories(seed uint64, n int) (s summary) {
	var mu sync.Mutex
	var group sync.WaitGroup
	next := 0
	s.refused = map[leases.Reason]int{}
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := s.first != "" || i >= n
				mu.Unlock()
				if stop {
					return
				}
				h := newHistory(seed + uint64(i))
				errs := h.play()
				mu.Lock()
				s.n++
				s.obeyed, s.applied, s.limited = s.obeyed+h.obeyed, s.applied+h.applied, s.limited+h.limited
				for r, k := range h.refused {
					s.refused[r] += k
				}
				if len(errs) > 0 && s.first == "" {
					s.first = fmt.Sprintf("history %d: %s", seed+uint64(i), strings.Join(errs, "\n"))
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return s
}

// The faults hit controllers, agents, store and network. An agent obeys one controller in a term, and no older one after it. No
// command is obeyed that is older than a second or comes again. No packet is limited by a grant whose report is more than 1.5 s
// old. After the faults each controller knows and decides the same as one that starts then.
func TestHistories(t *testing.T) {
	n := *plays
	if testing.Short() {
		n /= 5
	}
	begun := time.Now()
	s := histories(testseed.Seed(t), n)
	if s.first != "" {
		t.Fatal(s.first)
	}
	t.Logf("%d histories in %v: %d commands obeyed, %d grants set, %d looks at a grant in force; by result: %v", s.n, time.Since(begun), s.obeyed, s.applied, s.limited, s.refused)
	for _, r := range []leases.Reason{leases.Obeyed, leases.OtherBucket, leases.StaleTerm, leases.OldSequence, leases.OtherRun, leases.Late, leases.FromFuture, leases.OtherHolder} {
		if s.refused[r] == 0 {
			t.Errorf("no command was refused with reason %q: the histories are too tame", r)
		}
	}
}
