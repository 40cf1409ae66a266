package fairq

import (
	"fmt"

	"weir/agent/switchd"
	kernel "weir/datapath/fairq"
	"weir/datapath/reading"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// params are FairQ's parameters at a port, in the form that the programs use.
type params struct{ kernel.Law }

// At returns the parameters of a port with these keys.
func (Law) At(site switchd.Site, keys any) (switchd.Params, error) {
	switch k := keys.(type) {
	case *portKeys:
		p := fairqlaw.Default()
		p.TargetFraction, p.Interval, p.Updates, p.Gain, p.MinWindow, p.LongestWait, p.Paths = k.TargetFraction, k.Interval, k.Updates, k.Gain, k.MinWindow, k.LongestWait, k.Paths
		p.HoldRequests, p.RepairLosses = new(k.HoldRequests == on), new(k.RepairLosses == on)
		l, err := programsAt(p, site)
		l.Active = min(l.Active, kernel.MaxActive) // slow ports are managed with the maximum
		return params{l}, err
	case *fairqlaw.Params:
		l, err := programsAt(k, site) // a port that is too slow is an error of Attach
		return params{l}, err
	}
	return nil, fmt.Errorf("fairq: keys are %T", keys)
}

// programsAt returns the switch program's parameters at a port.
func programsAt(p *fairqlaw.Params, site switchd.Site) (kernel.Law, error) {
	gain, err := gains.parse("gain", p.Gain)
	if err != nil {
		return kernel.Law{}, err
	}
	at := p.At(site.RTT, site.Rate, site.Buffer)
	l := kernel.Law{
		TargetBytes: at.Target, BufferBytes: at.Buffer, MTU: uint32(min(max(site.MTU, 576), 65535)), Tick: at.Tick, Period: at.Period,
		FloorBytes: at.Floor, CapBytes: at.Cap, StartBytes: at.Start, Gain: gain, Active: at.Active, Idle: min(p.Idle.Std(), kernel.MaxActive),
		RateBps: uint64(site.Rate), LineBytes: site.LineBytes, LongestWait: at.Wait, HoldRequests: at.Hold,
		RepairLimitBytes: uint32(at.Repair.Limit), RepairMostBytes: uint32(at.Repair.Bound), RepairFullBytes: uint32(at.Repair.Full), RepairDue: at.Repair.Due, RepairBurst: at.Repair.Burst,
	}
	if p.Promises || p.Credits {
		l.PipeBytes = max(1, at.Pipe)
	}
	if p.Paths > 1 {
		l.Paths, l.Undivided = uint16(p.Paths), p.Undivided
	}
	if !p.Aggregate {
		l.SlowStart = kernel.SlowStartPerFlow
	}
	if p.FairSwitch {
		l.Variant = kernel.FairSwitch
	}
	return l, nil
}

// Figures returns the values of the parameters at the port, in bytes.
func (p params) Figures() switchd.Figures {
	return switchd.Figures{Mode: p.Mode, Target: p.TargetBytes, Buffer: p.BufferBytes, Cap: p.CapBytes, Floor: p.FloorBytes, MTU: p.MTU, LongestWait: p.LongestWait}
}

// With returns the parameters with another share of the flows limited. With a part of the flows limited, the law's cap,
// which is meant for a queue at its target, is raised.
func (p params) With(h switchd.Enforcement) switchd.Params {
	p.Mode, p.LimitedBuckets, p.PipeBytes = h.Mode, h.Share, max(1, saturated(h.BDP))
	if h.Mode == reading.EnforcePart {
		p.CapBytes = max(p.CapBytes, saturated(h.BDP+float64(p.TargetBytes)))
	}
	return p
}

// follows reports whether p differs from was only in the BDP, which follows measurements.
func (p params) follows(was params) bool {
	a, b := was.Law, p.Law
	a.PipeBytes, b.PipeBytes = 0, 0
	if a.Mode == reading.EnforcePart && b.Mode == a.Mode {
		a.CapBytes, b.CapBytes = 0, 0
	}
	return a == b
}

// Differs describes the difference; "": only in the BDP.
func (p params) Differs(before switchd.Params) string {
	was := before.(params)
	if p.follows(was) {
		return ""
	}
	if was.TargetBytes != p.TargetBytes || was.BufferBytes != p.BufferBytes {
		return fmt.Sprintf("target %v of %v", law.Bytes(p.TargetBytes), law.Bytes(p.BufferBytes))
	}
	if was.Mode != p.Mode || was.LimitedBuckets != p.LimitedBuckets {
		return "limits " + limitedFlows[p.Mode]
	}
	return "its parameters changed"
}

func saturated(bytes float64) uint32 { return uint32(min(max(bytes, 0), 1<<32-1)) }

var limitedFlows = map[reading.Mode]string{reading.EnforceAll: "all flows", reading.EnforcePart: "part of the flows", reading.EnforceNone: "no flow"}
