package fairq

import "weir/datapath/reading"

// The types in which FairQ tells of its ports are those that all laws share.
type (
	// Hold says which flows of a port are held.
	Hold = reading.Hold
	// Arm is what the held, or the free, flows of a port do.
	Arm = reading.Arm
	// Stats is the state of a port and what it counted.
	Stats = reading.Stats
	// Flow is one direction of a connection.
	Flow = reading.Flow
	// SignedSource is one source of signed segments.
	SignedSource = reading.SignedSource
	// Pinned is one port that FairQ is pinned to.
	Pinned = reading.Pinned
	// Switch is what the kernel knows of the ports of one pin directory.
	Switch = reading.Switch
)

// The values of Hold, Lots and HeartbeatInterval are those of package reading. The kernel's are in bpf/fairq/flows.h.
const (
	HoldAll           = reading.HoldAll
	HoldPart          = reading.HoldPart
	HoldNone          = reading.HoldNone
	Lots              = reading.Lots
	HeartbeatInterval = reading.HeartbeatInterval
)
