package result

import (
	"testing"
	"time"
)

func TestLive(t *testing.T) {
	flow := func(from, to int) Flow {
		return Flow{Group: "g", Start: time.Duration(from) * time.Second, End: time.Duration(to) * time.Second, Done: true}
	}
	raw := &Raw{Duration: 12 * time.Second, Bin: time.Second, Flows: []Flow{flow(2, 6), flow(2, 4), flow(4, 10), flow(5, 5)}}
	info := Info{World: "lab", Scale: 1, Windows: map[string][2]time.Duration{"late": {5 * time.Second, 12 * time.Second}}}
	r := Build(info, raw)
	// 2 flows from 2 to 6 s, then 1 to 10 s; nothing is said of the time when none was.
	if l := r.Groups["g"].Live; l == nil || l.Mean != 1.5 || l.Max != 2 {
		t.Errorf("live: %+v, want 1.5 on average and at most 2", l)
	}
	// From 5 s on: 1 s of two, 4 s of one.
	if l := r.Windows["late"].Groups["g"].Live; l == nil || l.Mean != 1.2 {
		t.Errorf("live late: %+v, want 1.2 on average", l)
	}
}

func TestLaw(t *testing.T) {
	at := func(s int, port string, flows uint32, grant uint64) LawSample {
		return LawSample{At: time.Duration(s) * time.Second, Port: port, Flows: flows, Window: grant / 2, Grant: grant}
	}
	raw := &Raw{
		Duration: 4 * time.Second, Bin: time.Second, Ports: []Port{{Name: "a->b", Labels: []string{"bottleneck"}}, {Name: "c->d", Labels: []string{"other"}}},
		Laws: []LawSample{at(0, "a->b", 0, 0), at(1, "a->b", 10, 2000), at(2, "a->b", 20, 1000), at(2, "e->f", 9, 9)},
	}
	r := Build(Info{World: "lab"}, raw)
	law := r.Ports["bottleneck"].Law
	if law == nil || law.Flows.Mean != 10 || law.Flows.N != 3 {
		t.Fatalf("%+v; want 10 flows on average of 3 samples", law)
	}
	if law.Grant.Mean != 1500 || law.Grant.N != 2 || law.Window.Max != 1000 {
		t.Errorf("grant %+v, window %+v; where nothing is held nothing is granted", law.Grant, law.Window)
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
