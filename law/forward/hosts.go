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

// owner is the host that has an address.
type owner struct {
	mac fabric.MAC
	arp bool // the host named the address in ARP; false: it sent a packet from it
}

// learn records that a frame from m came in at a port. It returns the host, or nil if the law does not learn it.
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
	if l.now-h.movedAt < l.cfg.MoveHold || l.findingLinks() {
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

// anyPort returns a port, also of a switch that left.
func (l *Law) anyPort(at law.Port) *port {
	if d := l.switches[at.Switch]; d != nil {
		return d.ports[at.N]
	}
	return nil
}

// recount updates the number of hosts of a switch's ports, and drops the hosts of removed ports.
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

// lift removes a host from its port, and its flows from all switches.
func (l *Law) lift(h *host) {
	if p := l.anyPort(h.at); p != nil {
		p.hosts--
	}
	l.clear(h)
}

// clear removes the flows of a host from all switches. No new flow is added before all have confirmed that: with old and
// new flows at once, two switches could send its frames to each other.
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

// cleared reports whether all switches have confirmed that the flows of a host are removed. A switch that has left since then
// may still have its flow, so all routes must avoid that switch first.
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

// forget drops a host with its flows and addresses.
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

// emptied updates the routes to a switch that a host has left.
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
		return // a port that comes and goes must not cost a search of all hosts
	}
	for _, h := range l.hostsInOrder() {
		if h.at == at {
			l.forget(h)
		}
	}
}

// evict removes the hosts of a port that turned out to be one end of a link. A host moves to the switch that was found with a
// flow to one of its own ports. The others are forgotten, and learnt again where they send.
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

// rehome moves a host to another port.
func (l *Law) rehome(h *host, to law.Port) {
	old := h.at.Switch
	l.lift(h)
	l.place(h, to)
	l.emptied(old)
}

// foundAt returns the port by which a joined switch sends to a host, by a flow that was found there and is not used yet.
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

// owns records an address of a host. ARP moves an address from any other host. A packet gives its sender an address only while no
// host has it: anybody can send a packet with any source.
func (l *Law) owns(h *host, a fabric.IPv4, arp bool) {
	old, known := l.owners[a]
	if a == (fabric.IPv4{}) || a[0] >= 224 || known && (!arp || old == owner{h.mac, true}) {
		return
	}
	if old.mac != h.mac {
		if len(h.addresses) >= l.cfg.AddressesPerHost && (!arp || !l.dropSource(h)) {
			l.counts.HostsRefused++
			return
		}
		if from := l.hosts[old.mac]; from != nil {
			from.addresses = slices.DeleteFunc(from.addresses, func(b fabric.IPv4) bool { return a == b })
		}
		h.addresses = append(h.addresses, a)
	}
	l.owners[a] = owner{h.mac, arp}
}

// dropSource removes an address of a host that it did not name in ARP; false: it has none.
func (l *Law) dropSource(h *host) bool {
	at := slices.IndexFunc(h.addresses, func(a fabric.IPv4) bool { return !l.owners[a].arp })
	if at < 0 {
		return false
	}
	delete(l.owners, h.addresses[at])
	h.addresses = slices.Delete(h.addresses, at, at+1)
	return true
}

// adoptHost adopts a host that a switch has a flow to. False: the host is at another port. The first flows of a switch that
// this controller has not seen before override what it learnt elsewhere. That may come from a frame that passed switches
// which are not connected yet. A host that did move is learnt again where it sends.
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

// placeHosts adds the flows of hosts to every switch that has a route to them. A host whose flow must be changed, not only
// added, is cleared first.
func (l *Law) placeHosts() {
	for _, h := range inOrder(l.unplaced) {
		r := l.routes[h.at.Switch]
		switch {
		case r == nil: // its switch is disconnected; a change of the graph tries again
			delete(l.unplaced, h.mac)
		case !l.cleared(h.mac):
		case l.conflicts(h):
			l.clear(h)
		case l.placeHost(h, r):
			delete(l.unplaced, h.mac)
		}
	}
}

// conflicts reports whether some switch has a wrong flow for a host.
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

// placeHost adds missing flows of a host, and reports whether all are there now.
func (l *Law) placeHost(h *host, r *route) (whole bool) {
	whole = true
	for _, id := range r.order {
		d := l.switches[id]
		if id == h.at.Switch {
			l.setFlow(d, fromHost(h.mac, h.at.N, l.cfg.HostIdle))
		} else if g := d.groups[l.groupID(h.at.Switch)]; g == nil || !slices.Equal(g.ports, r.ports[id]) {
			// A flow needs its group first, in its new form: an older one may lead by a switch that has left and still
			// sends this host's frames to its old port.
			whole = false
			continue
		}
		l.setFlow(d, l.hostFlow(h, d))
	}
	return whole
}

// groupID returns the number of the group towards a switch. It is the same on every switch and after each start of the
// controller, unless the numbers of two switches collide.
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

func (l *Law) hostIdle() time.Duration { return time.Duration(l.cfg.HostIdle) * time.Second }

// ageHosts forgets the hosts of switches that stay disconnected. The switches themselves are not forgotten: they may still
// forward.
func (l *Law) ageHosts() {
	for _, d := range sorted(l.switches) {
		if d.joined || l.now-d.leftAt < l.hostIdle() {
			continue
		}
		for _, h := range l.hostsInOrder() {
			if h.at.Switch == d.id {
				l.forget(h)
			}
		}
	}
	for m := range l.clearing { // of hosts that are forgotten: nobody waits for the barriers
		if l.hosts[m] == nil {
			l.cleared(m)
		}
	}
}

// clean removes flows and groups that no host needs. It waits with those that were found on a switch: their hosts may be at
// a switch that is not connected yet. While a link is missing it waits until such hosts would be forgotten.
func (l *Law) clean() {
	if !l.collect {
		return
	}
	l.collect = false
	wanted, with := map[uint32]law.Switch{}, map[law.Switch]bool{}
	for _, h := range l.hosts {
		with[h.at.Switch] = true
	}
	for _, s := range slices.Sorted(maps.Keys(with)) { // in order: two group numbers may collide
		wanted[l.groupID(s)] = s
	}
	wait := l.cfg.Adopt
	if l.linkMissing() {
		wait = max(wait, l.hostIdle())
	}
	for _, d := range sorted(l.switches) {
		switch {
		case !d.joined:
		case l.now-d.joinedAt < wait:
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
