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
	tablePending = 1 << 14 // other connections: the oldest is removed for a new one
	// sweepEvery is the time between two sweeps over the table. A closed connection stays for closedSweeps, because its
	// last ACKs are still on the way. A silent one stays for five minutes, and with unify for a day.
	sweepEvery    = 250 * event.Millisecond
	closedSweeps  = 2
	forgetSweeps  = uint32(5 * 60 * event.Second / sweepEvery)
	forgetUnified = uint32(24 * 3600 * event.Second / sweepEvery)
)

// connection is what a switch knows of one connection.
type connection struct {
	ends    [2]native.End        // dialler, acceptor
	edges   [2]native.WindowEdge // right edges that the ACKs of an end granted; kept with shrink: avoid
	owner   *fairQPort           // the port whose share it counts in; nil: not in the table, or opened from elsewhere
	index   int32                // Packet.Conn
	slot    int32                // its own place in the table
	before  int32                // previous pending connection; 0 is the list's beginning and end
	after   int32                // next pending connection, or next free place
	seen    uint32               // the sweep in which it was last seen
	entered bool                 // in the table, not pending
	reset   bool                 // not counted until data flows again
	assumes bool                 // a part of the window of its data's twin port here limits its ACKs (fairq_paths.go)
}

func (c *connection) closed() bool {
	return c.reset || c.ends[0].Flags&c.ends[1].Flags&native.EndFIN != 0
}

// fairQSwitch is the state that the ports of a switch share. The kernel hashes addresses; here a connection has a
// number. Still, each switch has a table of its own, with only what passed there.
//
//	SYN                     a pending connection
//	SYN-ACK                 its other end. (count: handshake enters it in the table now, as the paper counts; count:
//	                        opening counts it among the open handshakes of its ports)
//	next ACK of either end  it enters the table, and both directions are counted
//
// The law is there from the start, so the simulator adopts no connection in mid-stream, as the kernel does. An unknown
// connection passes unchanged.
type fairQSwitch struct {
	queue      *event.Queue
	state      *native.Switch
	ports      []*fairQPort
	handshake  bool // count
	opens      bool // count: opening
	unify      bool
	unifyShift uint8
	shrink     native.Shrink
	paths      int    // number of equal paths
	divisor    uint16 // divisor of the window for ACKs whose data takes another switch
	edge       bool   // windows are advertised to an edge
	credit     native.CreditMode
	asksEach   bool       // core sees every ACK: its answer depends on more than the port's window
	idle       event.Time // count: handshake: a port without data for this long has no flows

	index   []int32 // slot by Packet.Conn; 0: none
	table   []connection
	lefts   [][2]left // edge mode: by place in the table
	turns   []turns   // promises and credits: by place in the table
	free    int32
	pending int
	flows   int
	sweeps  uint32
	sweep   event.Event
	forget  uint32
	// Limits of the table, of pending connections, and of the connections that one port may open.
	mostFlows, mostPending, share int
}

func newFairQSwitch(q *event.Queue, ports int, p *fairq.Params) *fairQSwitch {
	s := &fairQSwitch{
		queue: q, handshake: p.Count == "handshake", opens: p.Count == "opening", unify: p.Scale == "unify", unifyShift: uint8(p.UnifyShift),
		idle: event.Time(p.Idle), table: make([]connection, 1), forget: forgetSweeps,
		paths: p.Paths, divisor: 1, edge: p.Edge, credit: creditMode(p),
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
	if p.Shrink == "avoid" && !p.Edge { // with an edge, the sender is granted another window than leaves here: the edge keeps right edges
		s.shrink = native.ShrinkAvoid
	}
	s.asksEach = s.edge || s.shrink != native.ShrinkAllow
	s.sweep.Init(s)
	return s
}

// at returns the port with core's number id, from 1, or nil if there is none.
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

// begin adds a pending connection. It invalidates pointers to other connections.
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
	if s.credit != 0 {
		s.turns = append(s.turns, make([]turns, len(s.table)-len(s.turns))...)
		s.turns[slot] = turns{}
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

// unlist removes a connection from the list of pending ones.
func (s *fairQSwitch) unlist(c *connection) {
	s.table[c.before].after, s.table[c.after].before = c.after, c.before
	c.before, c.after = 0, 0
	s.pending--
}

// enter moves a pending connection into the table, and counts both of its directions. It returns false if the table, or
// the share of the port from which it was opened, is full. q is the port by which the current packet leaves.
func (s *fairQSwitch) enter(c *connection, q *fairQPort, now event.Time) bool {
	owner := s.at(c.ends[1].Port) // answers to the opener leave by it
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
		s.queue.Set(&s.sweep, (now/sweepEvery+1)*sweepEvery)
	}
	start := s.state.Agreed(&c.ends, uint64(now))
	for i := range c.ends {
		if start>>i&1 != 0 {
			s.at(c.ends[i].Port).start(now)
		}
	}
	return true
}

// remove removes a connection, pending or not.
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

// Happen is a sweep. It removes connections that ended or were silent for long.
func (s *fairQSwitch) Happen(_ *event.Event, now event.Time) {
	s.sweeps++
	for i := range s.table {
		c := &s.table[i]
		if unseen := s.sweeps - c.seen; c.entered && unseen >= closedSweeps && (c.closed() || unseen >= s.forget) {
			s.remove(c, now)
		}
	}
	if s.flows > 0 {
		s.queue.Set(&s.sweep, now+sweepEvery)
	}
}
