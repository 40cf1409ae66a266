package laws

import (
	"weir/experiment"
	"weir/law"
	"weir/law/droptail"
	"weir/sim/network"
)

// DropTail returns the law `droptail`: ports drop what their buffers have no room for.
func DropTail() Law {
	return Law{Put: func(*network.Network, *experiment.Run, string) (Attached, error) { return Quiet{}, nil }}
}

// DeepTail returns the law `deeptail`: the same with larger buffers.
func DeepTail() Law { return Law{Put: putDeepTail} }

func putDeepTail(n *network.Network, r *experiment.Run, name string) (Attached, error) {
	p, err := law.Params[droptail.DeepParams](r.Params, name)
	if err != nil {
		return nil, err
	}
	for _, at := range n.SwitchPorts(r.At) {
		at.Enlarge(p.More)
	}
	return Quiet{}, nil
}
