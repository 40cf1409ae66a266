package result

import (
	"testing"
	"time"

	"weir/law"
)

func TestLive(t *testing.T) {
	flow := func(from, to int) Flow {
		return Flow{Group: "g", Start: time.Duration(from) * time.Second, End: time.Duration(to) * time.Second, Done: true}
	}
	raw := &Raw{Duration: 12 * time.Second, Bin: time.Second, Flows: []Flow{flow(2, 6), flow(2, 4), flow(4, 10), flow(5, 5)}}
	info := Info{World: "lab", Scale: 1, Windows: map[string][2]time.Duration{"late": {5 * time.Second, 12 * time.Second}}}
	r := Build(info, raw)
	// 2 flows from 2 to 6 s, then 1 to 10 s; the time without flows does not count.
	if l := r.Groups["g"].Live; l == nil || l.Mean != 1.5 || l.Max != 2 {
		t.Errorf("live: %+v, want 1.5 on average and at most 2", l)
	}
	// From 5 s on: 1 s of two, 4 s of one.
	if l := r.Windows["late"].Groups["g"].Live; l == nil || l.Mean != 1.2 {
		t.Errorf("live late: %+v, want 1.2 on average", l)
	}
}

func TestLaw(t *testing.T) {
	at := func(s int, port, metric string, value float64) LawSample {
		return LawSample{At: time.Duration(s) * time.Second, Port: port, Value: law.Value{Metric: metric, Value: value}}
	}
	raw := &Raw{
		Duration: 4 * time.Second, Bin: time.Second, Ports: []Port{{Name: "a->b", Labels: []string{"bottleneck"}}, {Name: "c->d", Labels: []string{"other"}}},
		LawSamples: []LawSample{
			at(0, "a->b", "flows", 0), at(0, "a->b", "window_bytes", 0), at(1, "a->b", "flows", 10), at(1, "a->b", "window_bytes", 1000),
			at(1, "a->b", "grant_bytes", 2000), at(2, "a->b", "flows", 20), at(2, "a->b", "window_bytes", 500), at(2, "a->b", "grant_bytes", 1000),
			at(2, "e->f", "flows", 9),
		},
	}
	r := Build(Info{World: "lab"}, raw)
	got := r.Ports["bottleneck"].Law
	if len(got) != 3 || got[0].Name != "flows" || got[0].Over.Mean != 10 || got[0].Over.N != 3 {
		t.Fatalf("%+v; want 10 flows on average of 3 samples", got)
	}
	if grant, window := got[1].Over, got[2].Over; grant.Mean != 1500 || grant.N != 2 || window.Max != 1000 {
		t.Errorf("grant %+v, window %+v; where nothing is limited nothing is granted", grant, window)
	}
	if v, ok := r.Values([]string{"bottleneck", "law", "flows"}); !ok || len(v) != 3 {
		t.Errorf("the values behind it: %v, %v", v, ok)
	}
	if r.Ports["other"].Law != nil {
		t.Error("a port without a law has one")
	}
	if v, ok := r.Metric([]string{"bottleneck", "law", "grant_bytes", "mean"}); !ok || v != 1500 {
		t.Errorf("as a metric: %v, %v", v, ok)
	}
}
