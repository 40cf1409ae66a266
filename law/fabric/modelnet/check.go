package modelnet

import (
	"fmt"
	"maps"
	"slices"

	"weir/law"
	"weir/law/fabric"
)

// Loop returns an error if a frame could loop, for any choice of ports by groups and any port where it enters. Ports that are
// down count as up: switches may not have noticed yet.
func (n *Net) Loop(frame []byte) error {
	const open, closed = 1, 2
	state := map[law.Port]int{}
	var visit func(at law.Port) error
	visit = func(at law.Port) error {
		switch state[at] {
		case open:
			return fmt.Errorf("a frame to %v loops at %v", fabric.MAC(frame[:6]), at)
		case closed:
			return nil
		}
		state[at] = open
		outs, _ := n.Switches[at.Switch].Look(at.N, frame, true)
		for _, p := range outs {
			if far, ok := n.links[law.Port{Switch: at.Switch, N: p}]; ok {
				if err := visit(far); err != nil {
					return fmt.Errorf("%w, %v", err, at)
				}
			}
		}
		state[at] = closed
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(n.Switches)) {
		for p := range n.Switches[id].Ports {
			if err := visit(law.Port{Switch: id, N: p}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Hops returns the number of hops from every connected switch to one of them, over links that are up. The algorithm is slow:
// it repeats until no way gets shorter.
func (n *Net) Hops(to law.Switch) map[law.Switch]int {
	hops := map[law.Switch]int{to: 0}
	for again := true; again; {
		again = false
		for a, b := range n.links {
			h, ok := hops[b.Switch]
			if !ok || !n.Up(a) {
				continue
			}
			if old, seen := hops[a.Switch]; !seen || old > h+1 {
				hops[a.Switch], again = h+1, true
			}
		}
	}
	return hops
}

// Up reports whether a link works and both its ends are connected.
func (n *Net) Up(a law.Port) bool {
	b, ok := n.links[a]
	x, y := n.Switches[a.Switch], n.Switches[b.Switch]
	return ok && x.Connected && y.Connected && x.Ports[a.N] && y.Ports[b.N]
}

// Nearer returns the ports of a switch that lead one hop nearer, sorted.
func (n *Net) Nearer(from law.Switch, hops map[law.Switch]int) (ports []fabric.PortNo) {
	for a, b := range n.links {
		if a.Switch == from && n.Up(a) && hops[b.Switch] == hops[from]-1 {
			ports = append(ports, a.N)
		}
	}
	slices.Sort(ports)
	return ports
}
