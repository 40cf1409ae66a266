package fairq_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/fairq"
	"weir/datapath/internal/fairqtest"
	"weir/internal/testroot"
)

// Two processors enter one connection at the same moment, while one of them frees its place. The connection is in the table once at
// most. If it is not, both calls returned that it exists, and its next packet enters it.
func TestFairQPlaces_TwoProcessors(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	const rounds, exists = 2000, -17
	spec, err := fairqtest.LoadFairQ()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables[fairqtest.FairQVarNearPlaces].Set(uint32(1)); err != nil {
		t.Fatal(err)
	}
	var f fairqtest.FairQObjects
	if err := spec.LoadAndAssign(&f, nil); err != nil {
		t.Fatalf("%+v", err)
	}
	defer f.Close()
	keys := [2]fairqtest.FairQFlowKey{{Word: [2]uint64{1, 2}}, {Word: [2]uint64{3, 4}}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(f.RaceKeys.Set(keys))
	must(f.RaceConnection.Set(fairqtest.FairQConnection{Owner: 7}))
	first := fairqtest.FairQNearPlace{Key: keys[0]}
	_, first.Holder = fairq.PlaceOf(keys[0].Word, 1)
	got := map[[2]int64]int{}
	for round := range rounds {
		held := round%2 == 0 // else the place is free from the beginning
		before := fairqtest.FairQNearPlace{}
		if held {
			before = first
		}
		must(f.Near.Put(uint32(0), before))
		must(f.RaceGoes.Set(uint64(2 * (round + 1))))
		var both sync.WaitGroup
		for side := range uint32(2) {
			both.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				const mark = 2 // the word of __sk_buff
				ctx := [45]uint32{mark: side}
				if _, err := f.Race.Run(&ebpf.RunOptions{Data: make([]byte, 64), Context: &ctx}); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		var results [2]int64
		var at fairqtest.FairQNearPlace
		var c fairqtest.FairQConnection
		must(f.RaceResults.Get(&results))
		must(f.Near.Lookup(uint32(0), &at))
		in, entered := 0, 0
		if at.Holder != 0 && at.Key == keys[1] {
			in++
			if at.C.Owner != 7 {
				t.Fatalf("round %d: the place has another connection: %+v", round, at.C)
			}
		}
		if f.Flows.Lookup(keys[1], &c) == nil {
			in++
			must(f.Flows.Delete(keys[1]))
		}
		for _, result := range results {
			if result == 0 {
				entered++
			} else if result != exists {
				t.Fatalf("round %d: error %d", round, result)
			}
		}
		got[results]++
		if in != entered || in > 1 {
			t.Fatalf("round %d, the place held before: %t: in %d maps; the calls returned %v", round, held, in, results)
		}
		if !held && in != 1 {
			t.Fatalf("round %d: a connection whose place is free was not entered", round)
		}
	}
	t.Logf("returned, in %d rounds: %v", rounds, got)
}
