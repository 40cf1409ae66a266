package switchd

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"weir/datapath/attach"
	"weir/datapath/reading"
	"weir/internal/promtest"
)

var update = flag.Bool("update", false, "rewrite the expected files; review the diff")

// sampleReading is a switch with two ports in which every figure has another value.
func sampleReading() *snapshot {
	stats := reading.Stats{
		Port: "swp1", Flows: 2, WindowBytes: 3001, GrantBytes: 3002, TargetBytes: 3003, QueueBytes: 3004, QueueMax: 3005,
		Samples: 4001, SamplesByPacket: 4002, DeviceRefused: 4003, SampleAge: 44 * time.Millisecond, Connections: 5,
		Seen: 6001, NotTCP: 6002, Tunnel: 6003, Fragment: 6004, Short: 6005, NoAck: 6006, Rewritten: 6007, Smaller: 6008,
		Unknown: 6009, Ungoverned: 6010, Signed: 6011, OutOfScope: 6012, Unwritable: 6013, Data: 6014, Opened: 6015,
		Adopted: 6016, TableFull: 0, Free: 6017, LeftToEdge: 6018, Advertised: 6019, Assumed: 6020, Dropped: 6021,
		Mode: reading.EnforcePart, LimitedBuckets: reading.Buckets / 4, EquilibriumBytes: 3006, HandshakeRTT: 230 * time.Microsecond,
		OneSidedData: 8001, OneSidedAcks: 8002,
		Credits: reading.Credits{
			Promises: true, Paces: true, Pacing: true, LiveBytes: 9301, Ahead: 31 * time.Millisecond, Promised: 9302, Parked: 9303, Refused: 9304,
			Longest: 32 * time.Millisecond,
		},
		Repairs: &reading.Repairs{
			LimitBytes: 9401, MostBytes: 9402, WaitingBytes: 9403, Over: 9404, Behind: 9405, Full: 9406, Other: 9407, Refused: 9408, Back: 9409,
			Repaired: 9410, InTime: 9400, SentInTime: 9399, Waited: 33 * time.Second, Longest: 34 * time.Millisecond,
		},
		Groups: [2]reading.Group{
			{Flows: 9001, DataBytes: 9002, RetransmittedBytes: 9003, AckedBytes: 9004, Acks: 9005, Limited: 9006},
			{Flows: 9101, DataBytes: 9102, RetransmittedBytes: 9103, AckedBytes: 9104, Acks: 9105, Limited: 9106},
		},
	}
	other := stats
	other.Port = "swp2"
	r := &snapshot{
		at: time.Unix(1000, 0),
		kernel: &reading.Switch{
			HeartbeatAge: 120 * time.Millisecond, Lease: time.Second,
			SignedSources: []reading.SignedSource{
				{Addr: netip.MustParseAddr("10.0.0.1"), Segments: 9201, Dropped: 9202}, {Addr: netip.MustParseAddr("fd00::2"), VLANs: 7, Segments: 9203},
			},
			Parking: &reading.Parking{
				Present: true, Packets: 9401, Bytes: 9402, MostPackets: 9403, MostBytes: 9404, Parked: 9405, Returned: 9406,
				PassedGone: 9407, PassedFull: 9408, PassedMarked: 9409,
			},
			Ports: []reading.Pinned{
				{Stats: stats, ID: 1, Ifindex: 7, HasDevice: true, Local: true,
					Queue: attach.RootQueue{Kind: "tbf", BacklogBytes: 7001, SentBytes: 7002, Drops: 7003}},
				{Stats: other, ID: 2, Ifindex: 8, HasDevice: false, Local: true},
			},
		},
		devices: devices{"swp1": {known: true, ifindex: 7, up: true, carrier: true, txDropped: 7004}},
	}
	return r
}

// exported makes an exporter of this reading.
func exported(read func(string) (*snapshot, error)) *exporter {
	x := newExporter(&testKeys()[0], "default", "v1", &events{}, slog.New(slog.DiscardHandler))
	x.read = (&momentReader{of: read}).read
	return x
}

func scrape(t *testing.T, x *exporter) []*dto.MetricFamily {
	t.Helper()
	families, err := x.registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// text returns the metrics whose names have this prefix, as Prometheus reads them.
func exposition(t *testing.T, families []*dto.MetricFamily, prefix string) string {
	t.Helper()
	var out bytes.Buffer
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), prefix) {
			if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out.String()
}

