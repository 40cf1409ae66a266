package forward

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"weir/law"
	"weir/law/fabric"
)

// datapath is the law's state of a switch: the wanted flows and groups, and the newest barrier that the switch has confirmed.
type datapath struct {
	id       law.Switch
	joined   bool
	linked   bool // had a link
	claims   bool // says that it had one under an earlier controller
	again    bool // joined since the last search for routes
	leftAt   time.Duration
	joinedAt time.Duration
	ports    map[fabric.PortNo]*port
	flows    map[fabric.FlowKey]fabric.Flow
	groups   map[uint32]*group
	orphans  map[fabric.FlowKey]bool // flows that were found, of hosts that are not known yet

	probes    uint64 // sent
	serial    uint64 // of the last barrier
	hears     uint64 // confirmed by this barrier: it sends probes to the controller
	confirmed uint64
	changed   bool // got an order since the last barrier
}

type group struct {
	ports  []fabric.PortNo
	serial uint64 // confirmed by this barrier
}

// PortsMax limits the ports of a switch; further ports are not used.
const PortsMax = 1024

// role is the use of a port.
type role uint8

const (
	fresh    role = iota // not known yet: no host is learnt, nothing is flooded
	edge                 // leads to hosts
	link                 // leads to another switch of the fabric
	lostLink             // had a link, or one direction of one
)

// A port that had a link may still lead to a switch that is not connected now and forwards by its old flows. Frames to hosts
// that were learnt there would loop between the two. So the port is not used for hosts before it was down and the switch
// behind it was seen elsewhere.

var roleNames = [...]string{"new", "host", "link", "lost-link"}

type port struct {
	fabric.PortInfo
	role      role
	since     time.Duration // of the role
	probed    time.Duration // time of the next probe
	probes    int           // sent since the port came up
	lastProbe [16]uint64    // numbers of the last probes sent from it: as many as fit in LinkAge
	heard     law.Port      // sender of the last probe that came in here
	was       law.Switch    // lostLink, or fresh since then: the switch behind it; 0: not known, as this controller never saw the link
	replugged bool          // lostLink: it was down since then
	heardAt   time.Duration
	hosts     int

	floodTokens float64
	floodAt     time.Duration
}

// barrierNext returns the serial of the barrier that will confirm an order that d gets now.
func (d *datapath) barrierNext() uint64 { return d.serial + 1 }

// settled reports whether a switch has confirmed all its orders up to a barrier, or is not connected.
func (d *datapath) settled(serial uint64) bool { return !d.joined || d.confirmed >= serial }

func (l *Law) joined(e *fabric.Joined) {
	d := l.switches[e.Switch]
	first := d == nil
	if first && len(l.switches) >= l.cfg.SwitchesMax && !l.makeRoom() {
		l.counts.SwitchesRefused++
		return
	}
	if first {
		d = &datapath{id: e.Switch}
		l.switches[e.Switch] = d
	}
	if d.joined { // the new connection began before the end of the old one was noticed
		l.left(e.Switch)
	}
	d.joined, d.joinedAt, d.confirmed, d.again = true, l.now, d.serial, true
	before := d.ports
	d.ports, d.flows, d.groups = map[fabric.PortNo]*port{}, map[fabric.FlowKey]fabric.Flow{}, map[uint32]*group{}
	d.orphans = map[fabric.FlowKey]bool{}
	for _, info := range e.Ports {
		l.addPort(d, info)
		if p := before[info.Port]; p != nil && (p.role == lostLink || p.role == fresh) {
			d.ports[info.Port].role, d.ports[info.Port].was = p.role, p.was
		}
	}
	l.recount(d)
	for _, g := range e.Found.Groups {
		d.groups[g.ID] = &group{ports: slices.Clone(g.Ports)}
	}
	for _, f := range e.Found.Flows {
		d.flows[f.FlowKey] = f
	}
	if len(e.Found.Groups) > 0 {
		d.claims = true
		l.takeOver()
	}
	l.setMeters(d, e.Found.Meters)
	l.adopt(d, first)
	if d.hears = d.serial; d.changed {
		d.hears = d.barrierNext()
	}
	l.graphChanged, l.collect = true, true
}

// takeOver has changes of routes wait until the links of a fabric that already forwards are known again. A switch may say so
// again and again, so they wait for three times TakeOver, and then not again for twenty times.
func (l *Law) takeOver() {
	if l.now >= l.takeOverNext {
		l.takeOverMost = l.now + 3*l.cfg.TakeOver
		l.takeOverNext = l.takeOverMost + 20*l.cfg.TakeOver
	}
	l.takingOver = min(l.now+l.cfg.TakeOver, l.takeOverMost)
}

