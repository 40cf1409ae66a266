package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"weir/openflow"
)

// The messages by which a switch reports a change of roles.
const (
	typeRoleStatus       = openflow.Type(30) // of OpenFlow 1.4
	experimenterONF      = 0x4f4e4600
	experimenterRoleStat = 1911 // the same in 1.3: ONF extension 191, as Open vSwitch sends it
)

// older reports whether generation id a is below b. The difference is signed (specification 6.3.6).
func older(a, b uint64) bool { return int64(a-b) < 0 }

// SetRole asks the switch for a role and waits until it is confirmed. For MASTER and SLAVE it first puts the generation id into
// the [GenerationStore], which refuses an id below its own; EQUAL needs no id. Until the switch confirms MASTER, and during a
// request, no changes may be sent. A confirmation of another role or id ends the connection. If the switch calls the id stale,
// SetRole asks for the id that the switch knows and ends the connection: the error is a [RefusedIDError].
func (c *Conn) SetRole(ctx context.Context, role openflow.Role, generation uint64) error {
	if role != openflow.RoleMaster && role != openflow.RoleSlave && role != openflow.RoleEqual {
		return fmt.Errorf("%w: role %s cannot be asked for", ErrMessage, role)
	}
	select {
	case c.roleTurn <- struct{}{}:
		defer func() { <-c.roleTurn }()
	case <-ctx.Done():
		return fmt.Errorf("wait for another role request: %w", ctx.Err())
	case <-c.done:
		return c.Err()
	}
	if role != openflow.RoleEqual && c.srv.generations != nil {
		if err := c.srv.generations.Advance(generation); err != nil {
			return fmt.Errorf("store generation id %d before it is used: %w", generation, err)
		}
	}
	confirmed := make(chan error, 1)
	call := &Call{own: true, setsRole: true, each: func(body []byte, _ bool, err error) { confirmed <- c.confirm(role, generation, body, err) }}
	c.mu.Lock()
	c.master, c.role = false, openflow.RoleEqual
	if role != openflow.RoleEqual {
		c.generation, c.fenced = generation, true
	}
	err := c.askLocked(&openflow.RoleRequest{Role: role, GenerationID: generation}, call)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case err = <-confirmed:
	case <-ctx.Done():
		c.finish(call, nil, ctx.Err())
		err = <-confirmed // the switch may have been faster
	}
	if remote := new(RemoteError); errors.As(err, &remote) && isStale(remote.Message) {
		return c.refusedID(ctx, generation)
	}
	return err
}

// RefusedIDError reports that a switch calls a generation id stale. Known is the id that the switch reports, or Generation if it
// reported none. The switch may lie.
type RefusedIDError struct{ Generation, Known uint64 }

func (e *RefusedIDError) Error() string {
	return fmt.Sprintf("the switch calls generation id %d stale; it reports id %d", e.Generation, e.Known)
}

// refusedID asks the switch for the generation id that it knows, and ends the connection.
func (c *Conn) refusedID(ctx context.Context, generation uint64) error {
	ctx, cancel := context.WithTimeout(ctx, c.srv.limits.ProbeTimeout)
	defer cancel()
	why := &RefusedIDError{Generation: generation, Known: generation}
	call := &Call{own: true, done: make(chan struct{})}
	err := c.ask(&openflow.RoleRequest{Role: openflow.RoleNoChange}, call)
	if err == nil {
		if err = call.wait(ctx); err == nil {
			why.Known = call.reply.(*openflow.RoleReply).GenerationID
		}
	}
	c.shut(closed(CauseStale, "%w", why))
	return why
}

func isStale(m *openflow.ErrorMessage) bool {
	return m.ErrorType == openflow.ErrorRoleRequestFailed && m.Code == openflow.CodeRoleStale
}

// confirm handles the answer to SetRole, on the reading goroutine, so that no later message can come before it.
func (c *Conn) confirm(role openflow.Role, generation uint64, body []byte, err error) error {
	var m openflow.RoleReply
	if err == nil {
		err = m.DecodeBody(body)
	}
	if err != nil {
		return fmt.Errorf("ask for role %s: %w", role, err)
	}
	if m.Role != role || role != openflow.RoleEqual && m.GenerationID != generation {
		why := closed(CauseRoleForged, "asked for role %s with generation id %d, the switch confirmed %s with %d",
			role, generation, m.Role, m.GenerationID)
		c.shut(why)
		return why
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.role, c.master = role, role == openflow.RoleMaster
	return nil
}

// Master reports whether this controller is confirmed as MASTER, and returns the generation id.
func (c *Conn) Master() (generation uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation, c.master
}

// watchRole asks for this controller's role while it is MASTER: a switch that has another MASTER does not always report it.
func (c *Conn) watchRole() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.master {
		return
	}
	generation := c.generation
	call := &Call{own: true, each: func(body []byte, _ bool, err error) {
		var m openflow.RoleReply
		if err == nil && m.DecodeBody(body) == nil {
			c.heedRole(m.Role, m.GenerationID, generation)
		}
	}}
	_ = c.askLocked(&openflow.RoleRequest{Role: openflow.RoleNoChange}, call) // without room: at the next tick
}

// heedRole ends the connection if the switch reports another role than MASTER, or a higher generation id. asked is this
// controller's id when the question was sent.
func (c *Conn) heedRole(role openflow.Role, generation, asked uint64) {
	c.mu.Lock()
	ours, master, fenced := c.generation, c.master, c.fenced
	c.mu.Unlock()
	switch {
	case !fenced || ours != asked:
	case generation != noGeneration && older(ours, generation):
		c.shut(closed(CauseStale, "generation id %d is in use, this controller has %d", generation, ours))
	case master && role != openflow.RoleMaster:
		c.shut(closed(CauseRoleLost, "the switch gives this controller role %s; it was MASTER with generation id %d", role, ours))
	}
}

// noGeneration is the id that Open vSwitch reports while it has none.
const noGeneration = ^uint64(0)

// heedError ends the connection on errors that mean that another controller is MASTER. SetRole handles the error of its own
// question.
func (c *Conn) heedError(m *openflow.ErrorMessage, setsRole bool) {
	switch {
	case isStale(m) && setsRole:
	case isStale(m):
		c.mu.Lock()
		ours := c.generation
		c.mu.Unlock()
		c.shut(closed(CauseStale, "the switch calls generation id %d stale", ours))
	case m.ErrorType == openflow.ErrorBadRequest && m.Code == openflow.CodeIsSlave:
		c.shut(closed(CauseRoleLost, "the switch treats this controller as SLAVE"))
	}
}

// roleStatus reads a role status: role, reason, padding, generation id.
func (c *Conn) roleStatus(body []byte) error {
	const length = 16
	if len(body) < length {
		return errors.New("a role status is 16 bytes")
	}
	c.mu.Lock()
	ours := c.generation
	c.mu.Unlock()
	c.heedRole(openflow.Role(binary.BigEndian.Uint32(body)), binary.BigEndian.Uint64(body[8:]), ours)
	return nil
}

// onfRoleStatus reads an experimenter message if it is a role status.
func (c *Conn) onfRoleStatus(body []byte) {
	if len(body) >= 8 && binary.BigEndian.Uint32(body) == experimenterONF && binary.BigEndian.Uint32(body[4:]) == experimenterRoleStat {
		_ = c.roleStatus(body[8:]) // too short: it is the handler's
	}
}
