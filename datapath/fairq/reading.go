package fairq

import "weir/datapath/reading"

// FairQ reports its ports in the types that all laws share.
type (
	// Mode is which flows of a port are limited.
	Mode = reading.Mode
	// Group has the counters of a group of a port's flows: limited or unlimited.
	Group = reading.Group
	// Stats is the state of a port, and its counters.
	Stats = reading.Stats
	// Flow is one direction of a connection.
	Flow = reading.Flow
	// SignedSource is one source of signed segments.
	SignedSource = reading.SignedSource
	// Pinned is one port that FairQ is attached to by a pinned link.
	Pinned = reading.Pinned
	// Credits is what promises and credits do at a port.
	Credits = reading.Credits
	// Parking is the state of a parking device.
	Parking = reading.Parking
	// Switch is what the kernel knows of the ports of one pin directory.
	Switch = reading.Switch
)

// The values are those of package reading. The kernel's are in bpf/fairq/flows.h.
const (
	EnforceAll        = reading.EnforceAll
	EnforcePart       = reading.EnforcePart
	EnforceNone       = reading.EnforceNone
	Buckets           = reading.Buckets
	HeartbeatInterval = reading.HeartbeatInterval
)
