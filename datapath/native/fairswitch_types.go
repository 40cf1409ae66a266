package native

// FairSwitchConfig is struct fairswitch_config of core/fairq/fairswitch.h: the registers of a queue.
type FairSwitchConfig struct {
	QueueWords        uint32
	AggregateMaxBytes uint32
	FloorBytes        uint16
	MSSMaxBytes       uint16
	IdleSamples       uint16
	Threshold         uint8
	Updates           uint8
}

// FairSwitchState is what a queue's registers show.
type FairSwitchState struct {
	AggregateBytes, WindowBytes, AverageWords uint32
	Flows, SYNs, FINs, RSTs, MSSBytes         uint16
}

// FairSwitchEvent is enum fairswitch_event of core/fairq/fairswitch.h.
type FairSwitchEvent uint8

// The events of a segment that change the count.
const (
	FairSwitchOpens  FairSwitchEvent = 1 // SYN-ACK
	FairSwitchCloses FairSwitchEvent = 2 // FIN
	FairSwitchAborts FairSwitchEvent = 3 // RST
)

// FairSwitchClear is enum fairswitch_clear of core/fairq/fairswitch_frame.h: whether reserved bits are cleared.
type FairSwitchClear uint8

// The reserved bits of a TCP segment stay or are cleared.
const (
	FairSwitchStay    FairSwitchClear = 0 // the receiving shim clears them
	FairSwitchClears  FairSwitchClear = 1 // cleared, and the checksum adapted
	FairSwitchKeepSum FairSwitchClear = 2 // cleared, the checksum as it was
)

// FairSwitchSeen is struct fairswitch_seen of core/fairq/fairswitch_frame.h: what a frame means for the count.
type FairSwitchSeen struct {
	PayloadBytes           uint32
	Event                  FairSwitchEvent // 0: none
	TCP, Marked, Rewritten bool
}
