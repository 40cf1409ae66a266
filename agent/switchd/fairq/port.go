package fairq

import (
	"fmt"
	"time"

	"weir/agent/switchd"
	kernel "weir/datapath/fairq"
	"weir/datapath/reading"
	"weir/law"
)

// params are FairQ's parameters at a port, as the programs take them.
type params struct{ kernel.Law }

// At gives the parameters of a port with these keys.
func (Law) At(site switchd.Site, keys any) (switchd.Params, error) {
	k, ok := keys.(*portKeys)
	if !ok {
		return nil, fmt.Errorf("fairq: keys are %T", keys)
	}
	gain, err := gains.parse("gain", k.Gain)
	if err != nil {
		return nil, err
	}
	bytesPerSecond := float64(site.Rate) / 8
	target := max(1, uint32(float64(site.Buffer)*k.TargetFraction))
	pipe := bytesPerSecond * site.RTT.Std().Seconds()
	drain := time.Duration(float64(target) / bytesPerSecond * float64(time.Second))
	return params{kernel.Law{
		TargetBytes: target, BufferBytes: uint32(site.Buffer), MTU: uint32(min(max(site.MTU, 576), 65535)),
		Tick: k.Interval.Std(), Period: k.Interval.Std() * time.Duration(k.Updates),
		FloorBytes: uint32(k.MinWindow), CapBytes: uint32(min(pipe+float64(target), 1<<32-1)), Gain: gain,
		Active: min(4*(site.RTT.Std()+drain), kernel.MaxActive), Paths: uint16(k.Paths),
	}}, nil
}

// Figures are what the parameters come to.
func (p params) Figures() switchd.Figures {
	return switchd.Figures{Hold: p.Hold, Target: p.TargetBytes, Buffer: p.BufferBytes, Cap: p.CapBytes, Floor: p.FloorBytes, MTU: p.MTU}
}

// With gives the same law with another part of the flows held. Where a part is, the law's own limit gives way: it is for
// a queue at its target.
func (p params) With(h switchd.Holding) switchd.Params {
	p.Hold, p.HoldShare, p.PipeBytes = h.Hold, h.Share, max(1, saturated(h.Pipe))
	if h.Hold == reading.HoldPart {
		p.CapBytes = max(p.CapBytes, saturated(h.Pipe+float64(p.TargetBytes)))
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
