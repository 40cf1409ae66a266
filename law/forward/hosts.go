package forward

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"weir/law"
	"weir/law/fabric"
)

// host is one end station.
type host struct {
	mac       fabric.MAC
	at        law.Port
	addresses []fabric.IPv4
	movedAt   time.Duration
}

// learn notes that a frame of m came in at a port. It gives the host, or nil where it is not to be learnt.
func (l *Law) learn(m fabric.MAC, at law.Port) *host {
	p := l.port(at)
	if p == nil || p.role != edge || m == (fabric.MAC{}) || m.Multicast() {
		return nil
	}
	h := l.hosts[m]
	if h != nil && h.at == at {
		return h
	}
	if len(l.hosts) >= l.cfg.HostsMax && h == nil || p.hosts >= l.cfg.HostsPerPort {
		l.counts.HostsRefused++
		return nil
	}
	if h == nil {
		h = &host{mac: m, movedAt: l.now - l.cfg.MoveHold}
		l.hosts[m] = h
		l.place(h, at)
		return h
	}
	if l.now-h.movedAt < l.cfg.MoveHold || l.held() {
		l.counts.MovesRefused++
		return nil
	}
	l.counts.Moves++
	h.movedAt = l.now
	l.rehome(h, at)
	return h
}

func (l *Law) place(h *host, at law.Port) {
	h.at = at
	l.unplaced[h.mac] = h
	if p := l.anyPort(at); p != nil {
		p.hosts++
	}
	if l.routes[at.Switch] == nil {
		l.graphChanged = true
	}
}

// anyPort is a port, also of a switch that left.
func (l *Law) anyPort(at law.Port) *port {
	if d := l.switches[at.Switch]; d != nil {
		return d.ports[at.N]
	}
	return nil
}

// recount notes which hosts the ports of a switch have, and drops those of ports that are gone.
func (l *Law) recount(d *datapath) {
	for _, h := range l.hostsInOrder() {
		if h.at.Switch != d.id {
			continue
		}
		if p := d.ports[h.at.N]; p != nil {
			p.hosts++
		} else {
			l.forget(h)
		}
	}
}

// lift takes a host off its place, and its flows off all switches.
func (l *Law) lift(h *host) {
	if p := l.anyPort(h.at); p != nil {
		p.hosts--
	}
	l.clear(h)
}

// clear takes the flows of a host off all switches. It is put on none before all have confirmed that: with
// old and new flows side by side, two switches could send its frames to each other.
func (l *Law) clear(h *host) {
	l.unpinHost(h)
	for _, d := range sorted(l.switches) {
		dropped := l.dropFlow(d, hostKey(h.mac))
		if d.id == h.at.Switch {
			dropped = l.dropFlow(d, fromHost(h.mac, h.at.N, 0).FlowKey) || dropped
		}
		if !dropped {
			continue
		}
		if l.clearing[h.mac] == nil {
			l.clearing[h.mac] = map[law.Switch]uint64{}
		}
		l.clearing[h.mac][d.id] = d.barrierNext()
	}
}

// cleared tells whether nothing of a host is on its way off a switch any more. A switch that has left meanwhile may still
// have its flow: so all routes have to lead around that one first.
func (l *Law) cleared(m fabric.MAC) bool {
	if len(l.clearing[m]) == 0 {
		return true
	}
	if l.graphChanged || l.waving {
		return false
	}
	for id, serial := range l.clearing[m] {
		if d := l.switches[id]; d != nil && !d.settled(serial) {
			return false
		}
	}
	delete(l.clearing, m)
	return true
}

// forget drops a host and all that is its own.
func (l *Law) forget(h *host) {
	l.lift(h)
	for _, a := range h.addresses {
		delete(l.owners, a)
	}
	delete(l.hosts, h.mac)
	delete(l.unplaced, h.mac)
	l.collect = true
	l.emptied(h.at.Switch)
}

// emptied sees to the routes to a switch that a host has left.
func (l *Law) emptied(s law.Switch) {
	for _, h := range l.hosts {
		if h.at.Switch == s {
			return
		}
	}
	l.graphChanged = true
}

// forgetAt drops the hosts of a port.
func (l *Law) forgetAt(at law.Port) {
	if p := l.anyPort(at); p == nil || p.hosts == 0 {
		return // a port that comes and goes must not cost a look at all hosts
	}
	for _, h := range l.hostsInOrder() {
		if h.at == at {
			l.forget(h)
		}
	}
}

// evict takes the hosts off a port that turned out to be one end of a link. A host whose switch was found with a flow to
// it belongs there. The others are forgotten: they are learnt again where they send.
func (l *Law) evict(at law.Port) {
	if p := l.anyPort(at); p == nil || !p.hasHosts() {
		return
	}
	for _, h := range l.hostsInOrder() {
		if h.at != at {
			continue
		}
		home, found := l.foundAt(h.mac)
		if !found {
			l.forget(h)
			continue
		}
		l.rehome(h, home)
	}
}

// rehome takes a host to another place.
func (l *Law) rehome(h *host, to law.Port) {
	old := h.at.Switch
	l.lift(h)
	l.place(h, to)
	l.emptied(old)
}

// foundAt is the port by which a joined switch sends to a host, by a flow that was found there and not used yet.
func (l *Law) foundAt(m fabric.MAC) (at law.Port, found bool) {
	for _, d := range sorted(l.switches) {
		f := d.flows[hostKey(m)]
		if d.joined && d.orphans[f.FlowKey] && f.Kind == fabric.HostHere && d.ports[f.Do.Out] != nil {
			return law.Port{Switch: d.id, N: f.Do.Out}, true
		}
	}
	return at, false
}

func (l *Law) hostsInOrder() []*host { return inOrder(l.hosts) }

