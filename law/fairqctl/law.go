package fairqctl

import (
	"cmp"
	"container/list"
	"net/netip"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/law/inventory"
)

// Law is the SDN form of FairQ. Make one with New.
//
// A flow counts at the port by which its destination is reached: where the SYNs and SYN-ACKs of the destination itself enter the
// fabric. There is no backlog, so there is no integrator. The flows of a port share what keeps its line busy and its queue at the
// target: each has the window (alpha B + C RTT) / beta.
type Law struct {
	p       Params
	floor   uint64        // of a window, bytes: FQ-12
	renewal time.Duration // of grants
	now     time.Duration
	out     []law.Action

	tables
	waiting []*port       // whose windows change at their next update
	next    time.Duration // the first of these updates
	counts  Counts
	why     why
}

// Counts is what the law did.
type Counts struct {
	Opened    uint64 // connections
	Ended     uint64 // by FIN or RST
	Idle      uint64 // connections that no longer count, because no copy came for a time
	Evicted   uint64 // connections, because the table was full
	Unknown   uint64 // flows whose source is no known VM: they count and are not limited
	Nowhere   uint64 // flows whose destination has sent no SYN yet: they count as soon as it does
	TooMany   uint64 // ports above the limit
	Malformed uint64 // copies
	Granted   uint64
}

// why is the reason of the last grants.
type why struct {
	port    *port
	window  uint64
	renewed bool
}

// New returns the law. rtt is that of the network if the parameters have none; 0: not known.
func New(p Params, rtt law.Duration) (*Law, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	p.RTT = cmp.Or(p.RTT, rtt, defaultRTT)
	return &Law{p: p, floor: uint64(p.MSS) + 1, renewal: law.Renewal(time.Duration(p.Lease)), tables: newTables()}, nil
}

// Counts returns what the law did so far.
func (l *Law) Counts() Counts { return l.counts }

// Step takes one event.
func (l *Law) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	l.now, l.out = max(now, l.now), out
	switch e := e.(type) {
	case *fabric.PacketIn:
		l.copied(e)
	case *inventory.Switch:
		l.setSwitch(e)
	case *inventory.Host:
		l.setHost(e.At, e.VMs)
	case *inventory.HostLeft:
		l.setHost(e.At, nil)
	}
	l.expire()
	l.update()
	l.renew()
	out, l.out = l.out, nil
	return out
}

// Wake returns the time of the next update, renewal or end.
func (l *Law) Wake() time.Duration {
	next := time.Duration(0)
	at := func(t time.Duration) {
		if next == 0 || t < next {
			next = t
		}
	}
	if len(l.waiting) > 0 {
		at(l.next)
	}
	if pr := first[pair](l.granted); pr != nil {
		at(pr.at + l.renewal)
	}
	if pr := first[pair](l.unused); pr != nil {
		at(pr.at + time.Duration(l.p.Lease))
	}
	if c := first[connection](l.byAge); c != nil {
		at(c.heard + time.Duration(l.p.Idle))
	}
	return next
}

// copied counts with a copy of a segment. A retransmitted SYN-ACK or FIN does not count twice (FQ-9).
func (l *Law) copied(e *fabric.PacketIn) {
	if e.Kind != fabric.SYN && e.Kind != fabric.FIN && e.Kind != fabric.RST {
		return
	}
	t, flags, ok := fabric.ReadSegment(e.Frame)
	if !ok {
		l.counts.Malformed++
		return
	}
	from := netip.AddrPortFrom(netip.AddrFrom4(t.Src), t.SrcPort)
	to := netip.AddrPortFrom(netip.AddrFrom4(t.Dst), t.DstPort)
	switch {
	case flags&fabric.FlagRST != 0: // both directions: FQ-8
		l.end(from, to, true)
	case flags&fabric.FlagSYN != 0:
		l.place(from.Addr(), e.At)
		e, answer := ends{from, to}, flags&fabric.FlagACK != 0
		if answer {
			e = ends{to, from}
		}
		if l.agreed(e, answer) {
			l.begin(e)
		}
	case flags&fabric.FlagFIN != 0: // the direction of the sender's data: FQ-8
		l.end(from, to, false)
	}
}

// begin counts both directions of a connection, as Algorithm 1 does with a SYN-ACK.
func (l *Law) begin(e ends) {
	c := l.conns[e]
	if c == nil {
		c = l.open(e)
	}
	l.hear(c)
	for side, from := range [2]netip.Addr{e.opener.Addr(), e.answerer.Addr()} {
		if !c.counts[side] {
			c.counts[side] = true
			l.join(from, [2]netip.Addr{e.answerer.Addr(), e.opener.Addr()}[side])
		}
	}
}

// end ends the flow of one end of a connection, or of both.
func (l *Law) end(from, to netip.AddrPort, both bool) {
	side, c := 0, l.conns[ends{from, to}]
	if c == nil {
		side, c = 1, l.conns[ends{to, from}]
	}
	if c == nil {
		return
	}
	l.hear(c)
	l.stop(c, side)
	if both {
		l.stop(c, 1-side)
	}
	if c.counts == [2]bool{} {
		l.counts.Ended++
		l.remove(c)
	}
}

