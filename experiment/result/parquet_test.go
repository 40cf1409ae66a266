package result

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

// Everything that a row can say or leave out comes back from the file.
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
	first.FLoss, first.LAck = new(int64(1)), new(int64(0))
	second.Src, second.Dst, second.Mouse, second.Epoch, second.End, second.Drops = "s2", "r1", 1, 2, 6, new(int64(0))
	want := []FlowRow{first, second}
	if diff := cmp.Diff(want, readRows[FlowRow](t, doc.WriteFlows)); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}

	at := func(what string, t, value float64) SeriesRow {
		return SeriesRow{1, "lab", 3, "ecn", "reno", "a=1,b=2", what, t, value}
	}
	// Nothing is known between 3.5 and 5 ms, so the grid's point at 4 ms is missing. 500 B in 2 ms
	// are 2 Mbit/s; half of the flow's time in bin [2, 4) ms is within it.
	series := []SeriesRow{
		at("b.queue_bytes", 0, 7), at("b.queue_bytes", 1, 7), at("b.queue_bytes", 2, 9), at("b.queue_bytes", 3, 9), at("b.queue_bytes", 5, 4),
		at("mice.rate_mbps", 0, 0), at("mice.rate_mbps", 2, 2), at("mice.rate_mbps", 4, 0),
	}
	if diff := cmp.Diff(series, readRows[SeriesRow](t, doc.WriteSeries)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
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
