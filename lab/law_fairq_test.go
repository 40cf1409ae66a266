package lab

import (
	"errors"
	"strings"
	"testing"

	"weir/agent/switchd"
	switchfairq "weir/agent/switchd/fairq"
	"weir/datapath/attach"
	"weir/experiment"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// The limits of package experiment and of the switch program agree, tested at the last allowed value of each
// limit: an invalid value is refused before anything is built.
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
		// The device does not exist: this is refused too, but only when attaching.
		of := switchfairq.Law{}
		p, err := of.At(switchd.Site{Rate: rate, Buffer: 125_000, RTT: cfg.RTT, MTU: labMTU}, &params)
		if err != nil {
			t.Fatal(err)
		}
		at, err := switchd.Own(switchd.Setting{Law: of, Common: switchd.Common{Keys: &params}})
		if err == nil {
			err = at.Attach(switchd.PortLaws{PortRef: attach.PortRef{Name: "none", Ifindex: 1 << 30}, Params: []switchd.Params{p}})
			err = errors.Join(err, at.End(switchd.Purge))
		}
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
