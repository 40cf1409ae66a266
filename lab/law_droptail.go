package lab

import "weir/experiment"

// DropTail is `droptail` in the lab: the buffers' own.
func DropTail() Law {
	return Law{Stays: true, Start: func(*Lab, *experiment.Run, string) (AtWork, error) { return Quiet{}, nil }}
}
