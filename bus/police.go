package bus

import (
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"weir/bus/pki"
)

// police looks at all connections again and again. It disconnects those that send too much, and those whose certificate is no
// longer valid: revoked, expired, or of a CA that is retired.
func (s *Server) police() {
	every := time.NewTicker(policeEvery)
	defer every.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case now := <-every.C:
			s.look(now, now.Sub(last), s.keys.Look())
			last = now
		}
	}
}

// look examines the connections. since is the time since the last look; changes counts how often our files changed. A certificate
// is verified again only after a change: that takes 0.1 ms or more, and there are thousands. NATS ends those that expire.
func (s *Server) look(now time.Time, since time.Duration, changes uint64) {
	list, err := s.nats.Connz(&server.ConnzOptions{Limit: MaxConnections})
	if err != nil {
		s.log.Error("cannot list the connections of the bus", "error", err)
		return
	}
	type verdict struct {
		cid    uint64
		id     pki.Identity
		reason string
		err    error
	}
	var out []verdict
	s.mu.Lock()
	sent := map[pki.Identity]traffic{} // limits are those of an identity, not of a connection
	for _, c := range list.Conns {
		if known := s.clients[c.Cid]; known != nil {
			sum := sent[known.id]
			sum.messages += c.InMsgs - known.sent.messages
			sum.bytes += c.InBytes - known.sent.bytes
			sent[known.id], known.sent = sum, traffic{c.InMsgs, c.InBytes}
		}
	}
	open := make(map[uint64]bool, len(list.Conns))
	for _, c := range list.Conns {
		open[c.Cid] = true
		known := s.clients[c.Cid]
		if known == nil {
			continue
		}
		if known.verified != changes+1 {
			if err := s.keys.Verify(known.leaf, clientRoles...); err != nil {
				out = append(out, verdict{c.Cid, known.id, "ended", err})
				continue
			}
			known.verified = changes + 1
		}
		if known.tooMuch(sent[known.id], since, s.maxMessages) {
			s.banned[known.id.String()] = now.Add(BanTime)
			out = append(out, verdict{c.Cid, known.id, "flood", fmt.Errorf("more than %d messages or %d bytes a second", s.maxMessages, MaxBytes)})
		}
	}
	for cid, c := range s.clients {
		if c.looked(open[cid]) {
			delete(s.clients, cid)
		}
	}
	for id, until := range s.banned {
		if now.After(until) {
			delete(s.banned, id)
		}
	}
	s.mu.Unlock()
	for _, v := range out {
		s.log.Warn("a connection is ended", "identity", v.id, "reason", v.reason, "error", v.err)
		s.counts.Add(v.reason)
		_ = s.nats.DisconnectClientByID(v.cid) // it may have ended itself
	}
}

// looked records whether a list of connections has this one. Reports whether it is gone for good: a new one may be missing.
func (c *client) looked(listed bool) (gone bool) {
	if listed {
		c.listed, c.missing = true, 0
	} else {
		c.missing++
	}
	return c.missing > 4
}

// isOpen reports whether it was open at the last look, or is new. One that came while the list was made is missing in it.
func (c *client) isOpen() bool { return c.missing == 0 || !c.listed }

// traffic is what was sent.
type traffic struct{ messages, bytes int64 }

// tooMuch reports whether the agent or worker sent too much twice in a row, on all of its connections together. Controllers are trusted:
// their number of commands follows from the number of agents. So are operators.
func (c *client) tooMuch(sent traffic, since time.Duration, limit uint64) bool {
	rate, byteRate := float64(sent.messages)/since.Seconds(), float64(sent.bytes)/since.Seconds()
	if c.id.Role != pki.Agent && c.id.Role != pki.Worker || rate <= float64(limit) && byteRate <= MaxBytes {
		c.over = 0
		return false
	}
	c.over++
	return c.over >= 2
}
