package switchd

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/datapath/reading"
)

// formerReading is a reading whose renamed figures differ from each other.
func formerReading() *snapshot {
	r := wellReading()
	p := &r.kernel.Ports[0]
	p.Mode, p.LimitedBuckets, p.Advertised = reading.EnforcePart, reading.Buckets/4, 77
	p.Groups[0].Flows, p.Groups[1].Flows, p.Groups[0].AckedBytes, p.Groups[1].AckedBytes = 3, 4, 5000, 6000
	return r
}

// Every renamed metric of a port has the same values under both names.
func TestMetrics_FormerNames(t *testing.T) {
	r := formerReading()
	m := &portMoment{Pinned: &r.kernel.Ports[0], words: &Port{}}
	values := map[string][]float64{}
	for i := range portMetrics {
		d := &portMetrics[i]
		d.of(m, func(v float64, _ ...string) { values[d.name] = append(values[d.name], v) })
	}
	pairs := map[string]string{}
	for name, former := range formerNames {
		pairs[name] = former
	}
	for name := range values {
		if rest, is := strings.CutPrefix(name, "group_"); is {
			pairs[name] = "arm_" + rest
		}
	}
	if len(pairs) != 8 {
		t.Errorf("%d renamed metrics, want 8", len(pairs))
	}
	for name, former := range pairs {
		now, was := values[name], values[former]
		if len(now) == 0 || len(now) != len(was) || now[0] != was[0] || now[len(now)-1] != was[len(was)-1] {
			t.Errorf("%s is %v, its former name %s is %v", name, now, former, was)
		}
	}
	if got := values["group_flows"]; got[0] != 3 || got[1] != 4 {
		t.Errorf("flows of control and treatment group: %v", got)
	}
}

// The JSON of weir status and weir observe has renamed fields under both names.
func TestJSON_FormerNames(t *testing.T) {
	sw := describe("x", formerReading(), nil)
	sw.HeartbeatAgeMs, sw.FormerHeartbeatAgeMs = 1.5*sw.HeartbeatAgeMs+7, 1.5*sw.FormerHeartbeatAgeMs+7 // also if the age is 0
	fields := func(of any) map[string]any {
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]any{}
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	same := func(of map[string]any, name, former string) {
		t.Helper()
		if of[name] == nil || of[name] != of[former] {
			t.Errorf("%s is %v, its former name %s is %v", name, of[name], former, of[former])
		}
	}
	same(fields(sw), "heartbeat_age_ms", "beat_age_ms")
	port := fields(&sw.Ports[0])
	same(port, "enforce", "hold")
	same(port, "enforce_percent", "hold_percent")
	if port["enforce_percent"] != 25.0 || port["enforce"] != "part" {
		t.Errorf("a quarter of the flows: %v %v", port["enforce"], port["enforce_percent"])
	}
	w := &observedPort{candidate: candidate{name: "p", line: testLine}, law: "FairQ", mode: reading.EnforcePart, gather: newGather(*testLoad(4, 20_000))}
	o := w.report(1e9, 0)
	observed := fields(&o)
	same(observed, "enforce", "hold")
	then, ok := observed["then"].(map[string]any)
	if !ok || then["new_flows"] == 0.0 {
		t.Fatalf("%v", observed["then"])
	}
	same(then, "new_flows", "newcomers")
}
