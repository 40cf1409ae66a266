package lab

import "weir/experiment"

// DropTail is `droptail` in the lab: the buffers themselves drop.
func DropTail() Law {
	return Law{Stays: true, Hardware: dropTailHardware, Start: func(*Lab, *experiment.Run, string) (Attached, error) { return Quiet{}, nil }}
}

// dropTailHardware: the block only forwards.
func dropTailHardware(*experiment.Run, string) (Hardware, error) {
	return Hardware{Registers: map[uint32]uint32{regControl: 0}}, nil
}
