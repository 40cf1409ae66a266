package lab

import (
	"strings"
	"testing"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/experiment"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// What experiment's limits let through the switch program takes, at each limit's last value, and what it refuses they
// refuse: so all is said before anything is built.
func TestFairQ_LimitsAreTheSwitchPrograms(t *testing.T) {
	for what, edit := range map[string]func(p *fairqlaw.Params){
		"the defaults":         func(*fairqlaw.Params) {},
		"interval 10us":        func(p *fairqlaw.Params) { p.Interval = 10e3 },
		"interval 9us":         func(p *fairqlaw.Params) { p.Interval = 9e3 },
		"an update takes 1s":   func(p *fairqlaw.Params) { p.Interval = 100e6 },
		"it takes longer":      func(p *fairqlaw.Params) { p.Interval = 101e6 },
		"fairswitch":           func(p *fairqlaw.Params) { p.FairSwitch = true },
		"fairswitch, code, 4":  func(p *fairqlaw.Params) { p.FairSwitch, p.Gain, p.Updates = true, "code", 4 },
		"fairswitch, code, 5":  func(p *fairqlaw.Params) { p.FairSwitch, p.Gain, p.Updates = true, "code", 5 },
		"edge, 1ms":            func(p *fairqlaw.Params) { p.Edge, p.EdgeInterval = true, 1e6 },
		"edge, 0.9ms":          func(p *fairqlaw.Params) { p.Edge, p.EdgeInterval = true, 9e5 },
		"edge, 500ms":          func(p *fairqlaw.Params) { p.Edge, p.EdgeInterval = true, 500e6 },
		"edge, 501ms":          func(p *fairqlaw.Params) { p.Edge, p.EdgeInterval = true, 501e6 },
		"edge, shim":           func(p *fairqlaw.Params) { p.Edge, p.Scale = true, "shim" },
		"edge, unify":          func(p *fairqlaw.Params) { p.Edge, p.Scale = true, "unify" },
		"a port of 250 kbit/s": nil,
	} {
		params := defaultFairQ()
		rate := law.Rate(1e9)
		if edit == nil {
			rate = 250e3 // its target takes 0.8 s
			params.TargetFraction = 0.25
		} else {
			edit(&params)
		}
		cfg := &experiment.Config{RTT: 200e3, Graph: &experiment.Graph{Links: []experiment.Link{{A: "a", B: "b", Rate: rate, Buffer: law.Limit{N: 125_000}}}}}
		before := params.Check(cfg.Network(), fairqlaw.LabLimits())
		// There is no such device: it is refused too, but as it is attached.
		_, err := fairq.Attach([]fairq.Port{{
			PortRef: attach.PortRef{Name: "none", Ifindex: 1 << 30}, Law: fairQLaw(params.At(cfg.RTT, rate, 125_000), &params),
		}}, fairQConfig(&params))
		if err == nil {
			t.Fatal("it was attached")
		}
		limit := strings.Contains(err.Error(), "fairq: port none") || strings.Contains(err.Error(), "edge")
		if limit != (before != nil) {
			t.Errorf("%s: experiment says %v, the switch program %v", what, before, err)
		}
	}
}

func defaultFairQ() fairqlaw.Params { return *fairqlaw.Default() }

// Every parameter of the file reaches the switch program.
func TestFairQ_ParametersReachTheSwitchProgram(t *testing.T) {
	p := defaultFairQ()
	at := p.At(200e3, 200e6, 125_000)
	if l := fairQLaw(at, &p); l != (fairq.Law{
		TargetBytes: 25_000, BufferBytes: 125_000, Tick: 50e3, Period: 500e3, CapBytes: 30_000, Active: 10e6, Idle: 1e9, MTU: 1500,
	}) {
		t.Errorf("the defaults: %+v", l)
	}
	p.Gain, p.Aggregate, p.FairSwitch, p.Paths, p.Undivided, p.Idle = "code", false, true, 4, true, 5e9
	l := fairQLaw(at, &p)
	if l.Gain != fairq.GainOVS || l.SlowStart != fairq.SlowStartPerFlow || l.Variant != fairq.FairSwitch ||
		l.Paths != 4 || !l.Undivided || l.Idle != fairq.MaxActive {
		t.Errorf("%+v", l)
	}
}
