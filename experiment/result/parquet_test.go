package result

import (
	"bytes"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

// All values of a row, present or absent, are the same after reading the file.
func TestParquet_ReadsBack(t *testing.T) {
	k := tcpKey(1, 1000)
	raw := &Raw{
		Duration: 6 * time.Millisecond, Bin: 2 * time.Millisecond,
		Flows: []Flow{
			{Group: "mice", Src: "s1", Dst: "r1", Key: k, Start: time.Millisecond, End: 3 * time.Millisecond, Done: true, Bytes: 500,
				Timeouts: 1, Causes: Causes{Known: true, FLoss: 1}, Deadline: time.Millisecond, Delivered: []Delivery{{1, 500}}},
			{Group: "mice", Src: "s2", Dst: "r1", Mouse: 1, Epoch: 2, Key: udpKey(2, 5), Start: 0, End: 6 * time.Millisecond},
		},
		Drops: []Drop{{At: 2 * time.Millisecond, Port: "p", Key: k}},
		Ports: []Port{{Name: "p", Labels: []string{"b"}, Samples: []Sample{
			{At: 0, Step: ms, Count: 2, Backlog: 7}, {At: 2 * ms, Step: ms / 2, Count: 3, Backlog: 9}, {At: 5 * ms, Step: ms, Count: 1, Backlog: 4},
		}}},
	}
	info := Info{World: "lab", Seed: 3, Scheme: "ecn", GuestCC: "reno", Axes: map[string]string{"b": "2", "a": "1"}, Series: 2 * time.Millisecond}
	doc := &Document{Experiment: "x", Runs: []*Run{{}, Build(info, raw)}}

	flow := FlowRow{Run: 1, World: "lab", Seed: 3, Scheme: "ecn", GuestCC: "reno", Axes: "a=1,b=2", Group: "mice"}
	first, second := flow, flow
	first.Src, first.Dst, first.Start, first.End, first.FCT, first.Bytes, first.Done = "s1", "r1", 1, 3, new(2.0), 500, true
	first.Drops, first.Timeouts, first.Missed = new(int64(1)), new(int64(1)), new(true)
	first.FLoss, first.LAck, first.Size = new(int64(1)), new(int64(0)), new(int64(500))
	second.Src, second.Dst, second.Mouse, second.Epoch, second.End, second.Drops = "s2", "r1", 1, 2, 6, new(int64(0))
	want := []FlowRow{first, second}
	if diff := cmp.Diff(want, readRows[FlowRow](t, doc.WriteFlows)); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}

	at := func(what string, t, value float64) SeriesRow {
		return SeriesRow{1, "lab", 3, "ecn", "reno", "a=1,b=2", what, t, value}
	}
	// Nothing is known between 3.5 and 5 ms, so the grid's point at 4 ms is missing. 500 B in 2 ms are 2 Mbit/s;
	// half of the flow's time in bin [2, 4) ms is in it.
	series := []SeriesRow{
		at("b.queue_bytes", 0, 7), at("b.queue_bytes", 1, 7), at("b.queue_bytes", 2, 9), at("b.queue_bytes", 3, 9), at("b.queue_bytes", 5, 4),
		at("mice.rate_mbps", 0, 0), at("mice.rate_mbps", 2, 2), at("mice.rate_mbps", 4, 0),
	}
	if diff := cmp.Diff(series, readRows[SeriesRow](t, doc.WriteSeries)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// A run's row has each axis as written and as a number, and the metrics that the run has.
func TestRunRows_ReadBack(t *testing.T) {
	ended := time.Date(2026, 11, 22, 12, 0, 0, 5e6, time.UTC)
	first := &Run{
		World: "lab", Seed: 3, Scale: 5, Scheme: "ecn", Laws: []string{"ecn", "red"}, GuestCC: "reno", PayloadShare: 0.9,
		Params: map[string]any{"threshold": "15KB", "load": "0.5"}, Unmet: []Unmet{OldUnmet("a"), OldUnmet("b")}, RTTus: new(200.5),
		Axes: map[string]string{"guest_cc": "reno", "load": "0.5", "rtt": "200us", "run": "x", "size": "1MB"},
		By:   &Maker{Weir: "v2", Kernel: "6.9", Ended: ended, TookS: 1.5}, Busy: &Distribution{Mean: 0.25},
		Groups: map[string]*Group{"mice": {Flows: 2, FCT: &Distribution{P99: 7.5}}}, Ports: map[string]*PortResult{"b": {}},
		Windows: map[string]Window{"loaded": {Ports: map[string]*PortResult{"b": {Queue: &Distribution{Mean: 9}}}}},
	}
	second := &Run{
		World: "sim", Scale: 1, Scheme: "droptail", GuestCC: "cubic", Partial: true,
		Axes:   map[string]string{"size": "some"},
		Groups: map[string]*Group{"mice": {Flows: 1, Drops: new(int64(4))}}, Ports: map[string]*PortResult{AllPorts: {Drops: new(int64(6))}},
	}
	doc := &Document{Experiment: "x", Weir: "v1", Host: Host{Kernel: "6.6"}, Runs: []*Run{first, second}}

	heads := []RunRow{
		{
			Experiment: "x", World: "lab", Scheme: "ecn", Laws: "ecn,red", GuestCC: "reno", Seed: 3, Scale: 5,
			Params: `{"threshold":"15KB"}`, Weir: "v2", Kernel: "6.9", Ended: &ended, TookS: new(1.5),
			Unmet: "a; b", RTTus: new(200.5), BusyMean: new(0.25), Payload: 0.9,
		},
		{Run: 1, Experiment: "x", World: "sim", Scheme: "droptail", GuestCC: "cubic", Scale: 1, Params: "{}", Weir: "v1", Kernel: "6.6", Partial: true},
	}
	if diff := cmp.Diff(heads, readRows[RunRow](t, doc.WriteRuns)); diff != "" {
		t.Errorf("what every row has (-want +got):\n%s", diff)
	}
	type row struct {
		AxisRun     *string  `parquet:"axis_run,optional"`
		Load        *string  `parquet:"load,optional"`
		LoadNumber  *float64 `parquet:"load_number,optional"`
		RTTNumber   *float64 `parquet:"rtt_number,optional"`
		Size        *string  `parquet:"size,optional"`
		Flows       *float64 `parquet:"mice.flows,optional"`
		P99         *float64 `parquet:"mice.fct_ms.p99,optional"`
		Drops       *float64 `parquet:"mice.drops,optional"`
		AllDrops    *float64 `parquet:"all.drops,optional"`
		LoadedQueue *float64 `parquet:"loaded.b.queue_bytes.mean,optional"`
	}
	rows := []row{
		{AxisRun: new("x"), Load: new("0.5"), LoadNumber: new(0.5), RTTNumber: new(0.2), Size: new("1MB"), Flows: new(2.0), P99: new(7.5), LoadedQueue: new(9.0)},
		{Size: new("some"), Flows: new(1.0), Drops: new(4.0), AllDrops: new(6.0)},
	}
	if diff := cmp.Diff(rows, readRows[row](t, doc.WriteRuns)); diff != "" {
		t.Errorf("axes and metrics (-want +got):\n%s", diff)
	}
	var b bytes.Buffer
	if err := doc.WriteRuns(&b); err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, c := range f.Schema().Columns() {
		columns = append(columns, strings.Join(c, "/"))
	}
	for _, absent := range []string{"size_number", "axis_guest_cc", "mice.timeouts", "bytes"} {
		if slices.Contains(columns, absent) {
			t.Errorf("there is a column %s in %v", absent, columns)
		}
	}
	if fixed := reflect.TypeFor[RunRow]().NumField(); columns[fixed] != "load" || columns[len(columns)-1] != "loaded.b.queue_bytes.max" {
		t.Errorf("columns %v: axes come after what every experiment has, then metrics", columns)
	}
}

// An axis has a column of numbers only if they have one unit: 10 KB and 15 packets are not 10000 and 15 of the same. 0 fits every unit.
func TestRunRows_NumbersOfOneUnit(t *testing.T) {
	for _, c := range []struct {
		values string
		want   bool
	}{{"10KB 15pkt 40KB", false}, {"10KB 40KB 1MB", true}, {"5pkt 15pkt", true}, {"0 1ms 20us", true}, {"1 20us", false}, {"1Gbit 10ms", false}, {"1Mbit 2Gbit", true}} {
		doc := &Document{}
		for _, v := range strings.Fields(c.values) {
			doc.Runs = append(doc.Runs, &Run{Axes: map[string]string{"threshold": v}})
		}
		got := slices.ContainsFunc(doc.runColumns(), func(col runColumn) bool { return col.name == "threshold_number" })
		if got != c.want {
			t.Errorf("%s: a column of numbers is %v, want %v", c.values, got, c.want)
		}
	}
}

func readRows[T any](t *testing.T, write func(io.Writer) error) []T {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.Read[T](bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