// makeRoom forgets one switch that left, so that peers cannot fill the controller's memory with names. It takes the one that
// left first and never had a link. A switch that had a link may still forward, and is kept. One that only says so is kept
// until its hosts are forgotten.
func (l *Law) makeRoom() bool {
	var first *datapath
	for _, d := range sorted(l.switches) {
		if d.joined || d.linked || d.claims && l.now-d.leftAt < l.hostIdle() {
			continue
		}
		if first == nil || d.leftAt < first.leftAt {
			first = d
		}
	}
	if first == nil {
		return false
	}
	for _, h := range l.hostsInOrder() {
		if h.at.Switch == first.id {
			l.forget(h)
		}
	}
	delete(l.switches, first.id)
	maps.DeleteFunc(l.groupIDs, func(_ uint32, s law.Switch) bool { return s == first.id })
	return true
}

// findingLinks reports whether changes of routes must wait, because only some links of a fabric that already forwards are known
// again. Routes over those alone would move all traffic there, and back a moment later.
func (l *Law) findingLinks() bool {
	if l.now >= l.takingOver {
		return false
	}
	if l.linkMissing() {
		return true
	}
	l.takingOver = 0
	return false
}

// linkMissing reports whether a switch was found with a link that is not known again, although its port is up. Most likely the switch
// behind it cannot reach the controller, and forwards.
func (l *Law) linkMissing() bool {
	for _, d := range l.switches {
		for _, p := range d.ports {
			if d.joined && p.Up && p.foundAsLink() {
				return true
			}
		}
	}
	return false
}

func (l *Law) setMeters(d *datapath, found []fabric.Meter) {
	for _, want := range l.cfg.Rates.meters() {
		at := slices.IndexFunc(found, func(m fabric.Meter) bool { return m.ID == want.ID })
		if at < 0 || found[at] != want {
			l.order(d, fabric.SetMeter{Switch: d.id, New: at < 0, Meter: want})
		}
	}
}

// adopt takes over the flows and groups that were found on a switch. Wanted ones stay unchanged, hosts are learnt from them,
// and unused ones are removed.
func (l *Law) adopt(d *datapath, first bool) {
	common := everywhere()
	for _, p := range sorted(d.ports) {
		if _, linked := d.flows[fromLink(p.Port).FlowKey]; linked || p.role == lostLink {
			common = append(common, probeFromLink(p.Port))
		}
	}
	wanted := map[fabric.FlowKey]fabric.Flow{}
	for _, f := range common {
		wanted[f.FlowKey] = f
	}
	found := slices.SortedFunc(maps.Values(d.flows), compareFlows)
	for _, f := range found {
		in, out := f.Match.InPort, f.Do.Out
		switch f.Kind {
		case fabric.Link:
			d.claims = true
			if p := d.ports[in]; p != nil {
				l.setRole(p, lostLink)
			}
		case fabric.HostHere:
			if d.ports[out] == nil || !l.adoptHost(f.Match.EthDst, law.Port{Switch: d.id, N: out}, first) {
				d.orphans[f.FlowKey] = true
			}
		case fabric.HostThere:
			d.orphans[f.FlowKey] = true // until placeHosts wants it
		case fabric.Source:
			if d.ports[in] == nil || !l.adoptHost(f.Match.EthSrc, law.Port{Switch: d.id, N: in}, first) {
				l.dropFlow(d, f.FlowKey)
			}
		default:
			if wanted[f.FlowKey] != f {
				l.dropFlow(d, f.FlowKey)
			}
		}
	}
	for _, f := range common {
		l.setFlow(d, f)
	}
}

func (l *Law) left(id law.Switch) {
	d := l.switches[id]
	if d == nil || !d.joined {
		return
	}
	for _, p := range sorted(d.ports) {
		l.unlink(law.Port{Switch: id, N: p.Port})
	}
	d.joined, d.leftAt = false, l.now
	l.graphChanged = true
}

func (l *Law) addPort(d *datapath, info fabric.PortInfo) {
	d.ports[info.Port] = &port{PortInfo: info, since: l.now, probed: l.now, floodTokens: float64(l.cfg.FloodBurst), floodAt: l.now}
}

