package bus

import (
	"fmt"
	"time"

	"weir/bus/lease"
	"weir/bus/weirv1"
	"weir/law"
)

// Commands decides which commands a controller may send, and numbers them. It has no connection, and must not be used by two
// goroutines at a time. Commands must be sent in the order in which they were made.
type Commands struct {
	self     lease.Holder
	terms    []uint64 // by bucket; 0: another controller's
	sequence uint64
}

// NewCommands returns those of a controller that holds no bucket yet.
func NewCommands(self lease.Holder, buckets int) *Commands {
	return &Commands{self: self, terms: make([]uint64, buckets)}
}

// Set sets the term with which the controller holds a bucket; 0: it does not hold it.
func (c *Commands) Set(bucket int, term uint64) { c.terms[bucket] = term }

// Holds returns the term with which the controller may command an agent, and whether it may.
func (c *Commands) Holds(agent string) (term uint64, ok bool) {
	term = c.terms[lease.Bucket(agent, len(c.terms))]
	return term, term > 0
}

// Buckets returns how many buckets the controller holds, and the highest of their terms.
func (c *Commands) Buckets() (held int, term uint64) {
	for _, t := range c.terms {
		if t > 0 {
			held++
		}
		term = max(term, t)
	}
	return held, term
}

// Answer returns a command with grants. cause is the origin of the report that they answer.
func (c *Commands) Answer(agent string, cause *weirv1.Origin, grants []law.Grant) (*weirv1.Command, error) {
	term, ok := c.Holds(agent)
	if !ok {
		return nil, fmt.Errorf("command %s: %w", agent, ErrNotHeld)
	}
	m := c.Announce(lease.Bucket(agent, len(c.terms)), term)
	m.Incarnation, m.EchoNs = cause.GetIncarnation(), cause.GetStampNs()
	for _, g := range grants {
		m.Grants = append(m.Grants, weirv1.NewGrant(g))
	}
	return m, nil
}

// Announce returns a command without grants, which announces a term.
func (c *Commands) Announce(bucket int, term uint64) *weirv1.Command {
	c.sequence++
	return &weirv1.Command{Bucket: uint32(bucket), Term: term, Controller: controllerOf(c.self), Sequence: c.sequence}
}

// HeaderOf returns what a command says of itself, for an agent's fence.
func HeaderOf(c *weirv1.Command) *lease.Header {
	return &lease.Header{
		Bucket: c.GetBucket(), Term: c.GetTerm(), Holder: holderOf(c.GetController()), Sequence: c.GetSequence(),
		Announces: c.GetIncarnation() == 0 && len(c.GetGrants()) == 0, Incarnation: c.GetIncarnation(), Echo: time.Duration(c.GetEchoNs()),
	}
}
