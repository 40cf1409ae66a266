package main

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
)

// planOf plans an experiment for the simulator, whether or not this build has it.
func planOf(t *testing.T, path string, set ...string) []*experiment.Run {
	t.Helper()
	f, err := laws.All().Load(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldSim}, AssumeAll: true, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return p.Runs
}

// ns-3 can carry out all runs of every file. Each file has five seeds, and tolerances of figures that its groups
// and ports have.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) != len(tolerances) {
		t.Fatalf("%d files, %d with tolerances, %v", len(files), len(tolerances), err)
	}
	for _, path := range files {
		runs := planOf(t, path)
		id, names, seeds := runs[0].Experiment, []string{}, map[int64]bool{}
		for _, r := range runs {
			if _, err := newScenario(r); err != nil {
				t.Errorf("%s, %s: %v", path, r.Scheme, err)
			}
			seeds[r.Seed] = true
			for _, it := range r.Config.Items {
				names = append(names, it.Name)
			}
			for label := range r.Config.Ports {
				names = append(names, label)
			}
		}
		if id+".yaml" != path || len(seeds) != 5 {
			t.Errorf("%s: id %s, %d seeds", path, id, len(seeds))
		}
		metrics := slices.Concat(result.GroupMetrics(), result.PortMetrics(nil), result.GroupDistributions())
		for _, c := range tolerances[id] {
			metric := c.metric
			for label := range runs[0].Config.Windows {
				metric = strings.TrimPrefix(metric, label+".")
			}
			subject, rest, _ := strings.Cut(metric, ".")
			if !slices.Contains(names, subject) || !slices.Contains(metrics, rest) {
				t.Errorf("%s: %s is nothing that is measured", path, c.metric)
			}
			if c.why == "" || c.factor != 0 && c.factor < 1 || c.slack < 0 || c.kind == shape && (c.slack <= 0 || c.slack >= 0.5) {
				t.Errorf("%s: %s: a tolerance of %g or %g (%s)", path, c.metric, c.factor, c.slack, c.why)
			}
			for _, scheme := range c.schemes {
				if !slices.ContainsFunc(runs, func(r *experiment.Run) bool { return r.Scheme == scheme }) {
					t.Errorf("%s: %s: there is no scheme %s", path, c.metric, scheme)
				}
			}
		}
	}
}

// A scenario has the settings of its file, in ns-3's units.
func TestScenario(t *testing.T) {
	runs := planOf(t, "long.yaml")
	want := map[string]string{
		// 100 Mbit/s x 1502 / 1538; 2 ms over four links; (125000 - 2 x 1514) x 1500 / 1514
		"newreno":  "senders 4\nrate_bps 97659297\ndelay_ns 500000\nlimit_bytes 120844\nthreshold_bytes 0\n",
		"reno_ecn": "threshold_bytes 26723\n", // (30000 - 2 x 1514) x 1500 / 1514, and one more
		"sack":     "control ns3::TcpNewReno\nrecovery ns3::TcpClassicRecovery\nsegment_bytes 1460\n",
		"reno":     "control ns3::TcpLinuxReno\nrecovery ns3::TcpPrrRecovery\nsegment_bytes 1448\ninitial_window 10\n",
		"dctcp":    "ack_every 2\ndelayed_ack_ns 40000000\nsack 1\ntimestamps 1\necn 1\n",
	}
	for _, r := range runs {
		s, err := newScenario(r)
		if err != nil {
			t.Fatal(err)
		}
		if text := s.text.String(); !strings.Contains(text, want[r.Scheme]) || strings.Count(text, "\nflow ") != 4 {
			t.Errorf("%s: no\n%s\nand four flows in\n%s", r.Scheme, want[r.Scheme], text)
		}
	}
	incast, err := newScenario(planOf(t, "incast.yaml")[0])
	if err != nil {
		t.Fatal(err)
	}
	flow := incast.work.Flows[17]
	line := strings.Split(incast.text.String(), "flow ")[18]
	if want := fmt.Sprintf("%d pull %d 11500\n", flow.Pair, int64(flow.Start)); line != want {
		t.Errorf("flow %+v is written as %q, want %q", flow, line, want)
	}
}

