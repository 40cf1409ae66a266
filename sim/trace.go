package sim

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/parquet-go/parquet-go"

	"weir/experiment"
	"weir/sim/event"
	"weir/sim/tcp"
)

const (
	// maxTraceRows bounds one file, to about 100 MB.
	maxTraceRows = 5_000_000
	// traceBatch rows are written at a time, and groupRows make a group: the part of the file that is in memory.
	traceBatch, groupRows = 4096, 1 << 17
	// traceStep is the least time between rows if only the RTT has changed.
	traceStep = event.Millisecond
)

// TraceRow is one row of a trace: the state of the sender at one end of a connection at one time. A row is written when
// window, threshold or state change, and at most once per millisecond for a new RTT.
type TraceRow struct {
	T        float64 `parquet:"t"` // ms of the experiment's own time, from the start of the traffic
	Group    string  `parquet:"group,dict"`
	Src      string  `parquet:"src,dict"` // where the flow's data comes from
	Dst      string  `parquet:"dst,dict"`
	Mouse    int32   `parquet:"mouse"`
	Epoch    int32   `parquet:"epoch"`
	Host     string  `parquet:"host,dict"` // whose end of the connection this is
	Port     int32   `parquet:"port"`      // of the connecting side
	What     string  `parquet:"what,dict"` // what happened
	State    string  `parquet:"state,dict"`
	Recovery string  `parquet:"recovery,dict"`
	Cwnd     int64   `parquet:"cwnd"`              // segments
	Ssthresh *int64  `parquet:"ssthresh,optional"` // segments; null: none was set yet
	SRTT     float64 `parquet:"srtt_us"`           // unscaled: in the time of the world; 0: not measured
	RTO      float64 `parquet:"rto_ms"`            // unscaled: in the time of the world
}

// trace writes the states of connections to a file.
type trace struct {
	s      *simulation
	scale  float64
	t0     event.Time
	file   *os.File
	w      *parquet.GenericWriter[TraceRow]
	rows   []TraceRow
	n      int64
	missed int64
	last   map[*tcp.Endpoint]traced
	err    error
}

// traced is the content of an endpoint's last row.
type traced struct {
	at       event.Time
	index    int32 // of its connection: endpoints are reused
	window   tcp.Window
	state    tcp.State
	recovery tcp.Recovery
	flow     *flow // the latest flow of its connection
}

func newTrace(path string, s *simulation, r *experiment.Run) (*trace, error) {
	t := &trace{s: s, scale: cmp.Or(r.Scale, 1), t0: -1, last: map[*tcp.Endpoint]traced{}}
	var err error
	if t.file, err = os.Create(path); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	t.w = parquet.NewGenericWriter[TraceRow](t.file, parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(groupRows),
		parquet.KeyValueMetadata("experiment", r.Experiment),
		parquet.KeyValueMetadata("run", FileName(r)),
		parquet.KeyValueMetadata("units", "t: ms of the experiment's own time; cwnd, ssthresh: segments; srtt_us, rto_ms: as simulated"))
	s.stack.OnTrace(t.event)
	return t, nil
}

// event records a change of an endpoint.
func (t *trace) event(e *tcp.Endpoint, what tcp.TraceEvent) {
	now := t.s.queue.Now()
	is := traced{now, e.Index(), e.Window(), e.State(), e.Recovery(), t.flowOf(e)}
	was, known := t.last[e]
	if is.flow == nil && was.index == is.index {
		is.flow = was.flow // the programs are done
	}
	if known && was.index == is.index && now-was.at < traceStep &&
		was.window.Cwnd == is.window.Cwnd && was.window.Ssthresh == is.window.Ssthresh && was.state == is.state && was.recovery == is.recovery {
		return
	}
	t.last[e] = is
	if t.t0 < 0 || t.err != nil {
		return
	}
	if t.n >= maxTraceRows {
		t.missed++
		return
	}
	t.n++
	if t.rows = append(t.rows, t.row(e, what, is)); len(t.rows) == traceBatch {
		t.flush()
	}
}

func (t *trace) row(e *tcp.Endpoint, what tcp.TraceEvent, is traced) TraceRow {
	srtt, rto := e.RTT()
	host, port := e.Host()
	if !e.Dialled() {
		_, port = e.Peer()
	}
	row := TraceRow{
		T: float64(is.at-t.t0) / 1e6 / t.scale, Host: t.s.net.Name(host), Port: int32(port), Mouse: -1,
		What: what.String(), State: is.state.String(), Recovery: is.recovery.String(),
		Cwnd: int64(is.window.Cwnd), SRTT: float64(srtt) / 1e3, RTO: float64(rto) / 1e6,
	}
	if is.window.Ssthresh != tcp.NoSsthresh {
		row.Ssthresh = new(int64(is.window.Ssthresh))
	}
	if f := is.flow; f != nil {
		r := f.result()
		row.Group, row.Src, row.Dst, row.Mouse, row.Epoch = r.Group, r.Src, r.Dst, int32(r.Mouse), int32(r.Epoch)
	}
	return row
}

// flowOf returns the latest flow of an endpoint's connection; nil: none yet, or the connection is gone.
func (t *trace) flowOf(e *tcp.Endpoint) *flow {
	if conns := t.s.traffic.conns; int(e.Index()) < len(conns) {
		if c := conns[e.Index()]; c != nil {
			if c.flow != nil {
				return c.flow
			}
			return c.only
		}
	}
	return nil
}

func (t *trace) flush() {
	if t.err == nil {
		_, t.err = t.w.Write(t.rows)
	}
	t.rows = t.rows[:0]
}

// close finishes the file.
func (t *trace) close() error {
	t.flush()
	if err := errors.Join(t.err, t.w.Close(), t.file.Close()); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}
