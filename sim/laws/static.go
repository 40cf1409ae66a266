package laws

import (
	"fmt"

	"weir/experiment"
	"weir/law"
	"weir/law/static"
	"weir/sim/network"
)

// Static returns the law `static`.
func Static() Law { return Law{Put: putStatic} }

// putStatic limits every host that sends data to a fixed rate, by a token bucket that delays (SPEC, G1s).
func putStatic(n *network.Network, r *experiment.Run, name string) (Attached, error) {
	params, err := law.Params[static.Params](r.Params, name)
	if err != nil {
		return nil, err
	}
	shaped := map[network.NodeID]bool{}
	for _, item := range r.Config.Items {
		for _, pair := range item.Pairs {
			id, ok := n.Node(pair.Src)
			if !ok {
				return nil, fmt.Errorf("law %s: there is no host %s", name, pair.Src)
			}
			if !shaped[id] {
				shaped[id] = true
				n.HostPort(id).Shape(params.Rate, params.Depth)
			}
		}
	}
	return Quiet{}, nil
}
