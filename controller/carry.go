package controller

import (
	"context"
	"errors"
	"log/slog"
	"reflect"

	"weir/law"
	"weir/law/fabric"
	"weir/law/forward"
	"weir/openflow"
	"weir/openflow/channel"
)

// carry routes one action of a law. If a switch cannot take it, its connection is ended. When it connects again, all of its
// flows and groups are compared.
func (c *Core) carry(l *namedLaw, a law.Action) {
	from := l.name
	switch a := a.(type) {
	case *fabric.Report:
		c.report(a)
		return
	case law.Grant:
		if c.agents == nil {
			c.ignore(grants, from, a)
			return
		}
		c.agents.grant(l.owner, a)
		return
	}
	id, ok := fabric.Target(a)
	if !ok {
		c.ignore(unknown, from, a)
		return
	}
	c.counts.orders.Add(1)
	s := c.sessions[id]
	if s == nil {
		c.counts.actionsLate.Add(1) // the switch has just left
		return
	}
	var err error
	switch a := a.(type) {
	case fabric.Barrier:
		err = c.barrier(s, a)
	case fabric.AskStats:
		err = c.askStats(s)
	case fabric.PacketOut:
		// Losing one frame is better than ending the connection.
		if _, err := s.conn.Send(packetOut(a)); err != nil {
			c.counts.framesDropped.Add(1)
		}
	default:
		m := message(a)
		if m == nil {
			c.ignore(unknown, from, a)
			return
		}
		c.counts.changes.Add(1)
		_, err = s.conn.Send(m)
	}
	if err != nil && s.conn.Err() == nil {
		s.conn.Log(slog.LevelError, "cannot send an order to a switch: its connection is ended", "switch", s.id, "error", err)
		s.conn.Close()
	}
}

// message returns the OpenFlow message of a change; nil: none.
func message(a law.Action) openflow.Message {
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
	return nil
}

// report keeps the newest counters of a switch, for its status.
func (c *Core) report(r *fabric.Report) {
	s := c.sessions[r.Switch]
	if s == nil {
		c.counts.actionsLate.Add(1)
		return
	}
	s.ports = append(s.ports[:0], r.Ports...)
}

// reason is why an action of a law is not carried out.
type reason uint8

const (
	grants  reason = iota // there is no bus, so no agents
	unknown               // this controller has no route for the kind of action
)

// ignored identifies the actions of one kind of one law.
type ignored struct {
	why  reason
	law  string
	kind reflect.Type
}

// ignore counts an action that cannot be carried out, and logs the first of each kind.
func (c *Core) ignore(why reason, from string, a law.Action) {
	k := ignored{why, from, reflect.TypeOf(a)}
	if c.ignored[k]++; c.ignored[k] > 1 {
		return
	}
	if why == grants {
		c.log.Warn("a law grants windows or rates, and the controller's file has no bus: they are counted and have no effect; add the key bus, or remove the law from the file", "law", from)
		return
	}
	c.log.Error("a law has an action that this controller cannot carry out: such actions are counted and have no effect; add a route for this kind to controller/carry.go, or remove the law from the controller's file", "law", from, "kind", k.kind)
}

// barrier asks for a confirmation. If a switch does not confirm in time, its connection is ended, because its state is unknown.
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
			c.turns.must(s, &fabric.Confirmed{Switch: a.Switch, Serial: a.Serial})
			return
		}
		if s.conn.Err() == nil {
			s.conn.Log(slog.LevelError, "a switch does not confirm its orders: its connection is ended", "switch", s.id, "error", err)
			s.conn.Close()
		}
	}()
	return nil
}

// askStats asks for all port counters.
func (c *Core) askStats(s *session) error {
	stats := s.spare.Swap(nil)
	if stats == nil {
		stats = &fabric.PortStats{}
	}
	stats.Switch, stats.Ports = s.id, stats.Ports[:0]
	var failed bool
	err := s.conn.Poll(&openflow.MultipartRequest{Type: openflow.MultipartPortStats, Body: openflow.PortStatsRequest{PortNo: openflow.PortAny}},
		func(body []byte, last bool, err error) {
			if err == nil {
				stats.Ports, err = counters(stats.Ports, body)
			}
			failed = failed || err != nil
			switch {
			case !last:
			case failed:
				c.post(s, &fabric.StatsFailed{Switch: s.id})
			default:
				c.post(s, stats)
			}
		})
	if errors.Is(err, channel.ErrOutstanding) || errors.Is(err, channel.ErrQueueFull) {
		c.later = append(c.later, event{s, &fabric.StatsFailed{Switch: s.id}}) // a step of the laws is running
		return nil
	}
	return err
}

// counters appends the counters of one part of an answer.
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
			Port: fabric.PortNo(p.PortNo), RxPackets: p.RxPackets, TxPackets: p.TxPackets, RxBytes: p.RxBytes, TxBytes: p.TxBytes,
			RxDropped: p.RxDropped, TxDropped: p.TxDropped, RxErrors: p.RxErrors, TxErrors: p.TxErrors,
		})
	}
	return to, nil
}
