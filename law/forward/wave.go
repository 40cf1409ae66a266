package forward

import (
	"maps"
	"slices"

	"weir/law"
	"weir/law/fabric"
)

// Routes change as a wave that begins at the destination. A switch gets its new group only when each switch
// that it would then send to has confirmed that it has its own. So a switch that is new sends to switches
// that are new and nearer, down to the destination; one that is old sends as it did, in what was without
// loops, until the frame meets one that is new. Count (wave, distance) of the switches along a frame's way:
// at each hop the wave rises, or stays and the distance falls. So no frame goes round, whatever the order in
// which the switches carry out what they are told, also when a new wave begins before the last is through.
//
// A switch that has no way to the destination now keeps what it has. So does one that left: where it stands
// in the count does not change.

// advance takes the waves as far as what is confirmed allows.
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
	l.tell(d, fabric.SetGroup{Switch: d.id, New: !there, Group: fabric.Group{ID: id, Ports: ports}})
}

// dropGroups removes the groups that lead to no host any more. wanted are those that do, and to which switch.
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
		l.tell(d, fabric.DropGroup{Switch: d.id, ID: id})
	}
}
