package measure

import (
	"math/rand/v2"
	"slices"
	"testing"

	"weir/experiment/result"
	"weir/internal/testseed"
)

// queueEvent is a change of a queue's state.
type queueEvent struct {
	at      int64
	backlog uint32
	sent    uint64
}

// recordsOf returns the records that the kernel program writes for events: see report() in bpf/measure.bpf.c.
func recordsOf(start int64, events []queueEvent) (records []measureSample) {
	var last measurePort
	last.NextNs = roundUp(start, int64(Step))
	for _, e := range events {
		if now := uint64(e.at); now >= last.NextNs {
			n := (now-last.NextNs)/uint64(Step) + 1
			records = append(records, measureSample{FirstNs: last.NextNs, Count: uint32(n), BacklogBytes: last.BacklogBytes, SentBytes: last.SentBytes})
			last.NextNs += n * uint64(Step)
		}
		last.BacklogBytes, last.SentBytes = e.backlog, e.sent
	}
	return append(records, lastSample(&last))
}

// For all events at a queue, and all starts and ends of the traffic, each grid point of [t0, end) is covered once,
// in order, with the state of the queue at that time.
func TestCover_EveryGridPointOnce(t *testing.T) {
	seed := testseed.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		start := int64(r.Uint32())
		var events []queueEvent
		for at := start; len(events) < r.IntN(40); {
			at += r.Int64N(4 * int64(Step) / (1 + r.Int64N(8)))
			events = append(events, queueEvent{at, r.Uint32(), uint64(len(events))})
		}
		records := recordsOf(start, events)
		t0 := start + r.Int64N(20*int64(Step))
		end := t0 + r.Int64N(40*int64(Step))
		checkCover(t, seed, cover(records, t0, end), events, t0, end)
		if t.Failed() {
			return
		}
	}
}

// checkCover checks the grid point by point.
func checkCover(t *testing.T, seed uint64, samples []result.Sample, events []queueEvent, t0, end int64) {
	t.Helper()
	i, within := 0, int64(0)
	for g := int64(roundUp(t0, int64(Step))); g < end; g += int64(Step) {
		var held queueEvent
		for _, e := range events {
			if e.at < g {
				held = e
			}
		}
		if i >= len(samples) {
			t.Errorf("seed %d: grid point %d is not covered", seed, g-t0)
			return
		}
		s := samples[i]
		if at := int64(s.At) + within*int64(Step); at != g-t0 || s.Step != Step || s.Backlog != int64(held.backlog) || s.Sent != held.sent {
			t.Errorf("seed %d: at %d: %+v point %d, want backlog %d, sent %d", seed, g-t0, s, within, held.backlog, held.sent)
			return
		}
		if within++; within == s.Count {
			i, within = i+1, 0
		}
	}
	if i != len(samples) {
		t.Errorf("seed %d: %d samples after the end", seed, len(samples)-i)
	}
}

// A lost record leaves no gap in the grid: the previous value continues.
func TestCover_LostRecord(t *testing.T) {
	step := int64(Step)
	got := cover([]measureSample{
		{FirstNs: uint64(step), Count: 2, BacklogBytes: 7},
		{FirstNs: uint64(6 * step), Count: 1, BacklogBytes: 9},
		lastSample(&measurePort{NextNs: uint64(7 * step), BacklogBytes: 11}),
	}, step, 9*step)
	want := []result.Sample{
		{At: 0, Step: Step, Count: 5, Backlog: 7},
		{At: 5 * Step, Step: Step, Count: 1, Backlog: 9},
		{At: 6 * Step, Step: Step, Count: 2, Backlog: 11},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("sample %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// Drops that the counter has and no event reports are found, at the first record that has them; an event that
// arrives late is not one of them.
func TestUnseen(t *testing.T) {
	at := func(ms int) uint64 { return uint64(ms) * 1e6 }
	record := func(ms int, drops uint32) measureSample { return measureSample{FirstNs: at(ms), Drops: drops} }
	rows := []struct {
		name    string
		records []measureSample
		events  []uint64
		want    []uint64
	}{
		{"none", []measureSample{record(1, 0), record(2, 0)}, nil, nil},
		{"all seen", []measureSample{record(1, 1), record(2, 3)}, []uint64{at(1) - 9, at(2) - 8, at(2) - 7}, nil},
		{"one late", []measureSample{record(1, 1), record(2, 1)}, []uint64{at(1) + 5}, nil},
		{"late at the end", []measureSample{record(1, 0), record(2, 1)}, []uint64{at(2) + 5}, nil},
		{"one missed", []measureSample{record(1, 1), record(2, 2), record(3, 2)}, []uint64{at(1) - 5}, []uint64{at(2)}},
		{"one late, two missed", []measureSample{record(1, 2), record(2, 2), record(3, 3)}, []uint64{at(1) + 5}, []uint64{at(1), at(3)}},
	}
	for _, r := range rows {
		if got := unseen(r.records, r.events); !slices.Equal(got, r.want) {
			t.Errorf("%s: %v, want %v", r.name, got, r.want)
		}
	}
}

// A marked packet that the queue then drops is not a mark, not even between the two events.
func TestCover_MarkTakenBack(t *testing.T) {
	step := int64(Step)
	got := cover([]measureSample{
		{FirstNs: 0, Count: 1, Marks: 4}, {FirstNs: uint64(step), Count: 1, Marks: 6}, {FirstNs: uint64(2 * step), Count: 1, Marks: 5},
	}, 0, 3*step)
	if len(got) != 3 || got[0].Marks != 4 || got[1].Marks != 5 || got[2].Marks != 5 {
		t.Errorf("%+v", got)
	}
}
