package fairq

import "weir/datapath/reading"

// What FairQ tells of its ports, in the words that all laws share.
type (
	Hold         = reading.Hold
	Arm          = reading.Arm
	Stats        = reading.Stats
	Flow         = reading.Flow
	SignedSource = reading.SignedSource
	Pinned       = reading.Pinned
	Switch       = reading.Switch
)

// The values of Hold, Lots and HeartbeatInterval are those of package reading. The kernel's are in bpf/fairq/flows.h.
const (
	HoldAll           = reading.HoldAll
	HoldPart          = reading.HoldPart
	HoldNone          = reading.HoldNone
	Lots              = reading.Lots
	HeartbeatInterval = reading.HeartbeatInterval
)
