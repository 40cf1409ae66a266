package result

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// FlowRow is one row of flows.parquet: one flow or request. Times are ms of the experiment's own time, from the
// start of the traffic. A null is a value that does not apply or is not known.
type FlowRow struct {
	Run      int32    `parquet:"run"` // index into the document's runs
	World    string   `parquet:"world,dict"`
	Seed     int64    `parquet:"seed"`
	Scheme   string   `parquet:"scheme,dict"`
	GuestCC  string   `parquet:"guest_cc,dict"`
	Axes     string   `parquet:"axes,dict"` // "guest_cc=cubic,load=0.5"
	Group    string   `parquet:"group,dict"`
	Src      string   `parquet:"src,dict"` // the node that sent the data
	Dst      string   `parquet:"dst,dict"`
	Mouse    int32    `parquet:"mouse"`
	Epoch    int32    `parquet:"epoch"`
	Start    float64  `parquet:"start"`
	End      float64  `parquet:"end"`
	FCT      *float64 `parquet:"fct,optional"`      // null: unfinished, or without a size
	Bytes    int64    `parquet:"bytes"`             // payload that reached the receiving program
	Size     *int64   `parquet:"size,optional"`     // payload it had to send; null: without a size, or not known
	Slowdown *float64 `parquet:"slowdown,optional"` // fct divided by that of a flow alone on the path
	Drops    *int64   `parquet:"drops,optional"`
	Timeouts *int64   `parquet:"timeouts,optional"`
	FLoss    *int64   `parquet:"timeouts_floss,optional"`
	LAck     *int64   `parquet:"timeouts_lack,optional"`
	Missed   *bool    `parquet:"missed,optional"` // its deadline
	Done     bool     `parquet:"done"`
}

// SeriesRow is one row of series.parquet: What at the time T, in ms of the experiment's own time.
// The column What is PORT.queue_bytes (every 1 ms) or GROUP.rate_mbps (the mean over the step of
// measure.series that begins at T).
type SeriesRow struct {
	Run     int32   `parquet:"run"`
	World   string  `parquet:"world,dict"`
	Seed    int64   `parquet:"seed"`
	Scheme  string  `parquet:"scheme,dict"`
	GuestCC string  `parquet:"guest_cc,dict"`
	Axes    string  `parquet:"axes,dict"`
	What    string  `parquet:"what,dict"`
	T       float64 `parquet:"t"`
	Value   float64 `parquet:"value"`
}

// queueGridMs is the step of queues in series.parquet, in ms.
const queueGridMs = 1.0

// AxesText returns the values of axes as one text, in the order of their names.
func AxesText(axes map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(axes)) {
		parts = append(parts, name+"="+axes[name])
	}
	return strings.Join(parts, ",")
}

// WriteFlows writes flows.parquet: every flow of every run that has a Detail.
func (d *Document) WriteFlows(w io.Writer) error {
	out := parquet.NewGenericWriter[FlowRow](w, parquet.Compression(&parquet.Snappy),
		parquet.KeyValueMetadata("experiment", d.Experiment),
		parquet.KeyValueMetadata("units", "start, end, fct: ms of the experiment's own time; bytes: payload"))
	for i, r := range d.Runs {
		if r.Detail == nil {
			continue
		}
		rows := make([]FlowRow, 0, len(r.Detail.Flows))
		axes := AxesText(r.Axes)
		for j := range r.Detail.Flows {
			f := &r.Detail.Flows[j]
			rows = append(rows, FlowRow{
				Run: int32(i), World: r.World, Seed: r.Seed, Scheme: r.Scheme, GuestCC: r.GuestCC, Axes: axes,
				Group: f.Group, Src: f.Src, Dst: f.Dst, Mouse: int32(f.Mouse), Epoch: int32(f.Epoch),
				Start: f.StartMs, End: f.EndMs, FCT: f.FCTMs, Bytes: f.Bytes, Size: f.Size, Slowdown: f.Slowdown, Drops: f.Drops, Timeouts: f.Timeouts,
				FLoss: f.FLoss, LAck: f.LAck, Missed: f.Missed, Done: f.Done,
			})
		}
		if _, err := out.Write(rows); err != nil {
			return fmt.Errorf("write flows of run %d: %w", i, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("write flows: %w", err)
	}
	return nil
}

// WriteSeries writes series.parquet: queues of named ports and rates of groups over time.
func (d *Document) WriteSeries(w io.Writer) error {
	out := parquet.NewGenericWriter[SeriesRow](w, parquet.Compression(&parquet.Snappy),
		parquet.KeyValueMetadata("experiment", d.Experiment),
		parquet.KeyValueMetadata("units", "t: ms of the experiment's own time; queue_bytes: bytes; rate_mbps: Mbit/s of payload"))
	for i, r := range d.Runs {
		if r.Detail == nil {
			continue
		}
		row := SeriesRow{
			Run: int32(i), World: r.World, Seed: r.Seed, Scheme: r.Scheme, GuestCC: r.GuestCC, Axes: AxesText(r.Axes),
		}
		for _, rows := range r.Detail.series(row) {
			if _, err := out.Write(rows); err != nil {
				return fmt.Errorf("write series of run %d: %w", i, err)
			}
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("write series: %w", err)
	}
	return nil
}

// series returns the rows of one run, one list for each What; row has the values that they share.
func (d *Detail) series(row SeriesRow) [][]SeriesRow {
	var out [][]SeriesRow
	for _, label := range slices.Sorted(maps.Keys(d.Queues)) {
		row.What = label + ".queue_bytes"
		var rows []SeriesRow
		next := 0 // the number of a grid point, so that rounding errors do not add up
		for _, s := range d.Queues[label] {
			for t := float64(next) * queueGridMs; t < s.ToMs; t = float64(next) * queueGridMs {
				if t >= s.FromMs {
					row.T, row.Value = t, float64(s.Bytes)
					rows = append(rows, row)
				}
				next++
			}
		}
		out = append(out, rows)
	}
	for _, group := range slices.Sorted(maps.Keys(d.Rates)) {
		row.What = group + ".rate_mbps"
		var rows []SeriesRow
		for k, v := range d.Rates[group] {
			row.T, row.Value = float64(k)*d.StepMs, v
			rows = append(rows, row)
		}
		out = append(out, rows)
	}
	return out
}