// Each figure of a reading appears in one line, the right one, of the text that Prometheus reads: testdata/metrics.prom
// (go test -run Metrics -update writes it).
func TestMetrics_AreWhatWasRead(t *testing.T) {
	x := exported(func(string) (*snapshot, error) { return sampleReading(), nil })
	x.events.reloaded(nil)
	x.events.reloaded(nil)
	x.events.reloaded(errors.New("refused"))
	x.events.rolledBack()
	got := exposition(t, scrape(t, x), "weir_")
	got = regexp.MustCompile(`goversion="[^"]*"`).ReplaceAllString(got, `goversion="..."`)
	got = regexp.MustCompile(`(read_duration_seconds{.*}) .*`).ReplaceAllString(got, `$1 0`)
	// Findings, and so the state, are tested elsewhere, except for a deleted port.
	for _, series := range []string{
		`port_finding{finding="no-device",port="swp2",switch="default"} 1`, `port_state{port="swp2",state="off",switch="default"} 1`,
		`port_state{port="swp2",state="enforced",switch="default"} 0`, `state{state="off",switch="default"} 1`,
	} {
		if !strings.Contains(got, "weir_switch_"+series+"\n") {
			t.Errorf("no %s", series)
		}
	}
	got = regexp.MustCompile(`(?m)^weir_switch_(port_finding|port_state|state){.*\n`).ReplaceAllString(got, "")
	const file = "testdata/metrics.prom"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wanted := strings.Split(string(want), "\n")
	for line := range strings.Lines(got) {
		if line = strings.TrimSuffix(line, "\n"); !slices.Contains(wanted, line) {
			t.Errorf("not expected: %s", line)
		}
	}
	if got != string(want) {
		t.Errorf("differs from %s", file)
	}
	if well, health := x.health(); well || !strings.HasPrefix(health, "off: swp2: its device is gone") {
		t.Errorf("health: %t %q", well, health)
	}
}

