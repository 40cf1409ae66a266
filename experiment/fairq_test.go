package experiment

import (
	"math"
	"strings"
	"testing"
	"time"

	"weir/law"
)

// By hand, for incast.yaml's port: half of 125 KB; what 200 Mbit/s send in 200 us beside it; four round trips with the
// target's 2.5 ms in each.
func TestFairQ_AtAPort(t *testing.T) {
	p := newFairQ()
	p.TargetFraction = 0.5
	want := FairQPort{
		Target: 62_500, Buffer: 125_000, Cap: 67_500, Tick: 50 * time.Microsecond, Period: 500 * time.Microsecond, Active: 10_800 * time.Microsecond,
	}
	if got := p.At(200e3, 200e6, 125_000); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	p.MinWindow, p.MaxWindow = 1000, 20_000
	if got := p.At(200e3, 10e9, 125_000); got.Floor != 1000 || got.Cap != 20_000 || got.Active != 10*time.Millisecond {
		t.Errorf("%+v", got)
	}
	p.MaxWindow = 0
	for _, buffer := range []law.Bytes{1e6, math.MaxUint32} {
		if got := p.At(1e9, 400e9, buffer); got.Cap != 1<<30 {
			t.Errorf("a pipe of 50 GB and a buffer of %v: a window of %d", buffer, got.Cap)
		}
	}
	p.TargetFraction = 0.9
	if got := p.At(1e9, 100e9, math.MaxUint32); got.Cap != 1<<30 {
		t.Errorf("a pipe of 12.5 GB and a target of 3.9 GB: a window of %d", got.Cap)
	}
}

// Each limit holds at its last value and is exceeded by the next, in one line that names it. The sampling interval and
// the time that a flow counts for have another limit in each world.
func TestFairQ_Limits(t *testing.T) {
	network := func(rate law.Rate, buffer law.Bytes) *Config {
		return &Config{RTT: 200e3, Graph: &Graph{Links: []Link{{A: "a", B: "b", Rate: rate, Buffer: law.Limit{N: int64(buffer)}}}}}
	}
	plain := network(1e9, 125_000)
	for _, c := range []struct {
		want     string
		cfg      *Config
		within   func(p *FairQParams)
		exceeded func(p *FairQParams)
	}{
		{"sampling interval of 9999ns", plain, func(p *FairQParams) { p.Interval = 10e3 }, func(p *FairQParams) { p.Interval = 9999 }},
		{"1s at most", plain, func(p *FairQParams) { p.Interval = 100e6 }, func(p *FairQParams) { p.Interval = 100e6 + 1 }},
		{"windows of 1073741825B", plain, func(p *FairQParams) { p.MinWindow = 1 << 30 }, func(p *FairQParams) { p.MinWindow = 1<<30 + 1 }},
		{"to 1073741825B: 0B to", plain, func(p *FairQParams) { p.MaxWindow = 1 << 30 }, func(p *FairQParams) { p.MaxWindow = 1<<30 + 1 }},
		{"more than 4 samples", plain, func(p *FairQParams) { p.FairSwitch, p.Gain, p.Updates = true, "code", 4 }, func(p *FairQParams) { p.FairSwitch, p.Gain, p.Updates = true, "code", 5 }},
		{"scale: shim", plain, func(p *FairQParams) { p.Edge = true }, func(p *FairQParams) { p.Edge, p.Scale = true, "shim" }},
		{"scale: unify", plain, func(p *FairQParams) { p.Scale = "unify" }, func(p *FairQParams) { p.Edge, p.Scale = true, "unify" }},
		{"edge_interval of 999999ns", plain, func(p *FairQParams) { p.Edge, p.EdgeInterval = true, 1e6 }, func(p *FairQParams) { p.Edge, p.EdgeInterval = true, 1e6-1 }},
		{"edge_interval of 500000001ns", plain, func(p *FairQParams) { p.Edge, p.EdgeInterval = true, 500e6 }, func(p *FairQParams) { p.Edge, p.EdgeInterval = true, 500e6+1 }},
		{"a buffer of 4294967296B", network(100e9, 1<<32), nil, func(*FairQParams) {}},
		{"a buffer of 1B", network(1e9, 1), nil, func(*FairQParams) {}},
		{"flows would count for 4.0001", network(1e6, 624_900), nil, func(*FairQParams) {}},
		{"", network(1e6, 624_000), func(*FairQParams) {}, nil},
		{"", network(0, 1), func(*FairQParams) {}, nil},
	} {
		if c.within != nil {
			p := newFairQ()
			c.within(p)
			if err := p.Check(c.cfg, FairQLab()); err != nil {
				t.Errorf("%q: the last value is refused: %v", c.want, err)
			}
		}
		if c.exceeded != nil {
			p := newFairQ()
			c.exceeded(p)
			if err := p.Check(c.cfg, FairQLab()); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line with %q", err, c.want)
			}
		}
	}
	p := newFairQ()
	p.Interval = 1000
	if err := p.Check(plain, FairQSim()); err != nil {
		t.Error(err)
	}
	if p.Interval = 999; p.Check(plain, FairQSim()) == nil {
		t.Error("a sampling interval of 999 ns was accepted")
	}
	if err := newFairQ().Check(network(1e6, 1e9), FairQSim()); err != nil {
		t.Errorf("flows that count for long: %v", err)
	}
}

// A note is written from the first that is too many on, and says no number.
func TestFairQ_Trouble(t *testing.T) {
	fine := FairQTally{Seen: 5000, Unknown: 5, Opened: 1000, Refused: 1, Samples: 95, Late: 5}
	if got := fine.Trouble(); got != nil {
		t.Errorf("%q", got)
	}
	bad := FairQTally{Seen: 5000, Unknown: 6, Opened: 1000, Refused: 2, Samples: 94, Late: 6}
	if got := bad.Trouble(); len(got) != 3 || !strings.Contains(got[0], "no room") || !strings.Contains(got[1], "no connection") || !strings.Contains(got[2], "by a packet") {
		t.Errorf("%q", got)
	}
	if got := bad.Since(&fine); got != (FairQTally{Unknown: 1, Refused: 1, Samples: ^uint64(0), Late: 1}) {
		t.Errorf("%+v", got)
	}
}
