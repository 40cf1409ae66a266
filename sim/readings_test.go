//go:build cgo

package sim

import (
	"maps"
	"slices"
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/law"
	"weir/law/telemetry"
)

// readings notes when each switch's first report comes.
type readings struct {
	law.Law
	first map[law.Switch]time.Duration
}

func (l *readings) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	if r, ok := e.(*telemetry.Telemetry); ok {
		if _, seen := l.first[r.At]; !seen {
			l.first[r.At] = now
		}
	}
	return l.Law.Step(now, e, out)
}

// Next to the lab each switch is read at a time of its own, that its seed gives. Alone all are read at once.
func TestReadings(t *testing.T) {
	const interval, delay = 10 * time.Millisecond, 200 * time.Microsecond // a message takes half of the round trip
	first := func(nextToLab bool, seed int64) []time.Duration {
		r := planned(t, baseWith("{name: long, from: sender1, to: receiver1, pattern: bulk, stop: 50ms}"),
			"duration=50ms", "traffic.long.from=rack1.server1", "traffic.long.to=rack2.server1", "topology={kind: racks, racks: 4, servers: 1, hypervisors: true}", "measure.ports={bottleneck: core->tor2}",
			"schemes=[{name: sicc, params: {interval: 10ms}}]")[0]
		r.LabRTT, r.Seed = nextToLab, seed
		l := &readings{first: map[law.Switch]time.Duration{}}
		r.Tap = func(of law.Law, _ string) law.Law { l.Law = of; return l }
		ran(t, &World{Laws: laws.Sim()}, r)
		if len(l.first) != 5 {
			t.Fatalf("%d switches report, want 5", len(l.first))
		}
		return slices.Sorted(maps.Values(l.first))
	}
	if at := first(false, 1); at[0] != at[4] || at[0] != interval+delay {
		t.Errorf("alone, the switches report first at %v, want %v", at, interval+delay)
	}
	at := first(true, 1)
	if at[0] <= delay || at[4] > interval+delay || len(slices.Compact(slices.Clone(at))) != 5 {
		t.Errorf("next to the lab they report first at %v, want five times up to %v", at, interval+delay)
	}
	if again, other := first(true, 1), first(true, 2); !slices.Equal(at, again) || slices.Equal(at, other) {
		t.Errorf("seed 1: %v, again %v, seed 2: %v", at, again, other)
	}
}
