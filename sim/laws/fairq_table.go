//go:build cgo

package laws

import (
	"weir/datapath/native"
	"weir/law/fairq"
	"weir/sim/event"
)

// The table of a switch has the sizes of the kernel's (datapath/bpf/fairq/flows.h).
const (
	tableFlows   = 1 << 16 // connections whose ends have both answered
	tablePending = 1 << 14 // others: the oldest is forgotten for a new one
	// beat is the time between two sweeps over the table. A closed connection stays for closedSweeps: its last ACKs
	// are still on the way. A silent one stays for five minutes, and with unify for a day.
	beat          = 250 * event.Millisecond
	closedSweeps  = 2
	forgetSweeps  = uint32(5 * 60 * event.Second / beat)
	forgetUnified = uint32(24 * 3600 * event.Second / beat)
)

// connection is what a switch knows of one.
type connection struct {
	ends    [2]native.End        // who dialled, who accepted
	edges   [2]native.WindowEdge // that the ACKs of an end granted; kept with shrink: avoid
	owner   *fairQPort           // in whose share it is; nil: not in the table, or opened from elsewhere
	index   int32                // Packet.Conn
	slot    int32                // its own
	before  int32                // among those pending: slots; 0 is the list's beginning and end
	after   int32                // and among the free ones
	seen    uint32               // the sweep in which it was last seen
	entered bool                 // in the table, not pending
	reset   bool                 // not counted until data flows again
	assumes bool                 // its ACKs are held to a part of the window of their data's twin here (fairq_paths.go)
}

func (c *connection) closed() bool {
	return c.reset || c.ends[0].Flags&c.ends[1].Flags&native.EndFIN != 0
}

// fairQSwitch is what the ports of a switch have in common. Where the kernel hashes addresses, a connection has its
// number; each switch has a table of its own all the same, with what passed there and no more.
//
//	SYN                     a pending connection
//	SYN-ACK                 its other end. (count: handshake enters it in the table now, as the paper counts; count:
//	                        opening counts it among the open handshakes of its ports)
//	next ACK of either end  it comes into the table, and both directions are counted
//
// Nobody here begins before the law does, so no connection is adopted in mid-stream as in the kernel: one that is not
// known passes.
type fairQSwitch struct {
	queue      *event.Queue
	state      *native.Switch
	ports      []*fairQPort
	handshake  bool // count
	opens      bool // count: opening
	unify      bool
	unifyShift uint8
	shrink     native.Shrink
	paths      int        // equal ones
	divisor    uint16     // of the window that ACKs are held to whose data takes another
	edge       bool       // windows are told to an edge
	asksEach   bool       // core sees every ACK: its answer depends on more than the port's window
	idle       event.Time // count: handshake: a port without data for so long has no flows

	index   []int32 // slot by Packet.Conn; 0: none
	table   []connection
	lefts   [][2]left // edge mode: by slot
	free    int32
	pending int
	flows   int
	sweeps  uint32
	sweep   event.Event
	forget  uint32
	// Limits of table, pending connections, and of what one port may open.
	mostFlows, mostPending, share int
}

func newFairQSwitch(q *event.Queue, ports int, p *fairq.Params) *fairQSwitch {
	s := &fairQSwitch{
		queue: q, handshake: p.Count == "handshake", opens: p.Count == "opening", unify: p.Scale == "unify", unifyShift: uint8(p.UnifyShift),
		idle: event.Time(p.Idle), table: make([]connection, 1), forget: forgetSweeps,
		paths: p.Paths, divisor: 1, edge: p.Edge,
		mostFlows: tableFlows, mostPending: tablePending, share: max(tableFlows/8, tableFlows/ports),
	}
	count, edge := native.CountActive, native.EdgeConfig{}
	switch {
	case s.handshake:
		count = native.CountHandshake
	case s.opens:
		count = native.CountOpening
	}
	if p.Edge {
		edge = native.EdgeConfig{Interval: max(1, native.EdgeTimeOf(int64(p.EdgeInterval))), Lease: edgeLease, Change: edgeChange}
	}
	s.state = native.NewSwitch(ports, count, edge)
	if s.unify {
		s.forget = forgetUnified
	}
	if p.Paths > 1 && !p.Undivided {
		s.divisor = uint16(p.Paths)
	}
	if p.Shrink == "avoid" && !p.Edge { // what leaves here is not what the sender is granted: the edge keeps right edges
		s.shrink = native.ShrinkAvoid
	}
	s.asksEach = s.edge || s.shrink != native.ShrinkAllow
	s.sweep.Init(s)
	return s
}

