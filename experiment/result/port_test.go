package result

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/law"
)

func TestPort(t *testing.T) {
	bottleneck := Port{Name: "s->r", Labels: []string{"bottleneck", "out"}, RateBps: 8e6, Buffer: 5000, Samples: []Sample{
		// Idle until 3 ms, then 1000 B are sent each ms; the last point is at 9 ms.
		{At: 0, Step: ms, Count: 4, Backlog: 0, Sent: 500, Marks: 7},
		{At: 4 * ms, Step: ms, Count: 1, Backlog: 2000, Sent: 1500, Marks: 8},
		{At: 5 * ms, Step: ms, Count: 1, Backlog: 4000, Sent: 2500, Marks: 10},
		{At: 6 * ms, Step: ms, Count: 4, Backlog: 1000, Sent: 3500, Marks: 10},
	}}
	raw := &Raw{Duration: 10 * ms, Ports: []Port{bottleneck, {Name: "q", Labels: []string{"unsampled"}}}, Drops: []Drop{
		{At: 0, Port: "s->r"}, {At: 5 * ms, Port: "s->r"}, {At: 6 * ms, Port: "s->r"}, {At: 5 * ms, Port: "elsewhere"},
	}}
	raw.LawTotals = []law.Value{{Metric: "acks", Value: 9}, {Metric: "acks_rewritten", Value: 5}, {Metric: "acks_advertised", Value: 2}, {Metric: "acks_left", Value: 3}}
	r := Build(Info{World: "lab", Scheme: "x", Windows: map[string][2]time.Duration{"w": {3500 * us, 6 * ms}, "idle": {ms, 2 * ms}}}, raw)
	point(t, r, map[string]any{
		"bottleneck.queue_bytes.n": 10, "bottleneck.queue_bytes.mean": 1000.0, "bottleneck.queue_bytes.p50": 1000, "bottleneck.queue_bytes.max": 4000,
		"bottleneck.drops": 3, "bottleneck.marks": 3, "bottleneck.utilisation": 0.3, "out.marks": 3,
		"bottleneck.buffer_bytes": 5000, "bottleneck.rate_mbps": 8.0,
		"unsampled.drops": 0, "unsampled.queue_bytes.n": nil, "unsampled.marks": nil, "unsampled.utilisation": nil, "unsampled.rate_mbps": nil,
		"all.drops": 4, "all.queue_bytes.n": nil,
		"all.law.acks": 9, "all.law.acks_rewritten": 5, "all.law.acks_advertised": 2, "all.law.acks_left": 3, "w.all.law.acks": nil,
		// 0.5 ms of 0, then 1 ms each of 2000 and 4000, in 2.5 ms. Two points of the grid lie in it. At 3.5 ms
		// half of the first step's 1000 B were sent.
		"w.bottleneck.queue_bytes.n": 2, "w.bottleneck.queue_bytes.mean": 2400.0, "w.bottleneck.queue_bytes.min": 0,
		"w.bottleneck.drops": 1, "w.bottleneck.utilisation": 1.0, "w.all.drops": 2,
		"idle.bottleneck.queue_bytes.max": 0, "idle.bottleneck.utilisation": 0, "idle.bottleneck.marks": 0, "idle.all.drops": 0,
	})
	if got, _ := r.Values([]string{"w", "bottleneck", "queue_bytes"}); !cmp.Equal(got, []float64{2000, 4000}) {
		t.Errorf("values of queue_bytes in w: %v", got)
	}
}

// A value that could not be measured is absent; a measured value of nothing is 0.
func TestBuild_AbsentIsNotZero(t *testing.T) {
	flows := []Flow{{Group: "g", Key: tcpKey(1, 1), End: ms, Done: true, Bytes: 1}}
	samples := []Sample{{At: 0, Step: ms, Count: 10}}
	ports := []Port{{Name: "p", Labels: []string{"b"}, RateBps: 1e6, Samples: samples}}
	measured := []string{
		"g.drops", "g.by_mouse.drops.max", "b.drops", "b.queue_bytes.max", "b.marks", "b.utilisation", "all.drops",
	}
	tests := []struct {
		name string
		raw  Raw
		want any
	}{
		{"all went well", Raw{Duration: 10 * ms, Flows: flows, Ports: ports}, 0},
		{"records were lost", Raw{Duration: 10 * ms, Flows: flows, Ports: ports, LostRecords: 1}, nil},
		{"nobody looked at ports", Raw{Duration: 10 * ms, Flows: flows}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Build(Info{World: "lab", Scheme: "x"}, &tt.raw)
			for _, m := range measured {
				point(t, r, map[string]any{m: tt.want})
			}
			point(t, r, map[string]any{"g.flows": 1, "g.unfinished": 0, "g.fct_ms.n": 1})
			if said := len(r.Unmet) > 0; said != (tt.raw.LostRecords > 0) {
				t.Errorf("unmet says %q", r.Unmet)
			}
		})
	}
}

// Samples clipped by a window give the same as every instant of the window looked up.
func TestLevels_AgainstEveryInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var samples []Sample
		at := time.Duration(rapid.IntRange(-5, 5).Draw(t, "first"))
		for range rapid.IntRange(1, 8).Draw(t, "samples") {
			s := Sample{
				At: at, Step: time.Duration(rapid.IntRange(1, 4).Draw(t, "step")), Count: rapid.Int64Range(1, 5).Draw(t, "count"),
				Backlog: rapid.Int64Range(0, 9).Draw(t, "backlog"),
			}
			samples = append(samples, s)
			at += time.Duration(s.Count)*s.Step + time.Duration(rapid.IntRange(0, 2).Draw(t, "gap"))
		}
		from := time.Duration(rapid.IntRange(0, 20).Draw(t, "from"))
		w := span{from: from, to: from + time.Duration(rapid.IntRange(1, 30).Draw(t, "length"))}
		var points []float64
		weight := map[float64]time.Duration{}
		for i := w.from; i < w.to; i++ {
			for _, s := range samples {
				if i >= s.At && i < s.At+time.Duration(s.Count)*s.Step {
					weight[float64(s.Backlog)]++
					if (i-s.At)%s.Step == 0 {
						points = append(points, float64(s.Backlog))
					}
				}
			}
		}
		levels := levelsIn(samples, w)
		got := map[float64]time.Duration{}
		for _, l := range levels {
			got[l.value] += l.weight
		}
		if diff := cmp.Diff(weight, got); diff != "" {
			t.Fatalf("time at each level (-want +got):\n%s", diff)
		}
		if values := expand(levels); !cmp.Equal(values, points, cmpEmpty) {
			t.Fatalf("points %v, want %v", values, points)
		}
	})
}
