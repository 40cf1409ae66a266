package modelnet

import (
	"fmt"
	"maps"
	"slices"

	"weir/law/fabric"
)

// Loop looks for a way on which a frame could go round, whichever ports groups choose and wherever it comes
// in; nil: there is none. Ports that are down count as up: switches may not have seen it yet.
func (n *Net) Loop(frame []byte) error {
	const open, closed = 1, 2
	state := map[fabric.Point]int{}
	var visit func(at fabric.Point) error
	visit = func(at fabric.Point) error {
		switch state[at] {
		case open:
			return fmt.Errorf("a frame to %v goes round by %v", fabric.MAC(frame[:6]), at)
		case closed:
			return nil
		}
		state[at] = open
		outs, _ := n.Switches[at.Switch].Look(at.Port, frame, true)
		for _, p := range outs {
			if far, ok := n.links[fabric.Point{Switch: at.Switch, Port: p}]; ok {
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
			if err := visit(fabric.Point{Switch: id, Port: p}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Hops gives, for every switch, the number of hops to one of them over links that are up; of connected
// switches only. It is found the slow way: by trying again until nothing gets shorter.
func (n *Net) Hops(to fabric.Switch) map[fabric.Switch]int {
	hops := map[fabric.Switch]int{to: 0}
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

// Up tells whether a link works and both its ends are connected.
func (n *Net) Up(a fabric.Point) bool {
	b, ok := n.links[a]
	x, y := n.Switches[a.Switch], n.Switches[b.Switch]
	return ok && x.Connected && y.Connected && x.Ports[a.Port] && y.Ports[b.Port]
}

// Nearer gives the ports of a switch that lead one hop nearer, sorted.
func (n *Net) Nearer(from fabric.Switch, hops map[fabric.Switch]int) (ports []fabric.Port) {
	for a, b := range n.links {
		if a.Switch == from && n.Up(a) && hops[b.Switch] == hops[from]-1 {
			ports = append(ports, a.Port)
		}
	}
	slices.Sort(ports)
	return ports
}
