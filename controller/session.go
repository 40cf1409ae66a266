package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/controller/fabric"
	"weir/openflow"
	"weir/openflow/channel"
)

const (
	joinTimeout    = 10 * time.Second // for role, ports and all flows to be read
	confirmTimeout = 5 * time.Second  // for a switch to carry out what it was told
	earlyMax       = 4096             // port changes that wait for the switch to join
)

// session is one connection to one switch.
type session struct {
	id      fabric.Switch
	conn    *channel.Conn
	waiting atomic.Int64 // frames queued for the laws

	mu     sync.Mutex
	joined bool
	early  []fabric.Event // that came before
}

// sessionOf finds the session of a connection; nil before Up.
func (c *Core) sessionOf(conn *channel.Conn) *session {
	if s, ok := c.byConn.Load(conn); ok {
		return s.(*session)
	}
	return nil
}

// Up asks for everything that has to be known before the switch can join.
func (c *Core) Up(conn *channel.Conn) {
	s := &session{id: fabric.Switch(conn.DatapathID()), conn: conn}
	c.byConn.Store(conn, s)
	go func() { // a handler must not wait for answers
		ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
		defer cancel()
		joined, err := c.find(ctx, s)
		if err != nil {
			c.counts.notManaged.Add(1)
			c.log.Warn("switch cannot join", "switch", s.id, "error", err)
			conn.Close()
			c.Do(ctx, func() { c.refused[s.id] = err.Error() })
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		c.queue(event{s, joined})
		for _, e := range s.early {
			c.queue(event{s, e})
		}
		s.joined, s.early = true, nil
		select {
		case <-conn.Done(): // Down may have been here before
			c.queue(event{s, fabric.Left{Switch: s.id}})
		default:
		}
	}()
}

// Down ends what the laws know of a connection.
func (c *Core) Down(conn *channel.Conn, err error) {
	s := c.sessionOf(conn)
	c.byConn.Delete(conn)
	if s == nil {
		return
	}
	c.log.Info("switch left", "switch", s.id, "reason", err)
	c.tell(s, fabric.Left{Switch: s.id})
}

// tell queues an event that must not be lost; before the switch has joined it waits.
func (c *Core) tell(s *session, e fabric.Event) {
	s.mu.Lock()
	if !s.joined {
		if len(s.early) < earlyMax {
			s.early = append(s.early, e)
		}
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	c.queue(event{s, e})
}

// queue hands an event to the laws; who sends faster than they work waits.
func (c *Core) queue(e event) {
	select {
	case c.urgent <- e:
	case <-c.ended:
	}
}

// PacketIn queues a copy of a frame; over the switch's share it is dropped.
func (c *Core) PacketIn(conn *channel.Conn, in *openflow.PacketIn) {
	s := c.sessionOf(conn)
	kind, ours := fabric.KindOf(in.Cookie)
	port, ok := in.Match.InPort()
	if s == nil || !ours || !ok {
		return
	}
	c.counts.frames.Add(1)
	if s.waiting.Add(1) > perSwitch {
		s.waiting.Add(-1)
		c.counts.framesDropped.Add(1)
		return
	}
	e := event{s, fabric.PacketIn{At: fabric.Point{Switch: s.id, Port: fabric.Port(port)}, Kind: kind, Frame: slices.Clone(in.Data)}}
	to := c.frames
	if kind == fabric.Probe { // metered by the switch; links must not go because frames flood
		to = c.probes
	}
	select {
	case to <- e:
	default:
		s.waiting.Add(-1)
		c.counts.framesDropped.Add(1)
	}
}

// Message takes what else a switch sends by itself.
func (c *Core) Message(conn *channel.Conn, h openflow.Header, m openflow.Message) {
	s := c.sessionOf(conn)
	if s == nil {
		return
	}
	switch m := m.(type) {
	case *openflow.PortStatus:
		if m.Desc.PortNo > openflow.PortMax {
			return // the bridge's own port
		}
		c.tell(s, fabric.PortChanged{Switch: s.id, Port: readPort(&m.Desc), Gone: m.Reason == openflow.PortDelete})
	case *openflow.FlowRemoved:
		if _, ours := fabric.KindOf(m.Cookie); !ours || m.Reason != openflow.RemovedIdleTimeout {
			return
		}
		if of, ok := readMatch(m.Match); ok {
			c.tell(s, fabric.Expired{Switch: s.id, Flow: fabric.FlowKey{Table: uint8(m.TableID), Priority: m.Priority, Match: of}})
		}
	case *openflow.ErrorMessage:
		c.counts.ordersRefused.Add(1)
		c.log.Error("a switch refused an order", "switch", s.id, "error", m.Error(), "xid", h.XID, "order", fmt.Sprintf("%x", m.Data))
	}
}

// find becomes master of a switch and reads what it has.
func (c *Core) find(ctx context.Context, s *session) (fabric.Joined, error) {
	j := fabric.Joined{Switch: s.id}
	if err := s.conn.SetRole(ctx, openflow.RoleMaster, c.generation); err != nil {
		return j, fmt.Errorf("become master: %w", err)
	}
	ports, err := multipart[openflow.PortDescReply](ctx, s.conn, openflow.MultipartPortDesc, nil)
	if err != nil {
		return j, fmt.Errorf("read ports: %w", err)
	}
	for i := range ports {
		if ports[i].PortNo <= openflow.PortMax {
			j.Ports = append(j.Ports, readPort(&ports[i]))
		}
	}
	flows, err := multipart[openflow.FlowStatsReply](ctx, s.conn, openflow.MultipartFlow,
		openflow.FlowStatsRequest{TableID: openflow.TableAll, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny})
	if err != nil {
		return j, fmt.Errorf("read flows: %w", err)
	}
	if err := c.sort(s, flows, &j.Found); err != nil {
		return j, err
	}
	groups, err := multipart[openflow.GroupDescReply](ctx, s.conn, openflow.MultipartGroupDesc, nil)
	if err != nil {
		return j, fmt.Errorf("read groups: %w", err)
	}
	for i := range groups {
		if fabric.OurGroup(uint32(groups[i].GroupID)) {
			j.Found.Groups = append(j.Found.Groups, readGroup(&groups[i]))
		}
	}
	meters, err := multipart[openflow.MeterConfigReply](ctx, s.conn, openflow.MultipartMeterConfig,
		openflow.MeterConfigRequest{MeterID: openflow.MeterAll})
	if err != nil {
		return j, fmt.Errorf("read meters: %w", err)
	}
	for i := range meters {
		if fabric.OurMeter(uint32(meters[i].MeterID)) {
			j.Found.Meters = append(j.Found.Meters, readMeter(&meters[i]))
		}
	}
	return j, nil
}

const lastTable = 3 // of ours

// sort keeps our flows. Another's flow in one of our tables would be changed by ours, or hide them: with one
// there the switch is not managed. Flows with our cookie that this version would not make are removed.
func (c *Core) sort(s *session, flows []openflow.FlowStats, found *fabric.State) error {
	for i := range flows {
		f, ours, ok := readFlow(&flows[i])
		switch {
		case !ours && flows[i].TableID <= lastTable:
			return fmt.Errorf("a flow of somebody else is in a table that Weir uses (0 to %d): %s; remove it, or leave this switch alone",
				lastTable, foreign(&flows[i]))
		case !ours:
		case !ok:
			m := &openflow.FlowMod{
				Cookie: f.Kind.Cookie(), CookieMask: fabric.CookieMask, TableID: flows[i].TableID, Command: openflow.FlowDeleteStrict,
				Priority: flows[i].Priority, BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny, Match: flows[i].Match,
			}
			if _, err := s.conn.Send(m); err != nil {
				return fmt.Errorf("remove a flow of another version: %w", err)
			}
		default:
			found.Flows = append(found.Flows, f)
		}
	}
	return nil
}

// multipart asks, and joins the parts of the answer.
func multipart[T ~[]E, E any](ctx context.Context, conn *channel.Conn, kind openflow.MultipartType, body openflow.MultipartBody) (out []E, err error) {
	parts, err := conn.Multipart(ctx, &openflow.MultipartRequest{Type: kind, Body: body})
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		b, ok := p.Body.(T)
		if !ok {
			return nil, fmt.Errorf("the switch answers %v with %T", kind, p.Body)
		}
		out = append(out, b...)
	}
	return out, nil
}
