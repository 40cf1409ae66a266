package controller

import (
	"context"
	"errors"

	"weir/law/fabric"
	"weir/law/forward"
	"weir/openflow"
	"weir/openflow/channel"
)

// carry carries out one action. A switch that cannot take it is cut off: when it connects again, it is
// compared whole.
func (c *Core) carry(a fabric.Action) {
	s := c.sessions[fabric.Target(a)]
	if s == nil {
		return // has just left
	}
	var err error
	switch a := a.(type) {
	case fabric.Barrier:
		err = c.barrier(s, a)
	case fabric.AskStats:
		err = c.askStats(s)
	case fabric.PacketOut:
		// One frame less is better than a switch that is cut off.
		if _, err := s.conn.Send(packetOut(a)); err != nil {
			c.counts.framesDropped.Add(1)
		}
	default:
		c.counts.changes.Add(1)
		_, err = s.conn.Send(message(a))
	}
	if err != nil && s.conn.Err() == nil {
		c.log.Error("cannot give a switch its orders: its connection is ended", "switch", s.id, "error", err)
		s.conn.Close()
	}
}

// message is the OpenFlow message of a change.
func message(a fabric.Action) openflow.Message {
	switch a := a.(type) {
	case fabric.SetFlow:
		return flowMod(a.Flow, openflow.FlowAdd)
	case fabric.DropFlow:
		return flowMod(a.Flow, openflow.FlowDeleteStrict)
	case fabric.SetGroup:
		if a.New {
			return groupMod(a.Group, openflow.GroupAdd)
		}
		return groupMod(a.Group, openflow.GroupModify)
	case fabric.DropGroup:
		return groupMod(fabric.Group{ID: a.ID}, openflow.GroupDelete)
	case fabric.SetMeter:
		return meterMod(a)
	}
	panic("an action without a message") // a law that this world does not know
}

// barrier asks for a confirmation. A switch that gives none in time is ended: nobody knows what it does.
func (c *Core) barrier(s *session, a fabric.Barrier) error {
	call, err := s.conn.Ask(&openflow.BarrierRequest{})
	if err != nil {
		return err
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), confirmTimeout)
		defer cancel()
		_, err := call.Wait(ctx)
		if err == nil {
			c.turns.must(s, fabric.Confirmed(a))
			return
		}
		if s.conn.Err() == nil {
			c.log.Error("a switch does not confirm its orders: its connection is ended", "switch", s.id, "error", err)
			s.conn.Close()
		}
	}()
	return nil
}

// askStats asks for all port counters.
func (c *Core) askStats(s *session) error {
	var ports []fabric.Counters
	var failed bool
	err := s.conn.Poll(&openflow.MultipartRequest{Type: openflow.MultipartPortStats, Body: openflow.PortStatsRequest{PortNo: openflow.PortAny}},
		func(body []byte, last bool, err error) {
			if err == nil {
				ports, err = counters(ports, body)
			}
			failed = failed || err != nil
			switch {
			case !last:
			case failed:
				c.tell(s, fabric.StatsFailed{Switch: s.id})
			default:
				c.tell(s, fabric.PortStats{Switch: s.id, Ports: ports})
			}
		})
	if errors.Is(err, channel.ErrOutstanding) || errors.Is(err, channel.ErrQueueFull) {
		c.later = append(c.later, event{s, fabric.StatsFailed{Switch: s.id}}) // the laws are in a step
		return nil
	}
	return err
}

// counters appends those of one part of an answer.
func counters(to []fabric.Counters, body []byte) ([]fabric.Counters, error) {
	it, err := openflow.IteratePortStats(body)
	if err != nil {
		return to, err
	}
	var p openflow.PortStats
	for it.Next(&p) {
		if p.PortNo > openflow.PortMax || len(to) == forward.PortsMax {
			continue
		}
		to = append(to, fabric.Counters{
			Port: fabric.Port(p.PortNo), RxPackets: p.RxPackets, TxPackets: p.TxPackets, RxBytes: p.RxBytes, TxBytes: p.TxBytes,
			RxDropped: p.RxDropped, TxDropped: p.TxDropped, RxErrors: p.RxErrors, TxErrors: p.TxErrors,
		})
	}
	return to, nil
}
