package forward

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"weir/law"
	"weir/law/fabric"
)

// A pin keeps both directions of a connection on one path. The path is part of the routes: each hop brings a frame nearer. So
// a connection that is pinned at only some switches still arrives. Before routes change, pins that are not part of the new
// routes are removed and confirmed.

type pin struct {
	tuple fabric.Tuple
	idle  uint16
	from  fabric.MAC
	to    fabric.MAC
	path  []hop // from the source's switch to the destination's; nil: none now
}

// hop is a switch on a path, with its ports away from it.
type hop struct {
	at            law.Switch
	forward, back fabric.PortNo
	silent        [2]bool // forward, back: the flow of this direction has expired here
}

// pinAsked records a pin. placePins installs it as soon as there is a path.
func (l *Law) pinAsked(e *fabric.PinAsked) {
	if l.CanPin(e) != nil {
		l.counts.PinsRefused++
		return
	}
	if t := e.Tuple; l.pins[t] == nil && l.pins[t.Reverse()] == nil {
		l.pins[t] = &pin{tuple: t, idle: e.IdleSeconds, from: l.owners[t.Src].mac, to: l.owners[t.Dst].mac}
		l.pinsWait = true
	}
}

// CanPin returns an error if the law refuses to pin a flow now. A flow that is pinned already is not refused.
func (l *Law) CanPin(e *fabric.PinAsked) error {
	t := e.Tuple
	from, to := l.hosts[l.owners[t.Src].mac], l.hosts[l.owners[t.Dst].mac]
	unknown := func(a fabric.IPv4) error {
		return fmt.Errorf("no host is known with %v: a host is known once it has sent: let it ping another, and ask again", a)
	}
	switch {
	case l.pins[t] != nil || l.pins[t.Reverse()] != nil:
		return nil
	case from == nil:
		return unknown(t.Src)
	case to == nil:
		return unknown(t.Dst)
	case from == to:
		return errors.New("both ends are one host")
	case t.Proto != 6 && t.Proto != 17:
		return fmt.Errorf("protocol %d: only TCP (6) and UDP (17) can be pinned", t.Proto)
	case e.IdleSeconds == 0:
		return errors.New("idle_seconds is 0: 1 or more")
	case len(l.pins) >= l.cfg.PinsMax:
		return fmt.Errorf("%d flows are pinned, as many as may be: drop one, or raise limits.pins", len(l.pins))
	}
	return nil
}

func (l *Law) pinDropped(t fabric.Tuple) {
	l.unpin(t)
}

// unpin ends a pin, named by either direction.
func (l *Law) unpin(t fabric.Tuple) {
	p := l.pins[t]
	if p == nil {
		p = l.pins[t.Reverse()]
	}
	if p != nil {
		l.takeOff(p)
		delete(l.pins, p.tuple)
	}
}

// expiredPin records that the flow of one direction has expired at a switch. The pin ends when both have at one switch. A direction
// without packets, as of a one-way flow, does not end it.
func (l *Law) expiredPin(at law.Switch, t fabric.Tuple) {
	p, side := l.pins[t], 0
	if p == nil {
		p, side = l.pins[t.Reverse()], 1
	}
	if p == nil {
		return
	}
	for i := range p.path {
		if h := &p.path[i]; h.at == at {
			h.silent[side] = true
			if h.silent == [2]bool{true, true} {
				l.unpin(t)
			}
			return
		}
	}
}

func (l *Law) unpinHost(h *host) {
	for _, p := range l.pinsInOrder() {
		if p.from == h.mac || p.to == h.mac {
			l.unpin(p.tuple)
		}
	}
}

func (l *Law) pinsInOrder() []*pin {
	out := make([]*pin, 0, len(l.pins))
	for _, p := range l.pins {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *pin) int { return compareTuples(a.tuple, b.tuple) })
	return out
}

// takeOff removes a pin's flows. Changes of routes wait until that is confirmed.
func (l *Law) takeOff(p *pin) {
	for _, h := range p.path {
		d := l.switches[h.at]
		if d == nil {
			continue
		}
		gone := l.dropFlow(d, pinned(p.tuple, 0, 0).FlowKey)
		gone = l.dropFlow(d, pinned(p.tuple.Reverse(), 0, 0).FlowKey) || gone
		if gone {
			l.unpinning[d.id] = d.barrierNext()
		}
	}
	p.path = nil
}

// checkPins removes pins that are not part of the routes, and reports whether the routes may change now.
func (l *Law) checkPins() bool {
	if l.waving {
		for _, p := range l.pinsInOrder() {
			if p.path != nil && !l.onRoute(p) {
				l.takeOff(p)
			}
		}
	}
	for id, serial := range l.unpinning {
		if d := l.switches[id]; d == nil || d.settled(serial) {
			delete(l.unpinning, id)
		}
	}
	return len(l.unpinning) == 0
}

// onRoute reports whether each hop of a pin is part of the routes of both directions.
func (l *Law) onRoute(p *pin) bool {
	from, to := l.hosts[p.from], l.hosts[p.to]
	there, back := l.routes[to.at.Switch], l.routes[from.at.Switch]
	if there == nil || back == nil {
		return false
	}
	last := len(p.path) - 1
	for i, h := range p.path {
		d := l.switches[h.at]
		if d == nil || !d.joined || !h.silent[0] && d.flows[pinned(p.tuple, 0, 0).FlowKey].Do.Out != h.forward ||
			!h.silent[1] && d.flows[pinned(p.tuple.Reverse(), 0, 0).FlowKey].Do.Out != h.back {
			return false
		}
		if i < last && !slices.Contains(there.ports[h.at], h.forward) || i > 0 && !slices.Contains(back.ports[h.at], h.back) {
			return false
		}
	}
	return true
}

// placePins installs pins while no route is changing.
func (l *Law) placePins() {
	if l.graphChanged || l.waving || !l.pinsWait { // routes that wait for a change may lead over links that are gone
		return
	}
	l.pinsWait = false
	for _, p := range l.pinsInOrder() {
		if p.path != nil {
			continue
		}
		from, to := l.hosts[p.from], l.hosts[p.to]
		if from == nil || to == nil {
			continue
		}
		p.path = l.findPath(p, from, to)
		for _, h := range p.path {
			d := l.switches[h.at]
			l.setFlow(d, pinned(p.tuple, h.forward, p.idle))
			l.setFlow(d, pinned(p.tuple.Reverse(), h.back, p.idle))
		}
	}
}

// findPath chooses one of the shortest paths by a hash of the flow; nil: no path.
func (l *Law) findPath(p *pin, from, to *host) []hop {
	r := l.routes[to.at.Switch]
	if r == nil {
		return nil
	}
	if _, reached := r.hops[from.at.Switch]; !reached {
		return nil
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(p.tuple.String()))
	choice := hash.Sum32()
	var path []hop
	back := from.at.N
	for s := from.at.Switch; s != r.to; {
		ports := r.ports[s]
		out := ports[choice%uint32(len(ports))]
		choice = choice*2654435761 + 1
		path = append(path, hop{at: s, forward: out, back: back})
		far := l.switches[s].ports[out].heard
		s, back = far.Switch, far.N
	}
	return append(path, hop{at: r.to, forward: to.at.N, back: back})
}
