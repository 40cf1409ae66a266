package lease

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/testseed"
)

// worlds are the kinds of histories.
var worlds = map[string]faults{
	"store":               {forges: true},
	"store, files lost":   {losesFile: true, forges: true},
	"store that is wiped": {wipes: true, losesFile: true, forges: true},
	"alone":               {alone: true, forges: true},
	"two that are alone":  {alone: true, mistake: true, wipes: true, forges: true}, // an operator's mistake
}

// failures plays histories until one fails, and returns how many were played and the first failure.
func failures(seed uint64, n int, m mutant) (played int, first string, sum map[Reason]int) {
	var mu sync.Mutex
	var group sync.WaitGroup
	next := 0
	sum = map[Reason]int{}
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := first != "" || i >= n
				mu.Unlock()
				if stop {
					return
				}
				for name, f := range worlds {
					h := newHistory(seed+uint64(i), f, m)
					errs := h.play()
					mu.Lock()
					played++
					for r, k := range h.refused {
						sum[r] += k
					}
					if len(errs) > 0 && first == "" {
						first = fmt.Sprintf("world %q, seed %d: %s", name, seed+uint64(i), strings.Join(errs, "\n"))
					}
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return played, first, sum
}

// No agent obeys two controllers in a term, nor an older one after a newer; and control returns after the faults.
func TestHistories(t *testing.T) {
	n := 400
	if testing.Short() {
		n = 40
	}
	played, first, sum := failures(testseed.Seed(t), n, mutant{})
	if first != "" {
		t.Fatal(first)
	}
	t.Logf("%d histories; commands by result: %v", played, sum)
	for _, r := range []Reason{Obeyed, OtherBucket, StaleTerm, OldSequence, OtherRun, Late, FromFuture, OtherHolder} {
		if sum[r] == 0 {
			t.Errorf("no command was refused with reason %q: the histories are too tame", r)
		}
	}
}

var mutants = []mutant{
	{name: "agents accept another bucket", fence: "bucket"},
	{name: "agents accept a lower term", fence: "term"},
	{name: "agents accept a second holder of a term", fence: "holder"},
	{name: "agents accept any sequence number", fence: "sequence"},
	{name: "agents accept an answer to an earlier run", fence: "incarnation"},
	{name: "agents accept an old answer", fence: "age"},
	{name: "agents accept stamps of the future", fence: "future"},
	{name: "agents forget terms when they restart", forgets: true},
	{name: "a new term ignores the record", source: 1},
	{name: "a new term ignores the file", source: 2},
	{name: "a new term ignores the agents", source: 3},
	{name: "a new term ignores the heartbeats", source: 4},
	{name: "the store does not compare", blindCAS: true},
	{name: "a holder ignores higher terms of others", deafHeard: true},
	{name: "a holder ignores what agents report", noRaise: true},
}

// Each check is needed: without it histories fail.
func TestHistories_FindEachMutant(t *testing.T) {
	seed := testseed.Seed(t)
	for _, m := range mutants {
		played, first, _ := failures(seed, 2000, m)
		if first == "" {
			t.Errorf("%s: none of %d histories failed", m.name, played)
			continue
		}
		t.Logf("%s: found after %d histories: %s", m.name, played, first)
	}
}

// Two controllers that start together share the buckets.
func TestMachine_SharesBuckets(t *testing.T) {
	const buckets = 64
	var machines []*Machine
	for i := range 2 {
		machines = append(machines, New(Config{Self: Holder{fmt.Sprint("c", i), 1}, Buckets: buckets}, 0))
	}
	store := make([]Record, buckets)
	for now := time.Duration(0); now < 5*time.Second; now += 50 * time.Millisecond {
		for i, m := range machines {
			play(m, machines[1-i], store, now, m.Step(now, Tick{}))
		}
	}
	counts := [2]int{}
	for b := range buckets {
		for i, m := range machines {
			if _, ok := m.Holds(b); ok {
				counts[i]++
			}
		}
	}
	if counts[0]+counts[1] != buckets || counts[0] < buckets/4 || counts[1] < buckets/4 {
		t.Errorf("they hold %v of %d buckets", counts, buckets)
	}
}

// A controller whose first record was written by another one at the same moment waits for that one's heartbeat.
func TestMachine_LosesTheFirstRecord(t *testing.T) {
	m, now := New(Config{Self: Holder{"c1", 1}, Buckets: 1}, 0), Silence
	other := Record{Holder{"c2", 1}, 1, 7}
	var wrote *Write
	for ; wrote == nil; now += HeartbeatEvery {
		for _, o := range slices.Clone(m.Step(now, Tick{})) {
			switch o := o.(type) {
			case Ask:
				m.Step(now, Read{Bucket: 0})
			case Store:
				for _, next := range m.Step(now, Stored(o)) {
					if w, ok := next.(Write); ok {
						wrote = &w
					}
				}
			}
		}
	}
	m.Step(now, Written{Bucket: 0, Term: wrote.Term})
	m.Step(now, Read{0, other})
	lost := now
	for begun := false; !begun; now += 50 * time.Millisecond {
		for _, o := range m.Step(now, Tick{}) {
			if _, begun = o.(Store); begun && now-lost < Silence {
				t.Fatalf("it takes over %v after the other controller wrote the record", now-lost)
			}
		}
	}
}

// play carries orders out at once.
func play(m, other *Machine, store []Record, now time.Duration, orders []Order) {
	for _, o := range append([]Order(nil), orders...) {
		switch o := o.(type) {
		case Beacon:
			for _, h := range append(o.Held, Held{Bucket: -1}) {
				play(other, m, store, now, other.Step(now, Heard{h.Bucket, m.cfg.Self, h.Term}))
			}
		case Ask:
			play(m, other, store, now, m.Step(now, Read{o.Bucket, store[o.Bucket]}))
		case Store:
			play(m, other, store, now, m.Step(now, Stored(o)))
		case Write:
			r := &store[o.Bucket]
			ok := r.Revision == o.Revision
			if ok {
				*r = Record{m.cfg.Self, o.Term, r.Revision + 1}
			}
			play(m, other, store, now, m.Step(now, Written{o.Bucket, o.Term, ok, r.Revision}))
		case Announce:
			play(m, other, store, now, m.Step(now, Announced(o)))
		}
	}
}
