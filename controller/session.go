package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/openflow"
	"weir/openflow/channel"
)

const (
	joinTimeout    = 10 * time.Second // for reading role, ports and all flows
	refuseTimeout  = time.Second      // for the laws' goroutine to record why a switch cannot join
	confirmTimeout = 5 * time.Second  // for a switch to carry out its orders
	earlyMax       = 4096             // events that wait for the switch to join
	readings       = 3                // of a switch with more than earlyMax changes while it is read
)

// session is one connection to one switch.
type session struct {
	id   law.Switch
	conn *channel.Conn
	box  mailbox // of turns

	ports []fabric.Counters                // as last reported; used by the laws' goroutine
	spare atomic.Pointer[fabric.PortStats] // memory for the next answer with port counters

	mu      sync.Mutex
	joined  bool
	early   []law.Event // events since the reading began, before the switch joined
	dropped int         // events above earlyMax
}

// sessionOf finds the session of a connection; nil before Up.
func (c *Core) sessionOf(conn *channel.Conn) *session {
	if s, ok := c.byConn.Load(conn); ok {
		return s.(*session)
	}
	return nil
}

// Up starts to read the switch, so that it can join.
func (c *Core) Up(conn *channel.Conn) {
	s := &session{id: law.Switch(conn.DatapathID()), conn: conn}
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
		if err := c.join(ctx, s); err != nil {
			c.cannotJoin(s, err)
		}
	}()
}

// cannotJoin ends the connection of a switch that is not managed, and records the reason.
func (c *Core) cannotJoin(s *session, err error) {
	c.counts.notManaged.Add(1)
	s.conn.Log(slog.LevelWarn, "switch cannot join", "switch", s.id, "error", err)
	s.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), refuseTimeout) // the time for joining may be over
	defer cancel()
	c.Do(ctx, func() { c.refuse(s.id, err) })
}

// join reads the switch and passes its state to the laws. If the laws lacked an event, they would count on a port or a flow that
// no longer exists. So a switch that changed too much while it was read is read again.
func (c *Core) join(ctx context.Context, s *session) error {
	for range readings {
		s.mu.Lock()
		s.early, s.dropped = nil, 0 // the answers to later questions include all earlier changes
		s.mu.Unlock()
		joined, err := c.find(ctx, s)
		if err != nil {
			return err
		}
		if c.enter(s, joined) {
			return nil
		}
	}
	return fmt.Errorf("more than %d of its ports and flows changed while it was read, %d times in a row", earlyMax, readings)
}

// enter passes to the laws the state of a switch as it was read, and the events since then. False: some events were dropped.
func (c *Core) enter(s *session, joined *fabric.Joined) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped > 0 {
		s.conn.Log(slog.LevelWarn, "too many changes before the switch joined: it is read again", "switch", s.id, "kept", len(s.early), "dropped", s.dropped)
		return false
	}
	c.turns.must(s, joined)
	for _, e := range s.early {
		c.turns.must(s, e)
	}
	s.joined, s.early = true, nil
	select {
	case <-s.conn.Done(): // Down may have run before
		c.turns.must(s, &fabric.Left{Switch: s.id})
	default:
	}
	return true
}

// Down reports the end of a connection to the laws.
func (c *Core) Down(conn *channel.Conn, err error) {
	s := c.sessionOf(conn)
	c.byConn.Delete(conn)
	c.counts.overRate.Add(conn.Stats().PacketInsDropped)
	if s == nil {
		return
	}
	conn.Log(slog.LevelInfo, "switch left", "switch", s.id, "reason", err)
	c.post(s, &fabric.Left{Switch: s.id})
}

// post queues an event that must not be lost; before the switch has joined it waits.
func (c *Core) post(s *session, e law.Event) {
	s.mu.Lock()
	if !s.joined {
		if len(s.early) < earlyMax {
			s.early = append(s.early, e)
		} else {
			s.dropped++
			c.counts.eventsDropped.Add(1)
		}
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	c.turns.must(s, e)
}

// refuse records why a switch is not managed. If there are too many, it forgets some.
func (c *Core) refuse(id law.Switch, why error) {
	for old := range c.refused {
		if len(c.refused) < refusedMax {
			break
		}
		delete(c.refused, old)
	}
	c.refused[id] = clip(why.Error())
}

// clip shortens a peer's text.
func clip(s string) string {
	const most = 500
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// PacketIn queues a copy of a frame, or drops it if the switch has too many queued.
func (c *Core) PacketIn(conn *channel.Conn, in *openflow.PacketIn) {
	s := c.sessionOf(conn)
	kind, ours := fabric.KindOf(in.Cookie)
	port, ok := in.Match.InPort()
	if s == nil || !ours || !ok {
		return
	}
	c.counts.frames.Add(1)
	at := law.Port{Switch: s.id, N: fabric.PortNo(port)}
	if !c.turns.may(s, fabric.PacketIn{At: at, Kind: kind, Frame: in.Data}) {
		c.counts.framesDropped.Add(1)
	}
}

// Message handles all other unrequested messages of a switch.
func (c *Core) Message(conn *channel.Conn, h openflow.Header, m openflow.Message) {
	s := c.sessionOf(conn)
	if s == nil {
		return
	}
	switch m := m.(type) {
	case *openflow.PortStatus:
		if !fabric.Usable(fabric.PortNo(m.Desc.PortNo)) {
			return
		}
		c.post(s, &fabric.PortChanged{Switch: s.id, Port: readPort(&m.Desc), Gone: m.Reason == openflow.PortDelete})
	case *openflow.FlowRemoved:
		if _, ours := fabric.KindOf(m.Cookie); !ours || m.Reason != openflow.RemovedIdleTimeout {
			return
		}
		if of, ok := readMatch(m.Match); ok {
			c.post(s, &fabric.Expired{Switch: s.id, Flow: fabric.FlowKey{Table: uint8(m.TableID), Priority: m.Priority, Match: of}})
		}
	case *openflow.ErrorMessage:
		c.counts.ordersRefused.Add(1)
		conn.Log(slog.LevelError, "a switch refused an order", "switch", s.id, "error", m, "xid", h.XID) // m as text has the order
		if forwards(m.Data) {
			wait := c.patience.refused(s.id, time.Now())
			conn.Log(slog.LevelError, "the switch lacks a flow or group for forwarding: its connection is ended, and all orders are sent again after it has joined", "switch", s.id, "after", wait)
			conn.Close()
		}
	}
}
