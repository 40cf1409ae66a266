package result

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const us = time.Microsecond

// watched is a port with nothing on it: with it, drops are counted.
var watched = []Port{{Name: "p"}}

func must[T any](v *T) T {
	if v == nil {
		panic("the metric is absent")
	}
	return *v
}

func point(t *testing.T, r *Run, want map[string]any) {
	t.Helper()
	for path, v := range want {
		got, ok := r.Metric(split(path))
		switch v := v.(type) {
		case nil:
			if ok {
				t.Errorf("%s = %v, want it absent", path, got)
			}
		case int:
			if !ok || got != float64(v) {
				t.Errorf("%s = %v (present: %v), want %v", path, got, ok, v)
			}
		case float64:
			if !ok || !cmp.Equal(got, v, near) {
				t.Errorf("%s = %v (present: %v), want %v", path, got, ok, v)
			}
		}
	}
}

func TestGroup_CompletionTimes(t *testing.T) {
	raw := &Raw{Duration: 100 * ms, Ports: watched, Flows: []Flow{
		{Group: "g", Key: tcpKey(1, 1), Start: 0, End: 2 * ms, Done: true, Bytes: 10},
		{Group: "g", Key: tcpKey(1, 2), Start: 50 * ms, End: 54 * ms, Done: true, Bytes: 20, Mouse: 1},
		{Group: "g", Key: tcpKey(1, 3), Start: 60 * ms, End: 100 * ms, Bytes: 5, Mouse: 2},                            // cut off
		{Group: "g", Key: tcpKey(1, 4), Start: 0, End: 100 * ms, Done: true, Endless: true, Bytes: 1000, Mouse: 3},    // stopped as planned
		{Group: "g", Key: tcpKey(1, 5), Start: 10 * ms, End: 20 * ms, Endless: true, Bytes: 100, Mouse: 4},            // reset
		{Group: "other", Key: tcpKey(1, 6), Start: 0, End: 100 * ms, Bytes: 0},                                        // nothing arrived
		{Group: "long", Key: tcpKey(1, 7), Start: 0, End: 100 * ms, Done: true, Endless: true, Bytes: 7, Timeouts: 2}, // no size
	}}
	r := Build(Info{World: "sim", Scheme: "x", Windows: map[string][2]time.Duration{"late": {50 * ms, 100 * ms}}}, raw)
	point(t, r, map[string]any{
		"g.flows": 5, "g.unfinished": 2, "g.bytes": 1135,
		"g.fct_ms.n": 2, "g.fct_ms.mean": 3.0, "g.fct_ms.max": 4.0,
		"g.throughput_mbps": 1135 * 8 / 0.1 / 1e6,
		"other.fct_ms.n":    nil, "other.unfinished": 1, "other.goodput_mbps.max": 0, "other.jain": nil,
		"other.throughput_mbps": 0, "other.by_mouse.mean_ms.max": 2000,
		"long.fct_ms.n": nil, "long.by_mouse.mean_ms.n": nil, "long.timeouts": 2, "long.deadlines.flows": nil,
		// The window has the flows that start in it, but all bytes that arrive in it.
		"late.g.flows": 2, "late.g.unfinished": 1, "late.g.fct_ms.max": 4.0, "late.g.fct_ms.n": 1,
		"late.g.bytes": 525, "late.g.throughput_mbps": 525 * 8 / 0.05 / 1e6, "late.g.goodput_mbps.n": 3,
		"late.long.flows": 0, "late.long.timeouts": nil,
	})
	if got, _ := r.Values([]string{"g", "fct_ms"}); !cmp.Equal(got, []float64{2, 4}, near) {
		t.Errorf("values of fct_ms: %v", got)
	}
}

// A lab that runs 5 times slower gives the figures of the experiment as written.
func TestBuild_Unscales(t *testing.T) {
	build := func(scale time.Duration) *Run {
		info := Info{
			World: "lab", Scheme: "x", Scale: float64(scale), Series: scale * ms,
			Windows: map[string][2]time.Duration{"w": {scale * ms, scale * 3 * ms}},
		}
		return Build(info, &Raw{
			Duration: scale * 4 * ms, Bin: scale * ms, RTT: 300 * us,
			Flows: []Flow{
				{
					Group: "g", Key: tcpKey(1, 1), Start: 0, End: scale * 4 * ms, Done: true, Bytes: 4000, Deadline: scale * 3 * ms,
					Delivered: []Delivery{{0, 500}, {1, 1000}, {2, 2500}},
				},
				{Group: "g", Key: tcpKey(1, 2), Start: scale * ms, End: scale * 2 * ms, Mouse: 1, Delivered: []Delivery{}},
			},
			Ports: []Port{{Name: "p", Labels: []string{"b"}, RateBps: 10e6 / int64(scale), Buffer: 3000, Samples: []Sample{
				{At: 0, Step: scale * ms, Count: 2, Backlog: 100}, {At: scale * 2 * ms, Step: scale * ms, Count: 2, Backlog: 300, Sent: 2500, Marks: 4},
			}}},
			Drops: []Drop{{At: scale * 2 * ms, Port: "p", Key: tcpKey(1, 1)}},
		})
	}
	one, five := build(1), build(5)
	ignore := cmpopts.IgnoreUnexported(Group{}, PortResult{})
	five.Scale = 1
	if diff := cmp.Diff(one, five, ignore, near); diff != "" {
		t.Errorf("scale 1 and 5 differ (-1 +5):\n%s", diff)
	}
	point(t, five, map[string]any{
		"g.fct_ms.max": 4.0, "g.by_mouse.mean_ms.max": 2000, "g.throughput_mbps": 8.0, "w.g.throughput_mbps": 3500 * 8 / 2e-3 / 1e6,
		"g.series_mbps.max": 20.0, "b.rate_mbps": 10.0, "b.utilisation": 0.5, "g.deadlines.missed": 1,
	})
	if got := must(five.RTTus); got != 300 {
		t.Errorf("rtt_us = %v; it is given as measured, 300", got)
	}
}