func inOrder(hosts map[fabric.MAC]*host) []*host {
	out := slices.Collect(maps.Values(hosts))
	slices.SortFunc(out, func(a, b *host) int { return slices.Compare(a.mac[:], b.mac[:]) })
	return out
}

// owns notes an address of a host. One that another host had is the later one's.
func (l *Law) owns(h *host, a fabric.IPv4) {
	if a == (fabric.IPv4{}) || a[0] >= 224 || l.owners[a] == h.mac {
		return
	}
	if len(h.addresses) >= l.cfg.AddressesPerHost {
		l.counts.HostsRefused++
		return
	}
	if old := l.hosts[l.owners[a]]; old != nil {
		old.addresses = slices.DeleteFunc(old.addresses, func(b fabric.IPv4) bool { return a == b })
	}
	l.owners[a] = h.mac
	h.addresses = append(h.addresses, a)
}

// adoptHost takes a host over that a switch holds a flow to. False: it is somewhere else. A switch that this controller
// has not seen before is believed: what was learnt elsewhere may be a frame that came from it through switches that are
// not connected yet. A host that did move is learnt again where it sends.
func (l *Law) adoptHost(m fabric.MAC, at law.Port, first bool) bool {
	h := l.hosts[m]
	if h != nil && h.at != at && first && l.anyPort(at).hosts < l.cfg.HostsPerPort {
		l.rehome(h, at)
	}
	if h != nil {
		return h.at == at
	}
	if len(l.hosts) >= l.cfg.HostsMax || l.anyPort(at).hosts >= l.cfg.HostsPerPort {
		return false
	}
	h = &host{mac: m, movedAt: l.now - l.cfg.MoveHold}
	l.hosts[m] = h
	l.place(h, at)
	return true
}

// placeHosts gives every switch the flows of the hosts that it has a way to. A host whose flow would have
// to be changed, not only added, is cleared first.
func (l *Law) placeHosts() {
	for _, h := range inOrder(l.unplaced) {
		r := l.routes[h.at.Switch]
		switch {
		case r == nil: // its switch is away; a change of the graph brings it up again
			delete(l.unplaced, h.mac)
		case !l.cleared(h.mac):
		case l.conflicts(h):
			l.clear(h)
		case l.placeHost(h, r):
			delete(l.unplaced, h.mac)
		}
	}
}

// conflicts tells whether some switch holds another flow for a host than it should.
func (l *Law) conflicts(h *host) bool {
	for _, d := range l.switches {
		if f, there := d.flows[hostKey(h.mac)]; there && d.joined && f != l.hostFlow(h, d) {
			return true
		}
	}
	return false
}

func (l *Law) hostFlow(h *host, d *datapath) fabric.Flow {
	if d.id == h.at.Switch {
		return toHost(h.mac, h.at.N)
	}
	return toRemote(h.mac, l.groupID(h.at.Switch))
}

// placeHost adds what is missing, and tells whether nothing is.
func (l *Law) placeHost(h *host, r *route) (whole bool) {
	whole = true
	for _, id := range r.order {
		d := l.switches[id]
		if id == h.at.Switch {
			l.setFlow(d, fromHost(h.mac, h.at.N, l.cfg.HostIdle))
		} else if g := d.groups[l.groupID(h.at.Switch)]; g == nil || !slices.Equal(g.ports, r.ports[id]) {
			// A flow needs its group first, and as it is to be: an older one may lead by a switch that has left and still
			// sends this host's frames to where it was.
			whole = false
			continue
		}
		l.setFlow(d, l.hostFlow(h, d))
	}
	return whole
}

// groupID is the number of the group towards a switch, the same on every switch and in every life of the
// controller, unless two switches fall on one number.
func (l *Law) groupID(s law.Switch) uint32 {
	if r := l.routes[s]; r != nil && r.group != 0 {
		return r.group
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.String()))
	id := fabric.GroupBase | h.Sum32()&0xffffff
	for owner, taken := l.groupIDs[id]; taken && owner != s; owner, taken = l.groupIDs[id] {
		id = fabric.GroupBase | (id+1)&0xffffff
	}
	l.groupIDs[id] = s
	return id
}

// ageHosts forgets the hosts of switches that stay away. The switches themselves are not forgotten: they may
// still forward.
func (l *Law) ageHosts() {
	for _, d := range sorted(l.switches) {
		if d.joined || l.now-d.leftAt < time.Duration(l.cfg.HostIdle)*time.Second {
			continue
		}
		for _, h := range l.hostsInOrder() {
			if h.at.Switch == d.id {
				l.forget(h)
			}
		}
	}
}

// clean drops what no host needs any more. What was found on a switch is given time: its hosts may be on a
// switch that is not back yet.
func (l *Law) clean() {
	if !l.collect {
		return
	}
	l.collect = false
	wanted, with := map[uint32]law.Switch{}, map[law.Switch]bool{}
	for _, h := range l.hosts {
		with[h.at.Switch] = true
	}
	for _, s := range slices.Sorted(maps.Keys(with)) { // in order: two may fall on one group number
		wanted[l.groupID(s)] = s
	}
	for _, d := range sorted(l.switches) {
		switch {
		case !d.joined:
		case l.now-d.joinedAt < l.cfg.Adopt:
			l.collect = true
		default:
			l.dropOrphans(d)
			l.dropGroups(d, wanted)
		}
	}
}

func (l *Law) dropOrphans(d *datapath) {
	var left []fabric.Flow
	for k := range d.orphans {
		if l.hosts[k.Match.EthDst] == nil {
			left = append(left, d.flows[k])
		}
	}
	clear(d.orphans)
	slices.SortFunc(left, compareFlows)
	for _, f := range left {
		l.dropFlow(d, f.FlowKey)
	}
}