func TestMetrics_KeepPrometheusConventions(t *testing.T) {
	problems, err := promlint.NewWithMetricFamilies(scrape(t, exported(func(string) (*snapshot, error) { return sampleReading(), nil }))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// A switch that cannot be read is shown as a metric. It does not fail the scrape; not even a panic does.
func TestMetrics_OfWhatCannotBeRead(t *testing.T) {
	for what, read := range map[string]func(string) (*snapshot, error){
		"error":        func(string) (*snapshot, error) { return nil, errors.New("no pins") },
		"panic":        func(string) (*snapshot, error) { panic("no pins") },
		"panic, later": func(string) (*snapshot, error) { return &snapshot{}, nil }, // no pins: nil
	} {
		x := exported(read)
		got := exposition(t, scrape(t, x), "weir_switch_")
		if !strings.HasSuffix(got, "weir_switch_up{switch=\"default\"} 0\n") || strings.Count(got, "\n") != 3 {
			t.Errorf("%s: %s", what, got)
		}
		if well, health := x.health(); well || !strings.Contains(health, "cannot be read") || what != "panic, later" && !strings.Contains(health, "no pins") {
			t.Errorf("%s: %t %q", what, well, health)
		}
	}
}

// A device may have any name, and a name may be pinned twice: from this namespace and from a deleted one. Neither fails
// the scrape.
func TestMetrics_OfStrangePorts(t *testing.T) {
	r := sampleReading()
	r.kernel.Ports[0].Port = "a\xffb\"\n"
	r.kernel.Ports = append(r.kernel.Ports, r.kernel.Ports[1])
	r.kernel.Ports[1].Local, r.kernel.Ports[1].Flows = false, 77
	r.kernel.Ports[2].Flows = 88
	got := exposition(t, scrape(t, exported(func(string) (*snapshot, error) { return r, nil })), "weir_switch_port_flows")
	for _, want := range []string{`port="a\\xffb\"\n",switch="default"} 2`, `port="swp2",switch="default"} 88`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if strings.Contains(got, " 77") {
		t.Errorf("of two ports with one name, the one of another namespace: %s", got)
	}
}

// exposedNames returns all metric names, with all label values that occur.
func exposedNames(t *testing.T) map[string]*promtest.Metric {
	t.Helper()
	out := map[string]*promtest.Metric{}
	r := sampleReading()
	for _, f := range scrape(t, exported(func(string) (*snapshot, error) { return r, nil })) {
		n := &promtest.Metric{Kind: strings.ToLower(f.GetType().String()), Labels: map[string][]string{}}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(n.Labels[l.GetName()], l.GetValue()) {
					n.Labels[l.GetName()] = append(n.Labels[l.GetName()], l.GetValue())
				}
			}
		}
		out[f.GetName()] = n
	}
	for _, c := range checks {
		finding := out["weir_switch_port_finding"]
		finding.Labels["finding"] = append(finding.Labels["finding"], c.word)
	}
	return out
}

// Every number that a reading has of a port is a metric, except for its configuration.
func TestMetrics_AreComplete(t *testing.T) {
	not := []string{"Mode", "LimitedBuckets", "PipeBytes", "MSSBytes", "SampledAt", "SampleAge", "HandshakeRTT"}
	r := sampleReading()
	stats := reflect.ValueOf(&r.kernel.Ports[0].Stats).Elem()
	want := map[string]string{}
	set := func(name string, f reflect.Value) {
		if f.CanUint() && !slices.Contains(not, name) {
			number := uint64(500_000 + len(want)) // written without an exponent
			f.SetUint(number)
			want[fmt.Sprintf(" %d\n", number)] = name
		}
	}
	for i := range stats.NumField() {
		set(stats.Type().Field(i).Name, stats.Field(i))
	}
	for group := range r.kernel.Ports[0].Groups {
		counts := reflect.ValueOf(&r.kernel.Ports[0].Groups[group]).Elem()
		for i := range counts.NumField() {
			set(fmt.Sprintf("Groups[%d].%s", group, counts.Type().Field(i).Name), counts.Field(i))
		}
	}
	got := exposition(t, scrape(t, exported(func(string) (*snapshot, error) { return r, nil })), "weir_")
	for number, name := range want {
		if !strings.Contains(got, number) {
			t.Errorf("%s is in no metric", name)
		}
	}
	if len(want) < 40 {
		t.Errorf("only %d numbers", len(want))
	}
}

// Every metric is described, and every described metric is sent: a registry refuses undescribed metrics, but does not
// notice missing ones.
func TestMetrics_AllAreSent(t *testing.T) {
	x := exported(func(string) (*snapshot, error) { return sampleReading(), nil })
	to := make(chan *prometheus.Desc, 1000)
	x.Describe(to)
	close(to)
	names := exposedNames(t)
	described := 0
	for d := range to {
		described++
		name := regexp.MustCompile(`fqName: "([^"]*)"`).FindStringSubmatch(d.String())[1]
		if names[name] == nil {
			t.Errorf("%s is described and never sent", name)
		}
	}
	if described < 40 {
		t.Errorf("%d descriptions", described)
	}
}

// docs/tables/metrics.md has all metrics with type and labels; the queries of docs/metrics.md work.
func TestMetrics_AreDocumented(t *testing.T) {
	generated(t, "metrics.md", metricTable())
	page, err := os.ReadFile("../../docs/tables/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	names := exposedNames(t)
	maps.DeleteFunc(names, func(n string, _ *promtest.Metric) bool { return strings.HasPrefix(n, "go_") })
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\w+) \\|([^|]*)\\|([^|]*)\\|([^|]+)\\|$").FindAllStringSubmatch(string(page), -1)
	for _, row := range rows {
		n := names[row[1]]
		if n == nil {
			t.Errorf("%s is documented and does not exist, or twice", row[1])
			continue
		}
		delete(names, row[1])
		labels := strings.FieldsFunc(row[3], func(c rune) bool { return c == ',' || c == ' ' || c == '`' })
		slices.Sort(labels)
		if has := slices.Sorted(maps.Keys(n.Labels)); n.Kind != row[2] || !slices.Equal(has, labels) {
			t.Errorf("%s: documented as %s with %v, is %s with %v", row[1], row[2], labels, n.Kind, has)
		}
		if unit := strings.TrimSpace(row[4]); (unit == "B") != strings.Contains(row[1], "_bytes") || (unit == "s") != strings.Contains(row[1], "_seconds") {
			t.Errorf("%s: in %q", row[1], unit)
		}
	}
	for n := range names {
		t.Errorf("%s is not documented", n)
	}
	if len(rows) < 40 {
		t.Errorf("only %d rows were understood", len(rows))
	}
	guide, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	queries := regexp.MustCompile("(?m)^\\| [^|`]+ \\| `([^`|]*)` \\|$").FindAllStringSubmatch(string(guide), -1)
	if len(queries) < 6 {
		t.Errorf("only %d queries were found", len(queries))
	}
	for _, query := range queries {
		for _, wrong := range promtest.CheckQuery(query[1], exposedNames(t)) {
			t.Errorf("%s: %s", query[1], wrong)
		}
	}
}