// at gives a port by what core knows it by: its number and 1; nil: not known.
func (s *fairQSwitch) at(id uint16) *fairQPort {
	if id == 0 {
		return nil
	}
	return s.ports[id-1]
}

func (s *fairQSwitch) find(index int32) *connection {
	if uint32(index) < uint32(len(s.index)) {
		if slot := s.index[index]; slot != 0 {
			return &s.table[slot]
		}
	}
	return nil
}

// begin makes a pending connection. Pointers to others are not valid any more.
func (s *fairQSwitch) begin(index int32, now event.Time) *connection {
	if s.pending >= s.mostPending {
		s.remove(&s.table[s.table[0].after], now)
	}
	if index >= int32(len(s.index)) {
		s.index = append(s.index, make([]int32, int(index)+1-len(s.index))...)
	}
	slot := s.free
	if slot == 0 {
		slot = int32(len(s.table))
		s.table = append(s.table, connection{})
	}
	if s.edge {
		s.lefts = append(s.lefts, make([][2]left, len(s.table)-len(s.lefts))...)
		s.lefts[slot] = [2]left{}
	}
	c := &s.table[slot]
	s.free = c.after
	last := s.table[0].before
	*c = connection{index: index, slot: slot, before: last}
	s.table[last].after, s.table[0].before = slot, slot
	s.index[index] = slot
	s.pending++
	return c
}

// unlist takes a connection out of the pending ones.
func (s *fairQSwitch) unlist(c *connection) {
	s.table[c.before].after, s.table[c.after].before = c.after, c.before
	c.before, c.after = 0, 0
	s.pending--
}

// enter moves a pending connection to the table, and counts both of its directions. False: there is no room in it, or
// in the share of the port that it was opened from behind. q is the port by which the packet leaves that is the cause.
func (s *fairQSwitch) enter(c *connection, q *fairQPort, now event.Time) bool {
	owner := s.at(c.ends[1].Port) // what answers the opener leaves by it
	if s.flows >= s.mostFlows || owner != nil && owner.owned >= s.share {
		q.refused++
		return false
	}
	s.unlist(c)
	c.entered, c.owner, c.seen = true, owner, s.sweeps
	if owner != nil {
		owner.owned++
	}
	q.opened++
	if s.flows++; s.flows == 1 {
		s.queue.Set(&s.sweep, (now/beat+1)*beat)
	}
	start := s.state.Agreed(&c.ends, uint64(now))
	for i := range c.ends {
		if start>>i&1 != 0 {
			s.at(c.ends[i].Port).start(now)
		}
	}
	return true
}

// remove forgets a connection, pending or not.
func (s *fairQSwitch) remove(c *connection, now event.Time) {
	if c.entered {
		s.flows--
		if c.owner != nil {
			c.owner.owned--
		}
		s.state.Leaves(&c.ends[0], uint64(now))
		s.state.Leaves(&c.ends[1], uint64(now))
	} else {
		s.unlist(c)
		s.opened(c)
	}
	s.index[c.index] = 0
	slot := c.slot
	*c = connection{slot: slot, after: s.free}
	s.free = slot
}

// Happen is a sweep: connections that ended, or were silent for long, are forgotten.
func (s *fairQSwitch) Happen(_ *event.Event, now event.Time) {
	s.sweeps++
	for i := range s.table {
		c := &s.table[i]
		if unseen := s.sweeps - c.seen; c.entered && unseen >= closedSweeps && (c.closed() || unseen >= s.forget) {
			s.remove(c, now)
		}
	}
	if s.flows > 0 {
		s.queue.Set(&s.sweep, now+beat)
	}
}
