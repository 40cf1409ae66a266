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
	if a.Divisor == 0 {
		return fmt.Errorf("law trace: port %d, record %d: a window divided by 0", p.port, p.number)
	}
	name := fmt.Sprintf("ACK %d with window %d", a.Ack.Ack, a.Own)
	r.stopped(a.GrantQ8, uint32(a.Running))
	r.check(r.grant == a.GrantQ8, name+": the window that its data's port grants, in 1/256 byte", nil, a.GrantQ8, r.grant)
	r.grant = a.GrantQ8

	grant := a.LetGoQ8
	if a.Held != 0 {
		grant = a.GrantQ8
	}
	if a.Opens != 0 {
		r.count(countOpening, 1)
		grant = r.law.OpeningQ8(a.Openings)
	}
	window := grant / uint64(a.Divisor)
	free := window == 0
	if free {
		window = a.WouldQ8 / uint64(a.Divisor)
	}
	r.check(window != 0 == (a.Called != 0), name+": whether the law is asked", window, a.Called != 0, window != 0)
	left := a.Ack.Field // what it came with, in the scale that the receiver knows
	if window == 0 {
		r.count(countUngoverned, 1)
	} else {
		left = r.rewrite(name, &a, window, free)
	}
	r.check(left == a.Left, name+": the field that it leaves with", nil, a.Left, left)
	r.check(a.Left == a.Wire, name+": the field in the packet", nil, a.Wire, a.Left)
	return nil
}

// rewrite asks the native law what to write, and gives it.
func (r *replay) rewrite(name string, a *lawtraceLawAck, windowQ8 uint64, free bool) uint16 {
	r.Acks++
	r.Packets += uint64(a.Packets)
	r.count(countRewrite, 1)
	floor := r.law.Config().FloorBytes
	if floor == 0 {
		r.count(countFloor, 1)
		floor = native.WindowFloor(a.Mss, a.Gso)
	}
	r.check(floor == a.Ack.FloorBytes, fmt.Sprintf("%s: window_floor(%d, %d)", name, a.Mss, a.Gso), nil, a.Ack.FloorBytes, floor)
	ack := native.WindowAck{
		WindowQ8: windowQ8, FloorBytes: floor, CapBytes: a.Ack.CapBytes, Ack: a.Ack.Ack, Field: a.Ack.Field,
		Shift: a.Ack.Shift, SYN: a.Ack.Syn, Shrink: native.Shrink(a.Ack.Shrink),
	}
	edge := edgeOf(&a.Before)
	field := native.WindowRewrite(&ack, &edge)
	r.check(windowQ8 == a.Ack.WindowQ8 && field == a.Answer, name+": window_rewrite", ack, a.Answer, field)
	r.check(edge == edgeOf(&a.After), name+": the edge that is kept", edgeOf(&a.Before), edgeOf(&a.After), edge)
	if field == a.Ack.Field {
		r.count(countSmaller, 1)
	}
	if free {
		r.count(countFree, 1)
		return a.Ack.Field
	}
	return field
}

func edgeOf(e *lawtraceWindowEdge) native.WindowEdge {
	return native.WindowEdge{Right: e.Right, Known: e.Known}
}

func configOf(c *lawtraceFairqConfig) native.FairQConfig {
	return native.FairQConfig{
		TargetBytes: c.TargetBytes, BufferBytes: c.BufferBytes, TickNs: c.TickNs, PeriodNs: c.PeriodNs,
		FloorBytes: c.FloorBytes, CapBytes: c.CapBytes, MSSMaxBytes: c.MssMaxBytes,
		Gain: native.Gain(c.Gain), SlowStart: native.SlowStart(c.SlowStart), Variant: native.Variant(c.Variant),
	}
}

func stateOf(s *lawtraceFairqState) native.FairQState {
	return native.FairQState{
		AggregateQ8: s.AggregateQ8, WindowQ8: s.WindowQ8, UnderByteNs: s.UnderByteNs, OverByteNs: s.OverByteNs,
		LastSampleNs: s.LastSampleNs, BacklogSum: s.BacklogSum, Rest: s.Rest, RestNs: s.RestNs, ElapsedNs: s.ElapsedNs,
		Flows: s.Flows, MSSBytes: s.MssBytes, SlowStart: s.SlowStart, Next: s.Next, Backlogs: s.Backlogs,
	}
}