// The threshold and the buffer mean the same number of full packets in both programs.
func TestTheirBytes(t *testing.T) {
	for packets := int64(inDevice + 1); packets < 300; packets++ {
		for _, ours := range []int64{packets * frame, packets*frame + 1, packets*frame + frame - 1} {
			fit := int64(0)
			for (fit+1)*ipPacket <= theirBytes(ours) {
				fit++
			}
			if fit+inDevice != packets {
				t.Fatalf("%d bytes hold %d packets of ours and %d of theirs", ours, packets, fit+inDevice)
			}
			// Ours is exceeded by the first whole number of frames above it.
			over := ours/frame + 1
			if least := theirBytes(ours) + 1; (over-inDevice)*ipPacket < least || (over-inDevice-1)*ipPacket >= least {
				t.Fatalf("a threshold of %d is exceeded by %d packets; RED marks from %d bytes", ours, over, least)
			}
		}
	}
}

// Settings that ns-3 does not support are refused.
func TestRefused(t *testing.T) {
	for set, want := range map[string]string{
		"schemes.reno_ecn.params.not_ect=pass":                      "not_ect: pass",
		"schemes.reno_ecn.params.threshold=2KB":                     "threshold",
		"schemes.reno.guests.cc=cubic":                              "cubic",
		"schemes.sack.guests.delayed_ack=true":                      "delayed_ack: false",
		"network.buffer=83pkt":                                      "in bytes",
		"topology.receivers=2 measure.ports.bottleneck=left->right": "one switch",
		"topology.hypervisors=true":                                 "hypervisors",
		"traffic.flows.stop=10s":                                    "ends with the run",
		"traffic.flows.proto=udp":                                   "TCP without pacing",
		"measure.ports.bottleneck=switch->sender1":                  "->receiver1 only",
	} {
		var refused []string
		for _, r := range planOf(t, "long.yaml", strings.Fields(set)...) {
			if _, err := newScenario(r); err != nil {
				refused = append(refused, err.Error())
			}
		}
		if len(refused) == 0 || !strings.Contains(refused[0], want) {
			t.Errorf("%s: refused with %q, want %q", set, refused, want)
		}
	}
}

const printed = `{"flow":0,"start_ns":100,"end_ns":20000000000,"done":true,"bytes":250000000,"timeouts":1,"delivered":[[0,100],[199,1000],[200,3000],[1999,6000]]}
{"flow":1,"start_ns":100,"end_ns":20000000000,"done":true,"bytes":0,"timeouts":0,"delivered":[]}
{"flow":2,"start_ns":100,"end_ns":20000000000,"done":true,"bytes":0,"timeouts":0,"delivered":[]}
{"flow":3,"start_ns":100,"end_ns":20000000000,"done":true,"bytes":0,"timeouts":2,"delivered":[]}
{"drop_ns":500,"flow":3,"bytes":1514,"law":false}
{"drop_ns":3000000000,"flow":0,"bytes":1514,"law":false}
{"drop_ns":3000000001,"flow":-1,"bytes":60,"law":true}
{"step_ns":1000000000,"mean":[0,0,10,30,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"sent":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"marks":[1,5,5,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9],"drops_elsewhere":0}
`

// The output of ns-3 becomes the same figures as the simulator's results.
func TestRead(t *testing.T) {
	s, err := newScenario(planOf(t, "long.yaml")[0])
	if err != nil {
		t.Fatal(err)
	}
	raw, err := s.read(strings.NewReader(printed))
	if err != nil {
		t.Fatal(err)
	}
	r := result.Build(s.run.Info(), raw)
	for metric, want := range map[string]float64{
		"flows.timeouts":                     3,
		"flows.drops":                        2,
		"bottleneck.drops":                   3,
		"loaded.bottleneck.drops":            2,
		"loaded.bottleneck.queue_bytes.mean": 40.0 / 18,
		"loaded.bottleneck.marks":            4, // 5 by the end of the second second, 9 by the end of the fourth
		"loaded.flows.throughput_mbps":       9000 * 8e-6 / 18,
	} {
		if got, ok := r.Metric(strings.Split(metric, ".")); !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v (%v), want %v", metric, got, ok, want)
		}
	}
	for change, want := range map[string][2]string{
		"a flow is missing":    {`{"flow":1,"start_ns":100,"end_ns":20000000000,"done":true,"bytes":0,"timeouts":0,"delivered":[]}` + "\n", ""},
		"a flow too many":      {`{"flow":3,"start`, `{"flow":4,"start`},
		"drops elsewhere":      {`elsewhere":0`, `elsewhere":1`},
		"no queue":             {`{"step_ns"`, `{"other"`},
		"lists do not match":   {`"sent":[1,`, `"sent":[`},
		"cut short":            {`"drops_elsewhere":0}`, ``},
		"something else in it": {`{"drop_ns":500,`, `{"drip_ns":500,`},
	} {
		if _, err := s.read(strings.NewReader(strings.Replace(printed, want[0], want[1], 1))); err == nil {
			t.Errorf("%s, and it was read", change)
		}
	}
}

