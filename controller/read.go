package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"weir/law/fabric"
	"weir/law/forward"
	"weir/openflow"
	"weir/openflow/channel"
)

// becomeMaster asks for the role of MASTER, and handles a refusal.
func (c *Core) becomeMaster(ctx context.Context, s *session) error {
	generation, _ := c.fence.now()
	err := s.conn.SetRole(ctx, openflow.RoleMaster, generation)
	if errors.As(err, new(*channel.StaleError)) && c.fence.holds() {
		generation, _ = c.fence.now() // it has been raised
		err = s.conn.SetRole(ctx, openflow.RoleMaster, generation)
	}
	if why := new(channel.RefusedIDError); errors.As(err, &why) {
		c.fence.refused(s.id, why)
	}
	return err
}

// find becomes master of a switch and reads its flows, groups and meters. It reads them before, too: a switch that cannot join keeps the
// master that it has.
func (c *Core) find(ctx context.Context, s *session) (*fabric.Joined, error) {
	if _, err := c.read(ctx, s, false); err != nil {
		return nil, err
	}
	if err := c.becomeMaster(ctx, s); err != nil {
		return nil, fmt.Errorf("become master: %w", err)
	}
	return c.read(ctx, s, true) // another master may have changed it meanwhile
}

// read reads the ports, flows, groups and meters of a switch. As its master it also removes flows of other versions.
func (c *Core) read(ctx context.Context, s *session, master bool) (*fabric.Joined, error) {
	j := &fabric.Joined{Switch: s.id}
	if err := each[openflow.PortDescReply](ctx, &c.reading, s.conn, openflow.MultipartPortDesc, nil, func(p *openflow.Port) error {
		if fabric.Usable(fabric.PortNo(p.PortNo)) {
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
			return errors.Join(c.sort(s, f, &j.Found, master), most(flows, allFlowsMax, "flows"))
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

// Limits of the lists that a switch may send, so that an endless list ends.
const (
	allFlowsMax = 1 << 18 // including those of others
	bucketsMax  = 1 << 18
	metersMax   = int(fabric.MeterLast - fabric.MeterFirst + 1)
	lastTable   = 3 // of Weir's
)

func most(n, limit int, what string) error {
	if n > limit {
		return fmt.Errorf("more than %d %s", limit, what)
	}
	return nil
}

// sort adds a flow of Weir's to found. A foreign flow in one of Weir's tables could hide Weir's flows: then the switch is not
// managed. Flows with Weir's cookie that this version does not make are removed by the master.
func (c *Core) sort(s *session, stats *openflow.FlowStats, found *fabric.State, master bool) error {
	f, ours, ok := readFlow(stats)
	switch {
	case !ours && stats.TableID <= lastTable:
		return fmt.Errorf("a foreign flow is in a table that Weir uses (0 to %d): %s; remove it, or do not connect this switch",
			lastTable, foreign(stats))
	case !ours:
	case !ok && !master:
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

// each asks, and calls f with every entry of the answer as it is read, without storing it. f is called on the connection's
// reading goroutine, and not again after it has failed.
func each[T ~[]E, E any](ctx context.Context, reading *sync.Mutex, conn *channel.Conn, kind openflow.MultipartType, body openflow.MultipartBody, f func(*E) error) error {
	done := make(chan error, 1)
	ended := false
	err := conn.Poll(&openflow.MultipartRequest{Type: kind, Body: body}, func(part []byte, last bool, err error) {
		if ended {
			return
		}
		if err == nil {
			// One at a time: switches with endless answers use at most one processor.
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
