package result

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/law"
)

var update = flag.Bool("update", false, "write testdata anew")

// contract is the form of the JSON that readers rely on; {} is a distribution.
const contract = `{"experiment":"incast","weir":"v0.1.0","host":{"kernel":"6.18","cpus":2},"file":{},"skipped":[],
 "runs":[{"world":"lab","seed":1,"scale":1,"scheme":"fairq","laws":["fairq"],"guest_cc":"cubic","params":{},"partial":false,"unmet":[],"rtt_us":210,
  "groups":{"mice":{"flows":2720,"unfinished":0,"bytes":31280000,"drops":0,"timeouts":0,"flows_with_timeout":0,"throughput_mbps":0,
    "fct_ms":{"n":2720,"mean":0,"sd":0,"min":0,"p10":0,"p25":0,"p50":0,"p75":0,"p90":0,"p99":0,"max":0},
    "goodput_mbps":{}, "jain":0, "series_mbps":{},
    "by_mouse":{"mean_ms":{},"sd_ms":{},"p99_ms":{},"max_ms":{},"drops":{}},
    "deadlines":{"flows":0,"missed":0,"missed_ids":[]}}},
  "ports":{"bottleneck":{"queue_bytes":{},"drops":0,"marks":0,"utilisation":0},"all":{"drops":0}},
  "windows":{"loaded":{"groups":{},"ports":{}}}}],
 "claims":[{"claim":"...","world":"lab","for":{"guest_cc":"cubic"},"left":[],"right":[],"holds":true}]}`

