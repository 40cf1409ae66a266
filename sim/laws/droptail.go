package laws

import (
	"weir/experiment"
	"weir/sim/network"
)

// DropTail returns the law `droptail`: ports drop what their buffers have no room for.
func DropTail() Law {
	return Law{Put: func(*network.Network, *experiment.Run, string) (Attached, error) { return Quiet{}, nil }}
}