func (l *Law) portChanged(e *fabric.PortChanged) {
	d := l.switches[e.Switch]
	if d == nil || !d.joined || !fabric.Usable(e.Port.Port) {
		return
	}
	at := law.Port{Switch: e.Switch, N: e.Port.Port}
	p := d.ports[e.Port.Port]
	switch {
	case e.Gone:
		if p != nil {
			l.unlink(at)
			l.forgetAt(at)
			l.dropLinkFlows(d, at.N)
			delete(d.ports, at.N)
		}
	case p == nil && len(d.ports) >= PortsMax:
		l.counts.PortsRefused++
	case p == nil:
		l.addPort(d, e.Port)
	default:
		wasUp := p.Up
		p.PortInfo = e.Port
		if wasUp && !p.Up {
			l.unlink(at)
		}
		if !wasUp && p.Up {
			// Another device may be plugged in now.
			if p.role == lostLink {
				p.replugged = true
			} else {
				l.setRole(p, fresh)
			}
			p.probes, p.probed, p.heard = 0, l.now, law.Port{}
		}
	}
}

func (l *Law) setRole(p *port, r role) {
	if p.role != r {
		p.role, p.since, p.replugged = r, l.now, false
	}
}

// tickPorts sends probes that are due, and turns ports without another switch into ports of hosts.
func (l *Law) tickPorts(d *datapath) {
	if !d.joined {
		return
	}
	for _, p := range sorted(d.ports) {
		if !p.Up {
			continue
		}
		if l.now >= p.probed {
			l.probe(d, p)
		}
		if p.role == lostLink && p.replugged && l.back(p.was) {
			l.setRole(p, fresh)
		}
		if p.role == fresh && (!l.back(p.was) || !d.settled(d.hears)) {
			p.since = l.now // the probe of a switch behind it may not have arrived yet
		}
		if p.role == fresh && l.now-p.since >= l.settleTime(p) && p.probes >= 3 {
			l.setRole(p, edge)
			p.was = 0
			l.dropLinkFlows(d, p.Port)
		}
	}
}

// settleTime returns how long no probe must come in at a port before the port may have hosts. A port that was part of a link
// waits longer: most likely the same cable is back. Probes can come late if a switch or the controller is busy. If hosts were
// learnt there first, all later probes would be taken for forged ones, and the link would stay down.
func (l *Law) settleTime(p *port) time.Duration {
	if p.was != 0 {
		return max(l.cfg.Settle, 6*l.cfg.LinkAge)
	}
	return l.cfg.Settle
}

// back reports whether a switch is connected, or was never known.
func (l *Law) back(id law.Switch) bool {
	d := l.switches[id]
	return d == nil || d.joined
}

// order sends one order to a switch.
func (l *Law) order(d *datapath, a law.Action) {
	if !d.changed {
		d.changed = true
		l.ordered = append(l.ordered, d)
	}
	l.out = append(l.out, a)
}

func (l *Law) setFlow(d *datapath, f fabric.Flow) {
	delete(d.orphans, f.FlowKey)
	if now, ok := d.flows[f.FlowKey]; !ok || now != f {
		d.flows[f.FlowKey] = f
		l.order(d, fabric.SetFlow{Switch: d.id, Flow: f})
	}
}

func (l *Law) dropFlow(d *datapath, k fabric.FlowKey) bool {
	delete(d.orphans, k)
	f, there := d.flows[k]
	if there && d.joined {
		delete(d.flows, k)
		l.order(d, fabric.DropFlow{Switch: d.id, Flow: f})
	}
	return there && d.joined
}

// barriers sends a barrier to every switch that got an order in this step.
func (l *Law) barriers() {
	for _, d := range l.ordered {
		d.changed = false
		d.serial++
		l.out = append(l.out, fabric.Barrier{Switch: d.id, Serial: d.serial})
	}
	l.ordered = l.ordered[:0]
}

// sorted returns the values of a map in the order of its keys, so that a law's actions have one order.
func sorted[K cmp.Ordered, V any](m map[K]V) []V {
	out := make([]V, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

func compareFlows(a, b fabric.Flow) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), -cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Match.InPort, b.Match.InPort),
		slices.Compare(a.Match.EthSrc[:], b.Match.EthSrc[:]), slices.Compare(a.Match.EthDst[:], b.Match.EthDst[:]),
		cmp.Compare(a.Match.EthType, b.Match.EthType), cmp.Compare(a.Match.TCPFlag, b.Match.TCPFlag), compareTuples(a.Match.Tuple, b.Match.Tuple))
}

func compareTuples(a, b fabric.Tuple) int {
	return cmp.Or(cmp.Compare(a.Proto, b.Proto), slices.Compare(a.Src[:], b.Src[:]), slices.Compare(a.Dst[:], b.Dst[:]),
		cmp.Compare(a.SrcPort, b.SrcPort), cmp.Compare(a.DstPort, b.DstPort))
}
