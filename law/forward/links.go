package forward

import (
	"slices"

	"weir/law"
	"weir/law/fabric"
)

// A link is two ports that receive each other's probes, since they are up. If only one direction carries probes, it is no link:
// the other direction would lose all frames. Such ports are not used for hosts either.

// probe sends the next probe from a port. The first ones follow each other quickly, so that a new link is found at once.
func (l *Law) probe(d *datapath, p *port) {
	const quick = 5
	p.probes++
	wait := l.cfg.ProbeEvery
	if p.probes < quick {
		wait = tick
	}
	p.probed = l.now + wait
	l.probes++
	d.probes++
	p.lastProbe[p.probes%len(p.lastProbe)] = l.probes
	src := p.MAC
	if src == (fabric.MAC{}) || src.Multicast() {
		src = fabric.MAC{0x02, 'W', 'e', 'i', 'r', 0}
	}
	frame := makeProbe(l.cfg.Key, law.Port{Switch: d.id, N: p.Port}, src, l.probes)
	l.out = append(l.out, fabric.PacketOut{Switch: d.id, Ports: []fabric.PortNo{p.Port}, Frame: frame})
}

// probeHeard takes a probe that came in at a port.
func (l *Law) probeHeard(at law.Port, frame []byte) {
	here := l.port(at)
	if here == nil || !here.Up {
		return
	}
	from, number, ok := readProbe(l.cfg.Key, frame)
	there := l.port(from)
	// An existing link stays until no probe crosses it.
	if !ok || from.Switch == at.Switch || here.role == link && here.heard != from {
		l.counts.LinksForged++
		return
	}
	if there == nil || !there.Up {
		return // the switch has just left
	}
	// A port where hosts were learnt has no switch behind it: a host passed the probe on. The exception is an end that was
	// part of a link before: then the hosts were learnt through a switch that was not connected yet.
	hosts := here.hasHosts() && !there.foundAsLink() || there.hasHosts() && !here.foundAsLink()
	if hosts || !slices.Contains(there.lastProbe[:], number) {
		l.counts.LinksForged++
		return
	}
	l.evict(at)
	l.evict(from)
	here.heard, here.heardAt = from, l.now
	l.noHosts(here, from.Switch)
	l.noHosts(there, at.Switch)
	if there.heard == at && l.now-there.heardAt < l.cfg.LinkAge {
		l.linkUp(at, from)
	}
}

// hasHosts reports whether hosts were learnt at the port since it came up.
func (p *port) hasHosts() bool { return p.role == edge && p.hosts > 0 }

// foundAsLink reports whether the switch had the flow of a link for this port when it joined, and the port has been up since
// then. An earlier controller made the flow, or the switch lies (takeOver bounds what that delays).
func (p *port) foundAsLink() bool { return p.role == lostLink && p.was == 0 && !p.replugged }

// noHosts records that another switch of the fabric is behind a port, in at least one direction. Frames that are flooded there
// would enter that switch, and frames that arrive may come from a host elsewhere.
func (l *Law) noHosts(p *port, behind law.Switch) {
	if p.role == link || p.role == lostLink && !p.replugged {
		return
	}
	p.replugged = false
	l.setRole(p, lostLink)
	p.was = behind
}

func (l *Law) port(at law.Port) *port {
	if d := l.switches[at.Switch]; d != nil && d.joined {
		return d.ports[at.N]
	}
	return nil
}

func (l *Law) linkUp(a, b law.Port) {
	for _, at := range []law.Port{a, b} {
		p := l.port(at)
		if p.role == link {
			continue
		}
		l.setRole(p, link)
		l.switches[at.Switch].linked = true
		l.forgetAt(at) // learnt before the port went down
		l.setFlow(l.switches[at.Switch], fromLink(at.N))
		l.setFlow(l.switches[at.Switch], probeFromLink(at.N))
		l.graphChanged = true
	}
}

// dropLinkFlows removes the flows of a port that is no longer part of a link.
func (l *Law) dropLinkFlows(d *datapath, p fabric.PortNo) {
	l.dropFlow(d, fromLink(p).FlowKey)
	l.dropFlow(d, probeFromLink(p).FlowKey)
}

// unlink removes the link that ends at a port, at both ends.
func (l *Law) unlink(at law.Port) {
	p := l.port(at)
	if p == nil || p.role != link {
		return
	}
	other := l.port(p.heard)
	l.graphChanged = true
	l.setRole(p, lostLink)
	p.was, p.heard = p.heard.Switch, law.Port{}
	if other != nil && other.heard == at {
		if other.role == link {
			l.setRole(other, lostLink)
			other.was = at.Switch
		}
		other.heard = law.Port{}
	}
}

// ageLinks removes links that no probe crossed for Config.LinkAge.
func (l *Law) ageLinks() {
	for _, d := range sorted(l.switches) {
		if !d.joined {
			continue
		}
		for _, p := range sorted(d.ports) {
			if p.role == link && l.now-p.heardAt >= l.cfg.LinkAge {
				l.unlink(law.Port{Switch: d.id, N: p.Port})
			}
		}
	}
}
