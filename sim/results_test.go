package sim

import (
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/law"
	"weir/sim/event"
)

// The samples of a port cover every point of the grid once, and their sums match.
func TestResults_SamplesCoverTheRun(t *testing.T) {
	raw := carriedOut(t, baseWith("{name: long, from: \"sender*\", to: receiver1, pattern: bulk, stop: 500ms}"), "duration=600ms")
	var port *result.Port
	for i := range raw.Ports {
		if p := &raw.Ports[i]; len(p.Labels) > 0 {
			port = p
		}
	}
	if port == nil || port.Name != "switch->receiver1" || port.RateBps != 100e6 || port.Buffer != 60_000 || len(raw.Ports) != 10 {
		t.Fatalf("%+v of %d ports", port, len(raw.Ports))
	}
	next, most := time.Duration(0), int64(0)
	for i, s := range port.Samples {
		if s.At != next || s.Step != 100*us { // half of 400 us, and the next finer step
			t.Fatalf("sample %d is at %v with step %v, want %v", i, s.At, s.Step, next)
		}
		next += time.Duration(s.Count) * s.Step
		most = max(most, s.Backlog)
		if i > 0 && s.Sent < port.Samples[i-1].Sent {
			t.Errorf("bytes sent go back at %v", s.At)
		}
	}
	if next < raw.Duration || next >= raw.Duration+100*us {
		t.Errorf("samples end at %v, the run at %v", next, raw.Duration)
	}
	within(t, "largest backlog", most, 50_000, 60_000)
	utilisation := float64(port.Samples[len(port.Samples)-1].Sent) * 8 / 0.5 / 100e6
	within(t, "utilisation", utilisation, 0.945, 1.001) // without the first round trips
}

// Datagrams at more than the line's rate use all of it: a full frame takes what the line adds too.
func TestUtilisation_OfAFullLineIsOne(t *testing.T) {
	r := planned(t, baseWith("{name: u, from: \"sender1..2\", to: receiver1, proto: udp, pattern: cbr, rate: 60Mbit, stop: 200ms}"),
		"duration=200ms", "measure.windows={late: [100ms, 200ms]}")[0]
	w := result.Build(r.Info(), ran(t, &World{Laws: laws.Sim()}, r)).Windows["late"]
	if u := w.Ports["bottleneck"].Utilisation; u == nil {
		t.Error("no utilisation")
	} else if *u < 0.999 || *u > 1.001 {
		t.Errorf("utilisation %v, want 1", *u)
	}
}

func TestGrid_IsFinerForShortRoundTrips(t *testing.T) {
	for _, c := range []struct {
		rtt, duration time.Duration
		ports         int
		want          event.Time
	}{
		{2 * ms, time.Second, 1, 500e3},
		{1 * ms, time.Second, 1, 500e3},
		{400 * us, time.Second, 1, 100e3},
		{100 * us, time.Second, 1, 50e3},
		{1 * us, time.Second, 1, 10e3},
		{100 * us, 30 * time.Second, 10, 500e3}, // 6 million samples would be
		{100 * us, 10000 * time.Second, 2, 1e6},
	} {
		cfg := &experiment.Config{Duration: law.Duration(c.duration), RTT: law.Duration(c.rtt)}
		if got := grid(cfg, c.ports); got != c.want {
			t.Errorf("%v round trip, %v, %d ports: %d ns, want %d", c.rtt, c.duration, c.ports, got, c.want)
		}
	}
}

func TestBefore_CutsAtTheEnd(t *testing.T) {
	samples := []result.Sample{{At: 0, Step: ms, Count: 3}, {At: 3 * ms, Step: ms, Count: 2}, {At: 5 * ms, Step: ms, Count: 1}}
	for end, want := range map[time.Duration][]int64{6 * ms: {3, 2, 1}, 5500 * us: {3, 2, 1}, 5 * ms: {3, 2}, 3500 * us: {3, 1}, 3 * ms: {3}, 1: {1}, 0: {}} {
		got := before(append([]result.Sample(nil), samples...), end)
		if len(got) != len(want) {
			t.Errorf("%v: %d samples, want %v", end, len(got), want)
			continue
		}
		for i := range got {
			if got[i].Count != want[i] {
				t.Errorf("%v: sample %d counts %d points, want %d", end, i, got[i].Count, want[i])
			}
		}
	}
}
