package result

import (
	"testing"
	"time"
)

func sized(port int, size int64, fct time.Duration) Flow {
	return Flow{Group: "g", Key: tcpKey(1, port), End: fct, Done: true, Bytes: size, Size: size}
}

// ideally returns 1 ms for each KB of a flow.
func ideally(f *Flow, _ *Raw) time.Duration { return time.Duration(f.Size) * us }

func TestGroup_SlowdownBySize(t *testing.T) {
	raw := &Raw{Duration: time.Second, Flows: []Flow{
		sized(1, 1000, 2*ms), sized(2, 1001, 5005*us), sized(3, 10_000, 30*ms), sized(4, 20e6, 20e6*us),
		{Group: "g", Key: tcpKey(1, 5), End: time.Second, Size: 10_001},                                 // cut off
		{Group: "g", Key: tcpKey(1, 6), End: time.Second, Endless: true, Done: true, Bytes: 50_000_000}, // has no size
	}}
	r := Build(Info{World: "sim", Scheme: "x", Ideal: ideally}, raw)
	point(t, r, map[string]any{
		"g.slowdown.n": 4, "g.slowdown.max": 5.0, "g.slowdown.min": 1.0,
		"g.by_size.to_1kb.flows": 1, "g.by_size.to_1kb.slowdown.p99": 2.0, "g.by_size.to_1kb.fct_ms.mean": 2.0,
		"g.by_size.to_10kb.flows": 2, "g.by_size.to_10kb.slowdown.mean": 4.0,
		"g.by_size.to_100kb.flows": 1, "g.by_size.to_100kb.unfinished": 1, "g.by_size.to_100kb.slowdown.n": nil,
		"g.by_size.to_1mb.flows": nil, "g.by_size.above_10mb.slowdown.max": 1.0,
	})
	if v, ok := r.Values(split("g.by_size.to_10kb.slowdown")); !ok || len(v) != 2 {
		t.Errorf("values of a class: %v", v)
	}
	if f := r.Detail.Flows[0]; *f.Slowdown != 2 || *f.Size != 1000 {
		t.Errorf("detail: slowdown %v, size %v", *f.Slowdown, *f.Size)
	}
}

// If sizes or ideal times are not known, metrics that depend on them are absent, not wrong: a run of a build that
// did not record sizes, or a world that does not know paths. If all sizes are in one class there is no table by
// size.
func TestGroup_SlowdownThatIsNotKnown(t *testing.T) {
	raw := &Raw{Duration: time.Second, Flows: []Flow{
		sized(1, 100, ms), sized(2, 1e6, time.Second),
		{Group: "g", Key: tcpKey(1, 3), End: time.Second, Bytes: 7}, // cut off, its size not recorded
		{Group: "same", Key: tcpKey(1, 4), End: ms, Done: true, Bytes: 500},
		{Group: "same", Key: tcpKey(1, 5), End: ms, Done: true, Bytes: 400},
	}}
	point(t, Build(Info{World: "lab", Scheme: "x"}, raw), map[string]any{
		"g.slowdown.n": nil, "g.by_size.to_1kb.flows": nil, "same.slowdown.n": nil,
	})
	point(t, Build(Info{World: "sim", Scheme: "x", Ideal: ideally}, raw), map[string]any{
		"g.slowdown.n": 2, "g.by_size.to_1kb.flows": nil,
		"same.slowdown.n": 2, "same.by_size.to_1kb.flows": nil,
	})
}
