package fairq

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/law"
)

// Values by hand, for the port of incast.yaml: the target is half of 125 KB. The cap adds the bytes that 200 Mbit/s send in
// 200 us. A flow stays active for four round trips, each with the target's 2.5 ms.
func TestAtAPort(t *testing.T) {
	p := Default()
	p.TargetFraction = 0.5
	want := Port{
		Target: 62_500, Buffer: 125_000, Cap: 67_500, Pipe: 5000, Start: 67_500, Tick: 50 * time.Microsecond, Period: 500 * time.Microsecond, Active: 10_800 * time.Microsecond,
		Wait: 100 * time.Millisecond, Hold: true,
		// The parking may send 5 KB at once, and four frames may come at the same time. 100 ms are 2.5 MB, and a port keeps 2 MiB at most; the buffer takes 5 ms.
		Repair: law.Repair{Limit: 125_000 - 5000 - 4*1514, Full: 125_000 - 2*1514, Most: 150_000, Bound: 2 << 20, Due: 7 * time.Millisecond, Burst: 200 * time.Microsecond},
	}
	if got := p.At(200e3, 200e6, 125_000); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// A path that holds more than the buffer begins with the buffer.
	if got := p.At(200e3, 10e9, 125_000); got.Start != 125_000 {
		t.Errorf("%+v", got)
	}
	p.Start = "target"
	if got := p.At(200e3, 10e9, 125_000); got.Start != 62_500 {
		t.Errorf("%+v", got)
	}
	p.MinWindow, p.MaxWindow = 1000, 20_000
	if got := p.At(200e3, 10e9, 125_000); got.Floor != 1000 || got.Cap != 20_000 || got.Active != 10*time.Millisecond {
		t.Errorf("%+v", got)
	}
	p.MaxWindow = 0
	for _, buffer := range []law.Bytes{1e6, math.MaxUint32} {
		if got := p.At(1e9, 400e9, buffer); got.Cap != 1<<30 {
			t.Errorf("a BDP of 50 GB and a buffer of %v: a window of %d", buffer, got.Cap)
		}
	}
	p.TargetFraction = 0.9
	if got := p.At(1e9, 100e9, math.MaxUint32); got.Cap != 1<<30 {
		t.Errorf("a BDP of 12.5 GB and a target of 3.9 GB: a window of %d", got.Cap)
	}
}

// The last value within each limit is accepted. The next one is refused in one line that names the limit. The sampling
// interval and the time that a flow stays active have different limits in each world.
func TestLimits(t *testing.T) {
	network := func(rate law.Rate, buffer law.Bytes) *law.Topology {
		return &law.Topology{RTT: 200e3, Links: []law.Link{{A: "a", B: "b", Rate: rate, Buffer: law.Limit{N: int64(buffer)}}}}
	}
	plain := network(1e9, 125_000)
	for _, c := range []struct {
		want     string
		cfg      *law.Topology
		within   func(p *Params)
		exceeded func(p *Params)
	}{
		{"sampling interval of 9999ns", plain, func(p *Params) { p.Interval = 10e3 }, func(p *Params) { p.Interval = 9999 }},
		{"1s at most", plain, func(p *Params) { p.Interval = 100e6 }, func(p *Params) { p.Interval = 100e6 + 1 }},
		{"windows of 1073741825B", plain, func(p *Params) { p.MinWindow = 1 << 30 }, func(p *Params) { p.MinWindow = 1<<30 + 1 }},
		{"to 1073741825B: 0B to", plain, func(p *Params) { p.MaxWindow = 1 << 30 }, func(p *Params) { p.MaxWindow = 1<<30 + 1 }},
		{"more than 4 samples", plain, func(p *Params) { p.FairSwitch, p.Gain, p.Updates = true, "code", 4 }, func(p *Params) { p.FairSwitch, p.Gain, p.Updates = true, "code", 5 }},
		{"add credits: true", plain, func(p *Params) { p.HoldRequests, p.Credits = new(bool), true }, func(p *Params) { p.HoldRequests, p.Promises = new(bool), true }},
		{"repair_losses has", plain, func(p *Params) { p.RepairLosses, p.Credits = new(bool), true }, func(p *Params) { p.RepairLosses, p.Promises = new(bool), true }},
		{"scale: shim", plain, func(p *Params) { p.Edge = true }, func(p *Params) { p.Edge, p.Scale = true, "shim" }},
		{"scale: unify", plain, func(p *Params) { p.Scale = "unify" }, func(p *Params) { p.Edge, p.Scale = true, "unify" }},
		{"edge_interval of 999999ns", plain, func(p *Params) { p.Edge, p.EdgeInterval = true, 1e6 }, func(p *Params) { p.Edge, p.EdgeInterval = true, 1e6-1 }},
		{"edge_interval of 500000001ns", plain, func(p *Params) { p.Edge, p.EdgeInterval = true, 500e6 }, func(p *Params) { p.Edge, p.EdgeInterval = true, 500e6+1 }},
		{"a buffer of 4294967296B", network(100e9, 1<<32), nil, func(*Params) {}},
		{"a buffer of 1B", network(1e9, 1), nil, func(*Params) {}},
		{"flows would count for 4.0001", network(1e6, 624_900), nil, func(*Params) {}},
		{"", network(1e6, 624_000), func(*Params) {}, nil},
		{"", network(0, 1), func(*Params) {}, nil},
	} {
		if c.within != nil {
			p := Default()
			c.within(p)
			if err := p.Check(c.cfg, LabLimits()); err != nil {
				t.Errorf("%q: the last value is refused: %v", c.want, err)
			}
		}
		if c.exceeded != nil {
			p := Default()
			c.exceeded(p)
			if err := p.Check(c.cfg, LabLimits()); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line with %q", err, c.want)
			}
		}
	}
	p := Default()
	p.Interval = 1000
	if err := p.Check(plain, SimLimits()); err != nil {
		t.Error(err)
	}
	if p.Interval = 999; p.Check(plain, SimLimits()) == nil {
		t.Error("a sampling interval of 999 ns was accepted")
	}
	if err := Default().Check(network(1e6, 1e9), SimLimits()); err != nil {
		t.Errorf("flows that count for long: %v", err)
	}
}

// A note is written as soon as a count exceeds its share, and contains no number.
func TestReport(t *testing.T) {
	fine := law.Tally{Seen: 5000, Unknown: 5, Opened: 1000, Refused: 1, Samples: 95, Late: 5, Acks: 9, Rewritten: 4}
	totals, trouble := report(fine)
	if want := []law.Value{{Metric: Acks, Value: 9}, {Metric: Rewritten, Value: 4}}; !slices.Equal(totals, want) || trouble != nil {
		t.Errorf("%v, %q", totals, trouble)
	}
	bad := law.Tally{Seen: 5000, Unknown: 6, Opened: 1000, Refused: 2, Samples: 94, Late: 6, Left: 1}
	totals, trouble = report(bad)
	if len(trouble) != 3 || !strings.Contains(trouble[0], "no room") || !strings.Contains(trouble[1], "no connection") || !strings.Contains(trouble[2], "by a packet") {
		t.Errorf("%q", trouble)
	}
	if want := []law.Value{{Metric: Acks}, {Metric: Rewritten}, {Metric: Advertised}, {Metric: Left, Value: 1}}; !slices.Equal(totals, want) {
		t.Errorf("%v", totals)
	}
}