func (l *Law) hear(c *connection) {
	c.heard = l.now
	l.byAge.MoveToBack(c.age)
	c.of.conns.MoveToBack(c.turn)
}

// remove ends a connection.
func (l *Law) remove(c *connection) {
	l.stop(c, 0)
	l.stop(c, 1)
	l.byAge.Remove(c.age)
	l.close(c)
	delete(l.conns, c.ends)
}

// stop ends the flow of one side of a connection.
func (l *Law) stop(c *connection, side int) {
	if !c.counts[side] {
		return
	}
	c.counts[side] = false
	k := pairKey{c.opener.Addr(), c.answerer.Addr()}
	if side == 1 {
		k = pairKey{k.to, k.from}
	}
	l.leave(l.pairs[k])
}

// join counts a flow, and limits its pair at once. The other flows of the port follow with the port's next update.
func (l *Law) join(from, to netip.Addr) {
	pr := l.pairOf(from, to)
	pr.flows++
	st := pr.to
	st.flows++
	if pr.guest.VM == 0 {
		l.counts.Unknown++
	}
	if st.port == nil {
		l.counts.Nowhere++
		return
	}
	st.port.flows++
	l.change(st.port)
	l.limit(pr, false)
}

// leave ends a flow. A pair without flows keeps its grant until the lease ends. So the pair's next flow is limited from its first
// ACK on.
func (l *Law) leave(pr *pair) {
	pr.flows--
	pr.to.flows--
	if p := pr.to.port; p != nil {
		p.flows--
		l.change(p)
	}
	if pr.flows == 0 {
		pr.at = l.now
		l.queue(pr, l.unused)
	}
}

// windowOf is the window of each flow of a port, in bytes; 0: no limit.
func (l *Law) windowOf(p *port) uint64 {
	if p == nil || p.flows == 0 || p.rate == 0 || p.buffer == 0 {
		return 0
	}
	inFlight := l.p.TargetFraction*float64(p.buffer) + float64(p.rate)/8*l.p.RTT.Std().Seconds()
	return max(uint64(inFlight/float64(p.flows)), l.floor)
}

// differs reports whether a window is worth a message: by more than 2 %.
func differs(is, want uint64) bool {
	return max(is, want)-min(is, want) > is/50
}

// limit grants a pair the window of its port, if that differs from what it has, or again.
func (l *Law) limit(pr *pair, again bool) {
	window := l.windowOf(pr.to.port)
	if pr.guest.VM == 0 || window == 0 {
		pr.value = 0
		l.queue(pr, nil)
		return
	}
	if pr.in == l.granted && !again && !differs(pr.value, window) {
		return
	}
	pr.value, pr.at = window, l.now
	l.queue(pr, l.granted)
	l.counts.Granted++
	l.why = why{port: pr.to.port, window: window, renewed: again}
	l.out = append(l.out, law.Grant{
		Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: pr.guest.VM, Peer: pr.to.address}}, Value: window, Lease: time.Duration(l.p.Lease),
	})
}

// change has the windows of a port change at its next update.
func (l *Law) change(p *port) {
	if p.waits {
		return
	}
	if due := l.due(p); len(l.waiting) == 0 || due < l.next {
		l.next = due
	}
	p.waits = true
	l.waiting = append(l.waiting, p)
}

// due is the time of a port's next update.
func (l *Law) due(p *port) time.Duration {
	if !p.updated {
		return 0
	}
	return p.at + time.Duration(l.p.Update)
}

// update changes the windows of all flows of the ports whose time has come.
func (l *Law) update() {
	if l.next > l.now {
		return
	}
	left := l.waiting[:0]
	for _, p := range l.waiting {
		if due := l.due(p); due > l.now {
			if len(left) == 0 || due < l.next {
				l.next = due
			}
			left = append(left, p)
			continue
		}
		p.waits, p.updated, p.at = false, true, l.now
		for _, st := range p.stations {
			for _, pr := range st.pairs {
				if pr.flows > 0 {
					l.limit(pr, false)
				}
			}
		}
	}
	clear(l.waiting[len(left):])
	l.waiting = left
}

// renew grants again what would end, a little early, so that grants of a time are renewed together.
func (l *Law) renew() {
	if pr := first[pair](l.granted); pr == nil || pr.at+l.renewal > l.now {
		return
	}
	for {
		pr := first[pair](l.granted)
		if pr == nil || pr.at+l.renewal > l.now+l.renewal/8 {
			return
		}
		l.limit(pr, true)
	}
}

// expire forgets connections that were silent for too long, and pairs whose grant has ended.
func (l *Law) expire() {
	for c := first[connection](l.byAge); c != nil && c.heard+time.Duration(l.p.Idle) <= l.now; c = first[connection](l.byAge) {
		l.counts.Idle++
		l.remove(c)
	}
	for pr := first[pair](l.unused); pr != nil && pr.at+time.Duration(l.p.Lease) <= l.now; pr = first[pair](l.unused) {
		l.forget(pr)
	}
}

// queue moves a pair to the end of a list; nil: to none.
func (l *Law) queue(pr *pair, to *list.List) {
	if pr.in != nil {
		pr.in.Remove(pr.place)
	}
	if pr.in = to; to != nil {
		pr.place = to.PushBack(pr)
	}
}
