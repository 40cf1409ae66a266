// Package laws puts the control laws of a run on the ports of a simulated network. What is done with a packet is
// what the C of datapath/core says, by cgo; a build without cgo refuses such a law.
package laws

import (
	"fmt"

	"weir/experiment"
	"weir/sim/network"
)

// put puts one law of a run to work.
type put func(n *network.Network, r *experiment.Run, name string) error

// built are the laws that the simulator has. experiment's registry of laws says the same by name.
var built = map[string]put{
	"droptail": func(*network.Network, *experiment.Run, string) error { return nil }, // the buffers' own
	"ecn":      putMark,
	"red":      putMark,
	"static":   putStatic,
	"acdc":     putACDC,
	"fairq":    putFairQ,
}

// Check says which law of r this build lacks, or nil.
func Check(r *experiment.Run) error {
	for _, name := range r.Laws {
		if built[name] == nil {
			return fmt.Errorf("the simulator has no law %s", name)
		}
		var err error
		switch name {
		case "ecn", "red":
			err = checkNative(name)
		case "acdc":
			err = checkACDC(r, name)
		case "fairq":
			err = checkFairQ(r, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Put puts the laws of r, in their order, on the ports of the switches in r.At, and on what else they work
// on. A packet passes them in that order. On an error no law stays at a port; a host that static shapes stays so.
func Put(n *network.Network, r *experiment.Run) error {
	if err := Check(r); err != nil {
		return err
	}
	for _, name := range r.Laws {
		if err := built[name](n, r, name); err != nil {
			Close(n)
			return fmt.Errorf("scheme %s: %w", r.Scheme, err)
		}
	}
	return nil
}

// add puts l behind the laws that p has.
func add(p *network.Port, l network.Law) { p.SetLaws(append(p.Laws(), l)...) }

// putStatic is `static`: every host that data comes from sends at a fixed rate at most, by a token bucket
// that delays (SPEC, G1s).
func putStatic(n *network.Network, r *experiment.Run, name string) error {
	params, ok := r.Params[name].(experiment.StaticParams)
	if !ok {
		return fmt.Errorf("law %s: parameters are %T", name, r.Params[name])
	}
	shaped := map[network.NodeID]bool{}
	for _, item := range r.Config.Items {
		for _, pair := range item.Pairs {
			id, ok := n.Node(pair.Src)
			if !ok {
				return fmt.Errorf("law %s: there is no host %s", name, pair.Src)
			}
			if !shaped[id] {
				shaped[id] = true
				n.HostPort(id).Shape(params.Rate, params.Depth)
			}
		}
	}
	return nil
}
