package laws

import (
	"weir/experiment"
	"weir/sim/network"
)

// DropTail is `droptail` in the simulator: the buffers' own.
func DropTail() Law {
	return Law{Put: func(*network.Network, *experiment.Run, string) (AtWork, error) { return Quiet{}, nil }}
}
