package channel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"weir/openflow"
)

// addressOf returns the key of PerAddress: an IPv4 address, the /64 of an IPv6 address (one host has all of them), or the kind of
// network if it has no addresses.
func addressOf(nc net.Conn) string {
	t, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return nc.RemoteAddr().Network()
	}
	a, _ := netip.AddrFromSlice(t.IP)
	a = a.Unmap()
	if a.Is6() {
		p, _ := a.WithZone("").Prefix(64)
		return p.String()
	}
	return a.String()
}

// halfOpen is a connection in its handshake.
type halfOpen struct {
	cancel context.CancelFunc
	pushed bool // ended to make room for another address
}

// enter counts a new connection as half-open, or refuses it. If too many are half-open, the address with the most of them loses
// its oldest one, so that one address cannot keep others out.
func (s *Server) enter(address string, h *halfOpen) *CloseError {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted++
	switch {
	case s.total >= s.limits.Connections:
		return closed(CauseTooMany, "%d connections are open", s.total)
	case s.perAddress[address] >= s.limits.PerAddress:
		return closed(CauseTooMany, "%d connections of %s are open", s.perAddress[address], address)
	case s.half >= s.limits.HalfOpen && !s.pushOut(len(s.halfOpen[address])):
		return closed(CauseTooMany, "%d connections are in their handshake", s.half)
	}
	s.total++
	s.half++
	s.halfOpen[address] = append(s.halfOpen[address], h)
	s.perAddress[address]++
	return nil
}

// pushOut ends the oldest handshake of the address that has most of them, if it has more than `more`. The caller holds mu.
func (s *Server) pushOut(more int) bool {
	var address string
	for a, all := range s.halfOpen {
		if len(all) > more {
			address, more = a, len(all)
		}
	}
	all := s.halfOpen[address]
	if len(all) < 2 {
		return false
	}
	oldest := all[0]
	oldest.pushed = true
	oldest.cancel()
	s.notHalf(address, oldest)
	return true
}

// through ends a connection's time as half-open, and reports whether it was ended to make room.
func (s *Server) through(address string, h *halfOpen) (pushed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.pushed {
		s.notHalf(address, h)
	}
	return h.pushed
}

func (s *Server) notHalf(address string, h *halfOpen) {
	s.half--
	if rest := slices.DeleteFunc(s.halfOpen[address], func(o *halfOpen) bool { return o == h }); len(rest) > 0 {
		s.halfOpen[address] = rest
	} else {
		delete(s.halfOpen, address)
	}
}

func (s *Server) exit(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.perAddress[address]--; s.perAddress[address] == 0 {
		delete(s.perAddress, address)
	}
}

// claim takes the datapath id for this connection. Another connection keeps the id if its switch answers, so that nobody can
// replace a switch by using its id. If it does not answer, the same switch has connected again. If ctx, the time of this
// connection's handshake, ends during the probe, the other connection stays: this one's peer could choose that moment.
func (s *Server) claim(ctx context.Context, c *Conn) *CloseError {
	id := c.DatapathID()
	if c.features.AuxiliaryID != 0 {
		return closed(CauseNotAdmitted, "switch %s: auxiliary connection %d: not supported", hexID(id), c.features.AuxiliaryID)
	}
	for {
		s.mu.Lock()
		old := s.byID[id]
		if old == nil {
			s.byID[id] = c
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		if old.alive(ctx) {
			return closed(CauseDuplicate, "switch %s is connected from %s and answers", hexID(id), old.remote)
		}
		if ctx.Err() != nil {
			return closed(CauseHandshake, "the handshake ended before the earlier connection of switch %s could answer", hexID(id))
		}
		old.shut(closed(CauseReplaced, "the switch did not answer when %s connected with its datapath id", c.remote))
		select {
		case <-old.gone:
		case <-ctx.Done():
			return closed(CauseHandshake, "the earlier connection of switch %s has not ended in time", hexID(id))
		}
	}
}

// alive reports whether the switch answers within ProbeTimeout, or may have answered while this side was busy. False means nothing
// if ctx has ended.
func (c *Conn) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.srv.limits.ProbeTimeout)
	defer cancel()
	call := &Call{own: true, done: make(chan struct{})}
	if err := c.ask(&openflow.EchoRequest{}, call); err != nil {
		return errors.Is(err, ErrQueueFull) // the writer's deadline ends a switch that does not read
	}
	return call.wait(ctx) == nil || c.Err() == nil && !c.listens.Load()
}

// leave forgets a connection that was claimed.
func (s *Server) leave(c *Conn) {
	s.mu.Lock()
	if s.byID[c.DatapathID()] == c {
		delete(s.byID, c.DatapathID())
	}
	s.mu.Unlock()
	s.exit(addressOf(c.nc))
}

func (s *Server) tally(cause Cause) {
	s.mu.Lock()
	s.ended[cause]++
	s.mu.Unlock()
}

// Conn returns the connection to a switch, nil if there is none.
func (s *Server) Conn(id openflow.DatapathID) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// Conns returns all connections, by datapath id.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	all := make([]*Conn, 0, len(s.byID))
	for _, c := range s.byID {
		all = append(all, c)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *Conn) int {
		if a.DatapathID() < b.DatapathID() {
			return -1
		}
		return 1
	})
	return all
}

// ServerStats are a server's figures.
type ServerStats struct {
	Time        time.Time
	Connections int // now, half-open ones with them
	HalfOpen    int
	Switches    int              // after hello and features
	Accepted    uint64           // connections begun, including dialled ones
	Ended       map[Cause]uint64 // ended or refused connections by cause
}

// Stats returns the figures now.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := ServerStats{Time: time.Now(), Connections: s.total, HalfOpen: s.half, Switches: len(s.byID), Accepted: s.accepted,
		Ended: make(map[Cause]uint64)}
	for cause, n := range s.ended {
		if n > 0 {
			out.Ended[Cause(cause)] = n
		}
	}
	return out
}