// A figure passes within the factor or the slack, and not when it is missing.
func TestRowOK(t *testing.T) {
	for _, c := range []struct {
		kind          kind
		factor, slack float64
		a, b          []float64
		ok            bool
	}{
		{median, 1.2, 0, []float64{10, 1, 10}, []float64{12, 12, 99}, true},
		{median, 1.2, 0, []float64{10, 10, 10}, []float64{12.1, 12.1, 0}, false},
		{median, 1.2, 0, []float64{12.1}, []float64{10}, false},
		{total, 1.5, 0, []float64{10, 20}, []float64{45, 0}, true},
		{total, 1.5, 0, []float64{10, 20}, []float64{46, 0}, false},
		{total, 1.5, 20, []float64{0}, []float64{20}, true},
		{total, 1.5, 20, []float64{0}, []float64{21}, false},
		{total, 1, 0, []float64{0}, []float64{0}, true},
		{median, 1.5, 0, []float64{1}, nil, false},
		{median, 0, 0, []float64{1}, []float64{9}, true},
	} {
		r := row{check: check{kind: c.kind, factor: c.factor, slack: c.slack}, ns3: c.a, sim: c.b, a: together(c.a, c.kind), b: together(c.b, c.kind)}
		if r.ok() != c.ok {
			t.Errorf("%v and %v at %g or %g: %v", c.a, c.b, c.factor, c.slack, r.ok())
		}
	}
}

func TestApart(t *testing.T) {
	for _, c := range []struct {
		a, b    []float64
		stretch float64
		want    float64
	}{
		{[]float64{1, 2, 3, 4}, []float64{1, 2, 3, 4}, 1, 0},
		{[]float64{1, 1, 1, 200}, []float64{1, 1, 200, 200}, 1.3, 0.25},
		{[]float64{1, 1, 200, 200}, []float64{1, 1, 1, 200}, 1.3, 0.25},
		{[]float64{200, 200}, []float64{220, 230}, 1.3, 0},
		{[]float64{200, 200}, []float64{220, 230}, 1.1, 0.5},
		{[]float64{1, 2}, []float64{3, 4}, 1, 1},
		{[]float64{1, 2, 3, 4}, []float64{1, 2, 3, 4, 4}, 1, 0.15},
	} {
		if got := apart(c.a, c.b, c.stretch); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v and %v are %v apart at %g, want %v", c.a, c.b, got, c.stretch, c.want)
		}
	}
}

// The table names the figures outside, and the reasons of the tolerances.
func TestShow(t *testing.T) {
	var b bytes.Buffer
	c := check{metric: "mice.fct_ms.p50", factor: 1.1, why: "the reason"}
	show(&b, "incast", []row{
		{point: "sack", check: c, ns3: []float64{10, 10}, sim: []float64{10.5, 10.5}, a: 10, b: 10.5},
		{point: "sack", check: c, ns3: []float64{10, 10}, sim: []float64{20, 20}, a: 10, b: 20},
	}, false)
	text := b.String()
	if strings.Count(text, "incast, sack") != 1 || strings.Count(text, "ok ") != 1 || strings.Count(text, "OUT ratio 2.000") != 1 || strings.Count(text, "the reason") != 1 {
		t.Error(text)
	}
}
