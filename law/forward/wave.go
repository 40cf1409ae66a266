package forward

import (
	"maps"
	"slices"

	"weir/law"
	"weir/law/fabric"
)

// Routes change as a wave that begins at the destination. A switch gets its new group only after each switch that it would
// then send to has confirmed its own. So a changed switch sends only to changed switches that are nearer to the destination.
// An unchanged switch sends by the old routes, which are free of loops, until the frame meets a changed one.
//
// Proof: take the pair (wave, distance) of each switch along a frame's way. At each hop the wave rises, or it stays and the
// distance falls. So no frame loops, for any order in which the switches carry out their orders. That is true also when a new
// wave begins before the last one is complete.
//
// A switch without a way to the destination keeps its group, and so does one that left: its pair does not change.

// advance continues the waves as far as the confirmations allow.
func (l *Law) advance() {
	if !l.waving {
		return
	}
	l.waving = false
	for _, to := range slices.Sorted(maps.Keys(l.routes)) {
		r := l.routes[to]
		if !r.done {
			r.done = l.advanceRoute(r)
			l.waving = l.waving || !r.done
		}
	}
}

func (l *Law) advanceRoute(r *route) (whole bool) {
	done := map[law.Switch]bool{r.to: true}
	for _, s := range r.order[1:] {
		ready := !slices.ContainsFunc(r.next[s], func(n law.Switch) bool { return !done[n] })
		if !ready {
			continue
		}
		d := l.switches[s]
		g := d.groups[r.group]
		if g == nil || !slices.Equal(g.ports, r.ports[s]) {
			l.setGroup(d, r.group, r.ports[s])
			continue
		}
		done[s] = d.settled(g.serial)
	}
	return len(done) == len(r.order) && !slices.ContainsFunc(r.order, func(s law.Switch) bool { return !done[s] })
}

func (l *Law) setGroup(d *datapath, id uint32, ports []fabric.PortNo) {
	_, there := d.groups[id]
	d.groups[id] = &group{ports: slices.Clone(ports), serial: d.barrierNext()}
	l.order(d, fabric.SetGroup{Switch: d.id, New: !there, Group: fabric.Group{ID: id, Ports: ports}})
}

// dropGroups removes the groups that lead to no host. wanted maps the other group numbers to their switches.
func (l *Law) dropGroups(d *datapath, wanted map[uint32]law.Switch) {
	left := map[uint32]bool{}
	for id := range d.groups {
		if to, there := wanted[id]; !there || to == d.id {
			left[id] = true
		}
	}
	if len(left) == 0 {
		return
	}
	for _, f := range d.flows {
		delete(left, f.Do.Group)
	}
	for _, id := range slices.Sorted(maps.Keys(left)) {
		delete(d.groups, id)
		l.order(d, fabric.DropGroup{Switch: d.id, ID: id})
	}
}