func TestGroup_GoodputOverOwnActiveTime(t *testing.T) {
	raw := &Raw{Duration: 10 * ms, Bin: ms, Ports: watched, Flows: []Flow{
		{Group: "g", Key: tcpKey(1, 1), Start: 0, End: 10 * ms, Done: true, Bytes: 10000, Delivered: []Delivery{{0, 2000}, {5, 8000}}},
		{Group: "g", Key: tcpKey(1, 2), Start: 4500 * us, End: 5500 * us, Done: true, Bytes: 1000, Delivered: []Delivery{{4, 400}, {5, 600}}},
		{Group: "g", Key: tcpKey(1, 3), Start: 3 * ms, End: 3 * ms, Bytes: 0}, // refused at once: it was never active
	}}
	r := Build(Info{World: "sim", Scheme: "x", Windows: map[string][2]time.Duration{"w": {5 * ms, 7 * ms}, "half": {5250 * us, 7 * ms}}}, raw)
	point(t, r, map[string]any{
		"g.goodput_mbps.n": 2, "g.goodput_mbps.min": 8.0, "g.goodput_mbps.max": 8.0, "g.jain": 1.0,
		// 8000 B in 2 ms; 600 B in the remaining half millisecond of the second flow.
		"w.g.goodput_mbps.max": 32.0, "w.g.goodput_mbps.min": 9.6, "w.g.bytes": 8600, "w.g.jain": 41.6 * 41.6 / (2 * (32*32 + 9.6*9.6)),
		// A quarter of bin 5 is outside: 6000 B. Of the second flow's 600 B in [5, 5.5), half remain.
		"half.g.bytes": 6300,
	})
}

func TestGroup_Series(t *testing.T) {
	raw := &Raw{Duration: 25 * ms, Bin: 10 * ms, Ports: watched, Flows: []Flow{
		{Group: "g", Key: tcpKey(1, 1), End: 25 * ms, Done: true, Endless: true, Bytes: 4500, Delivered: []Delivery{{0, 1000}, {1, 3000}, {2, 500}}},
		{Group: "g", Key: tcpKey(1, 2), Start: 2 * ms, End: 4 * ms, Done: true, Bytes: 250, Delivered: []Delivery{{0, 250}}},
		{Group: "late", Key: tcpKey(1, 3), Start: 24 * ms, End: 25 * ms, Done: true, Bytes: 1250, Delivered: []Delivery{{2, 1250}}},
	}}
	r := Build(Info{World: "sim", Scheme: "x", Windows: map[string][2]time.Duration{"w": {5 * ms, 25 * ms}, "short": {0, 9 * ms}}}, raw)
	point(t, r, map[string]any{
		// Two full steps in 25 ms: 1250 B and 3000 B in 10 ms each.
		"g.series_mbps.n": 2, "g.series_mbps.min": 1.0, "g.series_mbps.max": 2.4, "g.series_mbps.mean": 1.7, "g.series_mbps.sd": 0.7,
		// [5, 15): half of the first flow's first and second bin; [15, 25): half of the second and all of the third.
		"w.g.series_mbps.n": 2, "w.g.series_mbps.min": 2000 * 8 / 10e-3 / 1e6, "w.g.series_mbps.max": 1.6,
		"short.g.series_mbps.n": nil,
		"late.series_mbps.max":  0, "w.late.series_mbps.max": 1.0,
	})
}

