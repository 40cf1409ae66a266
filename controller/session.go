package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"weir/controller/fabric"
	"weir/controller/forward"
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
	id   fabric.Switch
	conn *channel.Conn
	box  mailbox // of turns

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
		if wait := c.patience.left(s.id, time.Now()); wait > 0 {
			t := time.NewTimer(wait)
			defer t.Stop()
			select {
			case <-t.C:
			case <-conn.Done():
				return
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
		defer cancel()
		joined, err := c.find(ctx, s)
		if err != nil {
			c.counts.notManaged.Add(1)
			c.log.Warn("switch cannot join", "switch", s.id, "error", err)
			conn.Close()
			c.Do(ctx, func() { c.refuse(s.id, err) })
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		c.turns.must(s, *joined)
		for _, e := range s.early {
			c.turns.must(s, e)
		}
		s.joined, s.early = true, nil
		select {
		case <-conn.Done(): // Down may have been here before
			c.turns.must(s, fabric.Left{Switch: s.id})
		default:
		}
	}()
}

// Down ends what the laws know of a connection.
func (c *Core) Down(conn *channel.Conn, err error) {
	s := c.sessionOf(conn)
	c.byConn.Delete(conn)
	c.counts.overRate.Add(conn.Stats().PacketInsDropped)
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
	c.turns.must(s, e)
}

// refuse remembers why a switch is not managed; of too many, some are forgotten.
func (c *Core) refuse(id fabric.Switch, why error) {
	for old := range c.refused {
		if len(c.refused) < refusedMax {
			break
		}
		delete(c.refused, old)
	}
	c.refused[id] = clip(why.Error())
}

// clip keeps a peer's text short.
func clip(s string) string {
	const most = 500
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
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
	at := fabric.Point{Switch: s.id, Port: fabric.Port(port)}
	if !c.turns.may(s, fabric.PacketIn{At: at, Kind: kind, Frame: in.Data}) {
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
		c.log.Error("a switch refused an order", "switch", s.id, "error", m.Error(), "xid", h.XID, "order", clip(fmt.Sprintf("%x", m.Data)))
		if forwards(m.Data) {
			wait := c.patience.refused(s.id, time.Now())
			c.log.Error("it does not forward as it should: its connection is ended, and it is told again", "switch", s.id, "after", wait)
			conn.Close()
		}
	}
}

// find becomes master of a switch and reads what it has.
func (c *Core) find(ctx context.Context, s *session) (*fabric.Joined, error) {
	j := &fabric.Joined{Switch: s.id}
	if err := s.conn.SetRole(ctx, openflow.RoleMaster, c.generation); err != nil {
		return nil, fmt.Errorf("become master: %w", err)
	}
	if err := each[openflow.PortDescReply](ctx, &c.reading, s.conn, openflow.MultipartPortDesc, nil, func(p *openflow.Port) error {
		if p.PortNo <= openflow.PortMax {
			j.Ports = append(j.Ports, readPort(p))
		}
		return most(len(j.Ports), forward.PortsMax, "ports")
	}); err != nil {
		return nil, fmt.Errorf("read ports: %w", err)
	}
	flows := 0
	if err := each[openflow.FlowStatsReply](ctx, &c.reading, s.conn, openflow.MultipartFlow,
		openflow.FlowStatsRequest{TableID: openflow.TableAll, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny},
		func(f *openflow.FlowStats) error {
			flows++
			return errors.Join(c.sort(s, f, &j.Found), most(flows, allFlowsMax, "flows"))
		}); err != nil {
		return nil, fmt.Errorf("read flows: %w", err)
	}
	buckets := 0
	if err := each[openflow.GroupDescReply](ctx, &c.reading, s.conn, openflow.MultipartGroupDesc, nil, func(g *openflow.GroupDesc) error {
		if fabric.OurGroup(uint32(g.GroupID)) {
			j.Found.Groups = append(j.Found.Groups, readGroup(g))
			buckets += 1 + len(g.Buckets)
		}
		return most(buckets, bucketsMax, "groups of Weir's, and ports in them")
	}); err != nil {
		return nil, fmt.Errorf("read groups: %w", err)
	}
	if err := each[openflow.MeterConfigReply](ctx, &c.reading, s.conn, openflow.MultipartMeterConfig,
		openflow.MeterConfigRequest{MeterID: openflow.MeterAll}, func(m *openflow.MeterConfig) error {
			if fabric.OurMeter(uint32(m.MeterID)) {
				j.Found.Meters = append(j.Found.Meters, readMeter(m))
			}
			return most(len(j.Found.Meters), metersMax, "meters of Weir's")
		}); err != nil {
		return nil, fmt.Errorf("read meters: %w", err)
	}
	return j, nil
}

// What a switch may have, however long it goes on telling.
const (
	allFlowsMax = 1 << 18 // others' with them
	bucketsMax  = 1 << 18
	metersMax   = int(fabric.MeterLast - fabric.MeterFirst + 1)
	lastTable   = 3 // of ours
)

func most(n, limit int, what string) error {
	if n > limit {
		return fmt.Errorf("more than %d %s", limit, what)
	}
	return nil
}

// sort keeps a flow of ours. Another's flow in one of our tables would be changed by ours, or hide them: with one
// there the switch is not managed. Flows with our cookie that this version would not make are removed.
func (c *Core) sort(s *session, stats *openflow.FlowStats, found *fabric.State) error {
	f, ours, ok := readFlow(stats)
	switch {
	case !ours && stats.TableID <= lastTable:
		return fmt.Errorf("a flow of somebody else is in a table that Weir uses (0 to %d): %s; remove it, or leave this switch alone",
			lastTable, foreign(stats))
	case !ours:
	case !ok:
		m := &openflow.FlowMod{
			Cookie: f.Kind.Cookie(), CookieMask: fabric.CookieMask, TableID: stats.TableID, Command: openflow.FlowDeleteStrict,
			Priority: stats.Priority, BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny, Match: stats.Match,
		}
		if _, err := s.conn.Send(m); err != nil {
			return fmt.Errorf("remove a flow of another version: %w", err)
		}
	default:
		found.Flows = append(found.Flows, f)
	}
	return most(len(found.Flows), c.flowsMax, "flows of Weir's")
}

// each asks, and hands on every entry of the answer as it is read: what is kept is what f keeps. f is called on the
// connection's reading goroutine, no more once it has failed.
func each[T ~[]E, E any](ctx context.Context, reading *sync.Mutex, conn *channel.Conn, kind openflow.MultipartType, body openflow.MultipartBody, f func(*E) error) error {
	done := make(chan error, 1)
	ended := false
	err := conn.Poll(&openflow.MultipartRequest{Type: kind, Body: body}, func(part []byte, last bool, err error) {
		if ended {
			return
		}
		if err == nil {
			// One at a time: switches that tell without end keep no more than one processor from the others.
			reading.Lock()
			err = eachOf[T](part, f)
			reading.Unlock()
		}
		if ended = last || err != nil; ended {
			done <- err
		}
	})
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func eachOf[T ~[]E, E any](part []byte, f func(*E) error) error {
	var m openflow.MultipartReply
	if err := m.DecodeBody(part); err != nil {
		return err
	}
	entries, ok := m.Body.(T)
	if !ok {
		return fmt.Errorf("the switch answers with %T", m.Body)
	}
	for i := range entries {
		if err := f(&entries[i]); err != nil {
			return err
		}
	}
	return nil
}