func TestDocument_HasTheShapeThatWasPromised(t *testing.T) {
	dec := json.NewDecoder(strings.NewReader(contract))
	dec.DisallowUnknownFields()
	var d Document
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := d.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal([]byte(contract), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	missing(t, "", want, got)
}

// missing reports the parts of want that got lacks, by name and value.
func missing(t *testing.T, path string, want, got any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s is %v, want an object", path, got)
			return
		}
		for k, v := range w {
			if _, ok := g[k]; !ok {
				t.Errorf("%s.%s is missing", path, k)
				continue
			}
			missing(t, path+"."+k, v, g[k])
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			t.Errorf("%s is %v, want %v", path, got, w)
			return
		}
		for i := range w {
			missing(t, path, w[i], g[i])
		}
	default:
		if want != got {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

// goldenDocument has one of everything, and one absent value of everything that can be absent.
func goldenDocument() *Document {
	raw := &Raw{
		RTT: 214500, Duration: 40 * ms, Bin: 10 * ms, Unmet: UnmetTexts("network.rtt", Note, "network.rtt: the lab cannot set delay"),
		Flows: []Flow{
			{
				Group: "elephants", Src: "sender1", Dst: "receiver1", Key: tcpKey(1, 1), End: 40 * ms, Done: true, Endless: true, Bytes: 40000, Timeouts: 1,
				Delivered: []Delivery{{0, 10000}, {1, 10000}, {2, 10000}, {3, 10000}},
			},
			{Group: "mice", Key: tcpKey(1, 2), Start: 20 * ms, End: 24 * ms, Done: true, Bytes: 1000, Deadline: 3 * ms, Delivered: []Delivery{{2, 1000}}},
			{Group: "mice", Key: tcpKey(2, 3), Start: 30 * ms, End: 40 * ms, Mouse: 1, Deadline: 30 * ms, Timeouts: -1},
			{Group: "noise", Key: udpKey(3, 3), End: 40 * ms, Done: true, Endless: true},
		},
		Ports: []Port{{Name: "a->b", Labels: []string{"bottleneck"}, RateBps: 10e6, Buffer: 30000, Samples: []Sample{
			{At: 0, Step: ms, Count: 20}, {At: 20 * ms, Step: ms, Count: 20, Backlog: 9000, Marks: 2, Sent: 25000},
		}}, {Name: "b->c", Labels: []string{"quiet"}}},
		Drops: []Drop{{At: 31 * ms, Port: "a->b", Key: tcpKey(2, 3)}, {At: 32 * ms, Port: "x->y"}},
	}
	info := Info{
		World: "lab", Seed: 2, Scheme: "ecn", Laws: []string{"ecn"}, GuestCC: "cubic", Axes: map[string]string{"guest_cc": "cubic"},
		Params:  map[string]any{"ecn": map[string]any{"threshold": law.Limit{N: 25000}, "not_ect": "pass"}},
		Windows: map[string][2]time.Duration{"loaded": {20 * ms, 40 * ms}},
	}
	lost := *raw
	lost.LostRecords, lost.Partial, lost.RTT, lost.Unmet = 3, true, 0, nil
	return &Document{
		Experiment: "golden", Weir: "v0.0.0", Host: Host{"6.18.5", 2}, File: json.RawMessage(`{"id":"golden"}`),
		Skipped: []Skip{{"fairq", "lab", "this build has no law fairq in the lab"}},
		Runs:    []*Run{Build(info, raw), Build(Info{World: "sim", Seed: 1, Scale: 5, Scheme: "droptail"}, &lost)},
		Claims: []Claim{
			{Claim: "a.mice.drops < b.mice.drops", World: "lab", For: map[string]string{"guest_cc": "cubic"}, Seeds: []int64{1, 2}, Left: PerSeed{1, 2.5}, Right: PerSeed{3, 4}, Holds: new(true)},
			{Claim: "a.mice.drops > b.mice.drops", World: "lab", For: map[string]string{}, Left: PerSeed{1}, Right: PerSeed{3}, Holds: new(false)},
			{Claim: "a.x.jain > 0", World: "lab", For: map[string]string{}, Seeds: []int64{1, 2}, Left: PerSeed{math.NaN(), 1}, Right: PerSeed{0, math.Inf(1)}, Why: "a.x.jain is absent"},
			{Claim: "fairq.mice.drops < 1", World: "lab", For: map[string]string{}, Left: PerSeed{}, Right: PerSeed{}, Undecided: true, Why: "fairq was not asked for"},
		},
	}
}

func TestDocument_Golden(t *testing.T) {
	var b bytes.Buffer
	doc := goldenDocument()
	if err := doc.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "document.json")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("-want +got (go test -update writes it anew):\n%s", diff)
	}
	back, err := ReadJSON(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	doc.Claims[2].Right[1] = math.NaN() // an infinity is null too
	opts := []cmp.Option{
		cmpopts.IgnoreUnexported(Group{}, PortResult{}), cmpopts.IgnoreFields(Run{}, "Detail"), cmpopts.EquateNaNs(), cmpopts.EquateEmpty(),
		cmp.Transformer("compact", func(m json.RawMessage) string {
			var c bytes.Buffer
			if json.Compact(&c, m) != nil {
				return string(m)
			}
			return c.String()
		}),
	}
	if diff := cmp.Diff(doc, back, opts...); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
}

func TestReadJSON_Refuses(t *testing.T) {
	run := func(s string) string { return `{"experiment":"x","runs":[` + s + `]}` }
	tests := []struct{ name, text, says string }{
		{"nothing", "", "EOF"},
		{"something else", `{"name":"x"}`, `no "experiment"`},
		{"a list", `[]`, "cannot unmarshal array"},
		{"more than one", `{"experiment":"x"}{}`, "text after the document"},
		{"text for a number", run(`{"world":"lab","scheme":"a","scale":"1"}`), "scale"},
		{"no run", run(`null`), "runs[0]: world and scheme are needed"},
		{"no scheme", run(`{"world":"lab","scale":1}`), "runs[0]: world and scheme"},
		{"scale 0", run(`{"world":"lab","scheme":"a"}`), "scale is 0; it must be above 0"},
		{"a group of nothing", run(`{"world":"lab","scheme":"a","scale":1,"groups":{"g":null}}`), "group g is null"},
		{"a port of nothing in a window", run(`{"world":"lab","scheme":"a","scale":1,"windows":{"w":{"ports":{"p":null}}}}`), "port p is null"},
	}
	for _, tt := range tests {
		if _, err := ReadJSON(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want an error with %q", tt.name, err, tt.says)
		}
	}
}

// A document that the reader accepts can be written, read again as the same, and asked for any metric.
func FuzzReadJSON(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "document.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add([]byte(contract))
	f.Add([]byte(`{"experiment":"x","runs":[{"world":"a","scheme":"b","scale":1,"windows":{"w":{}}}],"claims":[{"left":[null,1e308]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := ReadJSON(bytes.NewReader(data))
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		if err := d.WriteJSON(&first); err != nil {
			t.Fatal(err)
		}
		again, err := ReadJSON(bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatalf("what was written is refused: %v\n%s", err, first.Bytes())
		}
		if err := again.WriteJSON(&second); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatalf("written twice:\n%s\n%s", first.Bytes(), second.Bytes())
		}
		for _, r := range d.Runs {
			for g := range r.Groups {
				for _, m := range GroupMetrics() {
					r.Metric(append([]string{g}, split(m)...))
				}
			}
			r.Metric([]string{"w", "x", "drops"})
		}
	})
}

func TestMetric_Paths(t *testing.T) {
	r := goldenDocument().Runs[0]
	r.Windows["mice"] = Window{Groups: map[string]*Group{"flows": {Flows: 99}}}
	point(t, r, map[string]any{
		"mice.flows": 2, // the group, not the window with that name
		"mice":       nil, "": nil, "nobody.flows": nil, "mice.fct_ms": nil, "mice.fct_ms.p42": nil, "mice.fct_ms.p99.x": nil, "mice.deadlines.missed_ids": nil,
		"loaded": nil, "loaded.mice": nil, "loaded.nobody.flows": nil, "mice.values": nil, "bottleneck.levels": nil, "mice.-": nil,
		"elephants.deadlines.missed": nil, "mice.deadlines.missed": 2, "loaded.mice.deadlines.flows": 2, "all.drops": 2, "all.marks": nil,
	})
	for _, path := range []string{"mice", "mice.fct_ms.p99", "mice.drops", "quiet.queue_bytes", "all.queue_bytes", "noise.fct_ms", ""} {
		if v, ok := r.Values(split(path)); ok {
			t.Errorf("values of %s: %v, want none", path, v)
		}
	}
	for _, path := range []string{"mice.fct_ms", "loaded.mice.by_mouse.drops", "elephants.series_mbps", "loaded.bottleneck.queue_bytes"} {
		if v, ok := r.Values(split(path)); !ok || len(v) == 0 {
			t.Errorf("values of %s: %v (present: %v)", path, v, ok)
		}
	}
}

// Every distribution that a claim may name has the values that its statistics come from.
func TestValues_AreThoseOfTheDistribution(t *testing.T) {
	found := map[string]bool{}
	check := func(r *Run, subject []string, names []string) {
		for _, d := range names {
			path := append(append([]string{}, subject...), split(d)...)
			n, ok := r.Metric(append(append([]string{}, path...), "n"))
			values, has := r.Values(path)
			if ok != has || int(n) != len(values) {
				t.Errorf("%v: n is %v (present: %v), %d values (present: %v)", path, n, ok, len(values), has)
			}
			if has {
				found[d] = true
				mean, _ := r.Metric(append(append([]string{}, path...), "mean"))
				if m, _ := moments(values); !cmp.Equal(m, mean, near) {
					t.Errorf("%v: the values' mean is %v, the distribution's %v", path, m, mean)
				}
			}
		}
	}
	r := goldenDocument().Runs[0]
	check(r, []string{"mice"}, GroupDistributions())
	check(joinLeave(0), []string{"flows"}, GroupDistributions())
	var flows []Flow
	for i, size := range []int64{1, 1e4, 1e5, 1e6, 1e7, 1e8} { // one of each class
		flows = append(flows, sized(i, size, time.Duration(i+1)*time.Second))
	}
	check(Build(Info{World: "sim", Scheme: "x", Ideal: ideally}, &Raw{Flows: flows}), []string{"g"}, GroupDistributions())
	for _, d := range GroupDistributions() {
		if !found[d] {
			t.Errorf("%s is of no group here", d)
		}
	}
	check(r, []string{"loaded", "elephants"}, GroupDistributions())
	check(r, []string{"loaded", "bottleneck"}, PortDistributions(nil))
	check(r, []string{"quiet"}, PortDistributions(nil))
}
