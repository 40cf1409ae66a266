package fairq

import (
	"testing"
	"time"

	"weir/agent/switchd"
	kernel "weir/datapath/fairq"
	"weir/datapath/reading"
	fairqlaw "weir/law/fairq"
)

func at(t *testing.T, site switchd.Site) params {
	t.Helper()
	p, err := Law{}.At(site, Law{}.Facts().Port)
	if err != nil {
		t.Fatal(err)
	}
	return p.(params)
}

var gigabit = switchd.Site{Rate: 1e9, Buffer: 1e6, RTT: 250e3, MTU: 1500}

// The paper's figures of a port of 1 Gbit/s with 1 MB and 250 us: αB, C*RTT + αB, and four round trips with the queue
// at its target.
func TestAt(t *testing.T) {
	p := at(t, gigabit)
	if p.Figures() != (switchd.Figures{Target: 200_000, Buffer: 1e6, Cap: 31_250 + 200_000, MTU: 1500, LongestWait: 100 * time.Millisecond}) {
		t.Errorf("%+v", p.Figures())
	}
	if p.Tick != 50*time.Microsecond || p.Period != 500*time.Microsecond || p.Active < 4*(250+1600)*time.Microsecond {
		t.Errorf("%+v", p)
	}
	if small, large := at(t, switchd.Site{Rate: 1e9, Buffer: 1e6, RTT: 250e3, MTU: 68}), at(t, switchd.Site{Rate: 1e9, Buffer: 1e6, RTT: 250e3, MTU: 1 << 20}); small.MTU != 576 || large.MTU != 65535 {
		t.Errorf("MTU %d and %d", small.MTU, large.MTU)
	}
}

// A port whose queue takes seconds to drain is managed, too: its flows count for as long as the kernel programs can
// count.
func TestAt_SlowPort(t *testing.T) {
	if p := at(t, switchd.Site{Rate: 1e6, Buffer: 10e6, RTT: 250e3, MTU: 1500}); p.Active != 4*time.Second {
		t.Errorf("%+v", p)
	}
}

// Every parameter of an experiment's file reaches the switch program.
func TestProgramsAt(t *testing.T) {
	p, site := fairqlaw.Default(), switchd.Site{Rate: 200e6, Buffer: 125_000, RTT: 200e3, MTU: 1500}
	if l, err := programsAt(p, site); err != nil || l != (kernel.Law{
		TargetBytes: 25_000, BufferBytes: 125_000, Tick: 50e3, Period: 500e3, CapBytes: 30_000, StartBytes: 30_000, Active: 10e6, Idle: 1e9, MTU: 1500,
		RateBps: 200e6, LongestWait: 100e6, HoldRequests: true, RepairLimitBytes: 113_944, RepairMostBytes: 2 << 20, RepairFullBytes: 121_972, RepairDue: 7e6, RepairBurst: 200e3,
	}) {
		t.Errorf("the defaults: %+v, %v", l, err)
	}
	p.Gain, p.Aggregate, p.FairSwitch, p.Paths, p.Undivided, p.Idle = "code", false, true, 4, true, 5e9
	l, err := programsAt(p, site)
	if err != nil || l.Gain != kernel.GainOVS || l.SlowStart != kernel.SlowStartPerFlow || l.Variant != kernel.FairSwitch ||
		l.Paths != 4 || !l.Undivided || l.Idle != kernel.MaxActive {
		t.Errorf("%+v, %v", l, err)
	}
}

// With a part of the flows limited, the unlimited ones fill the queue, and the limited ones must get their share of it,
// so the law's cap is raised. With all flows limited the cap stays.
func TestParams_With(t *testing.T) {
	p := at(t, gigabit)
	all := p.With(switchd.Enforcement{Mode: reading.EnforceAll, BDP: 5000}).(params)
	if all.Mode != reading.EnforceAll || all.PipeBytes != 5000 || all.CapBytes != p.CapBytes {
		t.Errorf("all: %+v", all)
	}
	part := p.With(switchd.Enforcement{Mode: reading.EnforcePart, Share: 655, BDP: 105_000}).(params)
	if part.Mode != reading.EnforcePart || part.LimitedBuckets != 655 || part.PipeBytes != 105_000 || part.CapBytes != 305_000 {
		t.Errorf("a part: %+v", part)
	}
	if none := p.With(switchd.Enforcement{Mode: reading.EnforceNone}).(params); none.PipeBytes != 1 {
		t.Errorf("a BDP of 0: %+v", none)
	}
	longer := p.With(switchd.Enforcement{Mode: reading.EnforcePart, Share: 655, BDP: 205_000})
	if got := longer.Differs(part); got != "" {
		t.Errorf("another measured BDP is a difference of the law: %s", got)
	}
	if more := p.With(switchd.Enforcement{Mode: reading.EnforcePart, Share: 656, BDP: 105_000}); more.Differs(part) != "limits part of the flows" {
		t.Error("another share is the same law")
	}
	if larger := at(t, switchd.Site{Rate: 1e9, Buffer: 2e6, RTT: 250e3, MTU: 1500}); larger.Differs(p) != "target 400KB of 2MB" {
		t.Errorf("%s", larger.Differs(p))
	}
}
