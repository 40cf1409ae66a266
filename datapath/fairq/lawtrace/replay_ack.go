//go:build cgo

package lawtrace

import (
	"fmt"

	"weir/datapath/native"
)

// ack replays one acknowledgement: from the window that its data's port grants to the field that left.
func (r *replay) ack(p place) error {
	var a lawtraceLawAck
	if err := r.trace.decode(p, &a); err != nil {
		return err
	}
	r.begin(a.Count)
	r.configure(&a.Config)
	name := fmt.Sprintf("ACK %d with window %d", a.Ack, a.Own)
	ask := native.Ack{
		Ack: a.Ack, Bucket: a.Bucket, Field: a.Own, MSS: a.End.Mss, GSO: a.Gso, Shift: a.End.Shift, Announced: a.End.Announced, SYN: a.Syn,
		Shrink: native.Shrink(a.Shrink), Apart: a.Apart, Promise: uint32(a.Promise), Credit: uint32(a.Credit),
	}
	if a.End.Flags&native.EndUnified != 0 {
		ask.Unified = 1
	}
	if a.Live == 0 {
		ask.Gone = 1
	}
	before := endOf(&a.End)
	end, edge := before, edgeOf(&a.Before)
	var field native.Field
	if a.EdgeConfig.Interval != 0 && a.Syn == 0 {
		r.sw.SetEdge(native.EdgeConfig{Interval: native.EdgeTime(a.EdgeConfig.Interval), Lease: native.EdgeTime(a.EdgeConfig.Lease), Change: a.EdgeConfig.Change})
		field = r.sw.Advertise(r.id(), native.EdgeTime(a.Clock), a.Flagged != 0, a.Leaves != leftWritten, &ask, &end, &edge)
		if done := r.edge(name, &a, field); done {
			return nil
		}
	} else {
		field = r.sw.Window(r.id(), a.NowNs, &ask, &edge)
	}
	if a.Credit != 0 {
		grants := r.sw.GrantsQ8(r.id(), a.NowNs, &ask)
		r.check(KindCredit, grants == a.Granted.WindowQ8, name+": what promises and pacing grant", ask, a.Granted.WindowQ8, grants)
	}
	r.limits(&a, field)
	r.check(KindWindow, field.Governed() == (a.Granted.WindowQ8 != 0), name+": whether it is limited", ask, a.Granted.WindowQ8 != 0, field.Governed())
	if a.Called != 0 {
		floor := r.sw.Floor(r.id(), a.End.Mss, a.Gso)
		r.check(KindWindow, floor == a.Floor, fmt.Sprintf("%s: grant_floor(%d, %d)", name, a.End.Mss, a.Gso), nil, a.Floor, floor)
		r.check(KindWindow, field.Law() == a.Law, name+": what its window is limited to", ask, a.Law, field.Law())
	}
	r.check(KindWindow, edge == edgeOf(&a.After), name+": the edge that is kept", edgeOf(&a.Before), edgeOf(&a.After), edge)
	r.check(KindWindow, field.Left() == a.Left, name+": the field that it leaves with", ask, a.Left, field.Left())
	r.check(KindWindow, a.Left == a.Wire, name+": the field in the packet", nil, a.Wire, a.Left)
	if a.EdgeConfig.Interval != 0 && a.Syn == 0 {
		r.check(KindEdge, end == endOf(&a.EndAfter), name+": what is kept of what was advertised", before, endOf(&a.EndAfter), end)
	}
	return nil
}

// edge compares what edge mode decided about an ACK. done: there is no other decision.
func (r *replay) edge(name string, a *lawtraceLawAck, field native.Field) (done bool) {
	switch a.Leaves {
	case leftToEdge:
		r.count(countEdgeLeft, 1)
		r.check(KindEdge, field.LeftToEdge(), name+": whether it is left to the edge", endOf(&a.End), true, field.LeftToEdge())
		r.check(KindEdge, a.Left == a.Wire, name+": the field in the packet", nil, a.Wire, a.Left)
		return true
	case leftNot: // the next record decides
		r.check(KindEdge, !field.LeftToEdge(), name+": whether it is left to the edge", endOf(&a.End), false, field.LeftToEdge())
		return true
	}
	if a.Advertises != 0 {
		r.count(countEdgeAdvertised, 1)
	} else {
		r.count(countEdgeSilent, 1)
	}
	r.check(KindEdge, field.Advertises() == (a.Advertises != 0), name+": whether it advertises", endOf(&a.End), a.Advertises != 0, field.Advertises())
	return false
}

// limits counts the outcome of an ACK that is not left to the edge, and compares the group of its flow.
func (r *replay) limits(a *lawtraceLawAck, field native.Field) {
	port := r.sw.Port(r.id())
	if a.Granted.WindowQ8 == 0 && a.Granted.WouldQ8 == 0 {
		r.count(countUngoverned, 1)
		return
	}
	r.Acks++
	r.Packets += uint64(a.Packets)
	r.count(countRewrite, 1)
	if a.Granted.Opens != 0 {
		r.count(countOpening, 1)
	}
	if r.config.Law.FloorBytes == 0 {
		r.count(countFloor, 1)
	}
	if a.Granted.WindowQ8 == 0 {
		r.count(countFree, 1)
	}
	if field.Law() == field.Own() {
		r.count(countSmaller, 1)
	}
	if a.Called == 0 { // window_fits
		r.count(countFits, 1)
	}
	if port.Enforced == 0 || a.Bucket < port.Spared && a.Granted.WindowQ8 != 0 {
		r.count(countReleasing, 1)
	}
}

func endOf(e *lawtraceLawEnd) native.End {
	return native.End{
		EdgeAdvertised: e.EdgeAdvertised, EdgeAdvertisedAt: e.EdgeAdvertisedAt, UpstreamAt: e.UpstreamAt, Upstream: e.Upstream, MSS: e.Mss, Shift: e.Shift,
		Announced: e.Announced, Flags: e.Flags,
	}
}

func edgeOf(e *lawtraceWindowEdge) native.WindowEdge {
	return native.WindowEdge{Right: e.Right, Known: e.Known}
}

func portConfigOf(c *lawtracePortConfig) native.PortConfig {
	return native.PortConfig{
		Law: lawOf(&c.Law), EpochNs: uint64(c.EpochNs), IdleNs: uint64(c.IdleNs), MSSUnknown: c.MssUnknown, Releasing: c.Releasing,
		PipeBytes: c.PipeBytes, Mode: c.Mode, LimitedBuckets: c.LimitedBuckets, Divisor: c.Divisor, Credit: native.CreditMode(c.Credit),
	}
}

func lawOf(c *lawtraceFairqConfig) native.FairQConfig {
	return native.FairQConfig{
		TargetBytes: c.TargetBytes, BufferBytes: c.BufferBytes, TickNs: c.TickNs, PeriodNs: c.PeriodNs,
		FloorBytes: c.FloorBytes, CapBytes: c.CapBytes, StartBytes: c.StartBytes, MSSMaxBytes: c.MssMaxBytes,
		Gain: native.Gain(c.Gain), SlowStart: native.SlowStart(c.SlowStart), Variant: native.Variant(c.Variant),
	}
}