func TestGroup_ByMouse(t *testing.T) {
	flow := func(mouse, epoch int, fct time.Duration, done bool) Flow {
		start := time.Duration(epoch) * 100 * ms
		return Flow{Group: "mice", Key: tcpKey(mouse+1, 1000+epoch), Mouse: mouse, Epoch: epoch, Start: start, End: start + fct, Done: done}
	}
	raw := &Raw{Duration: time.Second, Ports: watched, Flows: []Flow{
		flow(0, 0, 10*ms, true), flow(0, 1, 30*ms, true), // mean 20, sd 10, p99 29.8, max 30
		flow(1, 0, 40*ms, true), flow(1, 1, 50*ms, false), // the second scores 2000: mean 1020, sd 980
	}, Drops: []Drop{
		{At: 1 * ms, Port: "p", Key: tcpKey(1, 1000)}, {At: 101 * ms, Port: "p", Key: tcpKey(1, 1001).Reverse()}, {At: 102 * ms, Port: "q", Key: tcpKey(1, 1001)},
		{At: 5 * ms, Port: "p", Key: Key{}}, {At: 5 * ms, Port: "p", Key: tcpKey(9, 9)},
	}}
	r := Build(Info{World: "lab", Scheme: "x", Windows: map[string][2]time.Duration{"second": {100 * ms, 200 * ms}}}, raw)
	point(t, r, map[string]any{
		"mice.by_mouse.mean_ms.n": 2, "mice.by_mouse.mean_ms.min": 20.0, "mice.by_mouse.mean_ms.max": 1020.0,
		"mice.by_mouse.sd_ms.min": 10.0, "mice.by_mouse.sd_ms.max": 980.0,
		"mice.by_mouse.p99_ms.min": 29.8, "mice.by_mouse.p99_ms.max": 40 + 0.99*1960, "mice.by_mouse.max_ms.min": 30.0, "mice.by_mouse.max_ms.max": 2000.0,
		"mice.by_mouse.drops.min": 0, "mice.by_mouse.drops.max": 3, "mice.by_mouse.drops.mean": 1.5,
		"mice.drops": 3, "all.drops": 5,
		"second.mice.by_mouse.mean_ms.min": 30.0, "second.mice.by_mouse.drops.max": 2, "second.mice.drops": 2, "second.all.drops": 2,
	})
}

func TestGroup_Deadlines(t *testing.T) {
	flow := func(mouse, epoch int, fct time.Duration, done bool) Flow {
		return Flow{Group: "g", Key: tcpKey(mouse+1, epoch+1), Mouse: mouse, Epoch: epoch, End: fct, Done: done, Deadline: 20 * ms}
	}
	without := flow(2, 0, time.Second, false)
	without.Deadline = 0
	raw := &Raw{Duration: time.Second, Ports: watched, Flows: []Flow{
		flow(2, 1, 20*ms, true), flow(1, 1, 21*ms, true), flow(0, 0, 5*ms, false), flow(0, 1, 5*ms, true), without,
	}}
	r := Build(Info{World: "lab", Scheme: "x"}, raw)
	// A flow that ends exactly at its deadline met it. Three mice: mouse 1 of epoch 1 is 1 x 3 + 1.
	want := &Deadlines{Flows: 4, Missed: 2, MissedIDs: []int{0, 4}}
	if diff := cmp.Diff(want, r.Groups["g"].Deadlines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestGroup_Timeouts(t *testing.T) {
	flow := func(group string, key Key, timeouts int) Flow {
		return Flow{Group: group, Key: key, End: ms, Done: true, Timeouts: timeouts}
	}
	raw := &Raw{Duration: time.Second, Ports: watched, Flows: []Flow{
		flow("known", tcpKey(1, 1), 3), flow("known", tcpKey(1, 2), 0), flow("known", tcpKey(1, 3), 1), flow("known", udpKey(1, 4), -1),
		flow("unknown", tcpKey(1, 5), 3), flow("unknown", tcpKey(1, 6), -1),
		flow("udp", udpKey(1, 7), 0),
		flow("none", tcpKey(1, 8), 0),
	}}
	point(t, Build(Info{World: "lab", Scheme: "x"}, raw), map[string]any{
		"known.timeouts": 4, "known.flows_with_timeout": 2,
		"unknown.timeouts": nil, "unknown.flows_with_timeout": nil,
		"udp.timeouts":  nil,
		"none.timeouts": 0, "none.flows_with_timeout": 0,
	})
}

// A window of a run that was cut short covers only the part that ran; a window that was not reached is absent. If
// a run ended because its flows had, the rest of a window counts as idle.
func TestBuild_PartialWindows(t *testing.T) {
	raw := Raw{Duration: 30 * ms, Partial: true, Ports: watched, Flows: []Flow{
		{Group: "g", Key: tcpKey(1, 1), End: 30 * ms, Done: true, Endless: true, Bytes: 30000},
	}}
	info := Info{World: "lab", Scheme: "x", Windows: map[string][2]time.Duration{"cut": {10 * ms, 50 * ms}, "never": {30 * ms, 60 * ms}}}
	r := Build(info, &raw)
	point(t, r, map[string]any{"cut.g.throughput_mbps": 8.0, "never.g.throughput_mbps": nil, "never.all.drops": nil})
	if !r.Partial {
		t.Error("partial was lost")
	}
	raw.Partial = false
	point(t, Build(info, &raw), map[string]any{"cut.g.throughput_mbps": 4.0, "never.g.throughput_mbps": 0, "never.all.drops": 0})
}
