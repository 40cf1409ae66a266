package fairq

import (
	"fmt"

	"weir/agent/switchd"
	kernel "weir/datapath/fairq"
	"weir/datapath/reading"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// params are FairQ's parameters at a port, as the programs take them.
type params struct{ kernel.Law }

// At gives the parameters of a port with these keys.
func (Law) At(site switchd.Site, keys any) (switchd.Params, error) {
	k, ok := keys.(*portKeys)
	if !ok {
		return nil, fmt.Errorf("fairq: keys are %T", keys)
	}
	p := fairqlaw.Default()
	p.TargetFraction, p.Interval, p.Updates, p.Gain, p.MinWindow, p.Paths = k.TargetFraction, k.Interval, k.Updates, k.Gain, k.MinWindow, k.Paths
	l, err := ProgramsAt(p, site)
	l.Active = min(l.Active, kernel.MaxActive) // a slow port is managed as well: the lab refuses it
	return params{l}, err
}

// ProgramsAt is what the switch program is told of a port: of FairQ's parameters what they come to there. The lab asks it,
// too, so that what is measured is what runs.
func ProgramsAt(p *fairqlaw.Params, site switchd.Site) (kernel.Law, error) {
	gain, err := gains.parse("gain", p.Gain)
	if err != nil {
		return kernel.Law{}, err
	}
	at := p.At(site.RTT, site.Rate, site.Buffer)
	l := kernel.Law{
		TargetBytes: at.Target, BufferBytes: at.Buffer, MTU: uint32(min(max(site.MTU, 576), 65535)), Tick: at.Tick, Period: at.Period,
		FloorBytes: at.Floor, CapBytes: at.Cap, Gain: gain, Active: at.Active, Idle: min(p.Idle.Std(), kernel.MaxActive),
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

// Figures are what the parameters come to.
func (p params) Figures() switchd.Figures {
	return switchd.Figures{Mode: p.Hold, Target: p.TargetBytes, Buffer: p.BufferBytes, Cap: p.CapBytes, Floor: p.FloorBytes, MTU: p.MTU}
}

// With gives the same law with another part of the flows held. Where a part is, the law's own limit gives way: it is for
// a queue at its target.
func (p params) With(h switchd.Enforcement) switchd.Params {
	p.Hold, p.HoldShare, p.PipeBytes = h.Mode, h.Share, max(1, saturated(h.BDP))
	if h.Mode == reading.HoldPart {
		p.CapBytes = max(p.CapBytes, saturated(h.BDP+float64(p.TargetBytes)))
	}
	return p
}

// Follows says whether p differs from was in no more than the length of the pipe, which follows what is measured.
func (p params) Follows(was switchd.Params) bool {
	a, b := was.(params).Law, p.Law
	a.PipeBytes, b.PipeBytes = 0, 0
	if a.Hold == reading.HoldPart && b.Hold == a.Hold {
		a.CapBytes, b.CapBytes = 0, 0
	}
	return a == b
}

// Differs says what is new.
func (p params) Differs(before switchd.Params) string {
	was := before.(params)
	if was.TargetBytes != p.TargetBytes || was.BufferBytes != p.BufferBytes {
		return fmt.Sprintf("target %v of %v", law.Bytes(p.TargetBytes), law.Bytes(p.BufferBytes))
	}
	if was.Hold != p.Hold || was.HoldShare != p.HoldShare {
		return "holds " + p.Hold.String()
	}
	return "its law changed"
}

func saturated(bytes float64) uint32 { return uint32(min(max(bytes, 0), 1<<32-1)) }
