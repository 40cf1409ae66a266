package main

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueue: flow-mods meet the packet-ins in the order in which they were due, however they are cut into reads, and
// what was taken is not kept.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q queue
	var due []int64 // of each packet-in that waits
	for i := range int64(100_000) {
		n := 1 + random.IntN(9)
		q.put(i, n)
		due = append(due, slices.Repeat([]int64{i}, n)...)
		for most := random.IntN(12); most > 0 && len(due) > 0; {
			at, n := q.take(most)
			if n < 1 || n > most || at != due[0] || at != due[n-1] {
				t.Fatalf("took %d of %d due at %d, want those of %d", n, most, at, due[0])
			}
			due, most = due[n:], most-n
		}
		if q.empty() != (len(due) == 0) {
			t.Fatalf("empty: %t with %d waiting", q.empty(), len(due))
		}
	}
	for len(due) > 0 {
		_, n := q.take(len(due))
		due = due[n:]
	}
	if !q.empty() || cap(q.bursts) > 4096 {
		t.Errorf("empty: %t, room for %d bursts", q.empty(), cap(q.bursts))
	}
}
