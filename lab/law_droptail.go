package lab

import "weir/experiment"

// DropTail is `droptail` in the lab: the buffers themselves drop.
func DropTail() Law {
	return Law{Stays: true, Start: func(*Lab, *experiment.Run, string) (Attached, error) { return Quiet{}, nil }}
}
