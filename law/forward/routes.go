package forward

import (
	"maps"
	"slices"

	"weir/law"
	"weir/law/fabric"
)

// route leads from every switch to one of them, over all shortest paths.
type route struct {
	to    law.Switch
	group uint32
	order []law.Switch                   // nearest first, beginning with the destination
	hops  map[law.Switch]int             // to the destination
	ports map[law.Switch][]fabric.PortNo // that lead nearer, sorted; some more than once (spread)
	next  map[law.Switch][]law.Switch
	done  bool // all switches have confirmed it
}

// findRoutes finds the routes to every switch that has hosts.
func (l *Law) findRoutes() {
	wanted := map[law.Switch]bool{}
	for _, h := range l.hosts {
		if d := l.switches[h.at.Switch]; d != nil && d.joined {
			wanted[h.at.Switch] = true
		}
	}
	for s := range l.routes {
		if !wanted[s] {
			delete(l.routes, s)
		}
	}
	changed := map[law.Switch]bool{}
	for _, s := range slices.Sorted(maps.Keys(wanted)) { // in order: two group numbers may collide
		id, r := l.groupID(s), l.findRoute(s)
		if l.sameRoute(l.routes[s], r) {
			continue
		}
		r.group, l.routes[s], changed[s] = id, r, true
	}
	for _, d := range l.switches {
		d.again = false
	}
	for m, h := range l.hosts {
		if changed[h.at.Switch] || l.routes[h.at.Switch] == nil {
			l.unplaced[m] = h
		}
	}
	l.waving, l.pinsWait, l.collect = true, true, true
	l.counts.Waves++
}

// sameRoute reports whether a route is unchanged and no switch on it has joined since. A foreign switch that comes and goes
// must not cost a search of all hosts.
func (l *Law) sameRoute(old, now *route) bool {
	if old == nil || !slices.Equal(old.order, now.order) {
		return false
	}
	for _, s := range now.order {
		if l.switches[s].again || !slices.Equal(old.ports[s], now.ports[s]) || !slices.Equal(old.next[s], now.next[s]) {
			return false
		}
	}
	return true
}

// findRoute goes through the switches in order of their distance from one of them.
func (l *Law) findRoute(to law.Switch) *route {
	r := &route{
		to: to, order: []law.Switch{to}, hops: map[law.Switch]int{to: 0},
		ports: map[law.Switch][]fabric.PortNo{}, next: map[law.Switch][]law.Switch{},
	}
	for i := 0; i < len(r.order); i++ {
		s := r.order[i]
		for _, p := range sorted(l.switches[s].ports) {
			if p.role != link {
				continue
			}
			from := p.heard.Switch
			hops, seen := r.hops[from]
			if !seen {
				hops = r.hops[s] + 1
				r.hops[from] = hops
				r.order = append(r.order, from)
			}
			if hops == r.hops[s]+1 {
				r.ports[from] = append(r.ports[from], p.heard.N)
				r.next[from] = append(r.next[from], s)
			}
		}
	}
	for s := range r.ports {
		slices.Sort(r.ports[s])
		r.ports[s] = spread(r.ports[s], r.hops[s])
	}
	return r
}

// spread makes every second switch on the way choose by other bits of a flow's hash than the switches before and after it.
// All switches hash alike. Without spread, all flows that arrive from one switch would get the same port. A switch takes the
// hash modulo a power of two and the buckets in turn, so a list of two ports twice each uses the second bit. The choice
// depends only on the distance. In a fabric with tiers that is the same for both directions of a flow.
func spread(ports []fabric.PortNo, hops int) []fabric.PortNo {
	if hops%2 == 0 || len(ports) == 1 || len(ports) > spreadMost {
		return ports
	}
	out := make([]fabric.PortNo, 0, len(ports)*len(ports))
	for _, p := range ports {
		out = append(out, slices.Repeat([]fabric.PortNo{p}, len(ports))...)
	}
	return out
}

// spreadMost ports make groups of 64 buckets, which Open vSwitch takes in turn as they are.
const spreadMost = 8

// links returns every link once, from its lower end.
func (l *Law) links() [][2]law.Port {
	var out [][2]law.Port
	for _, d := range sorted(l.switches) {
		if !d.joined {
			continue
		}
		for _, n := range slices.Sorted(maps.Keys(d.ports)) {
			a := law.Port{Switch: d.id, N: n}
			if p := d.ports[n]; p.role == link && a.Compare(p.heard) < 0 {
				out = append(out, [2]law.Port{a, p.heard})
			}
		}
	}
	return out
}
