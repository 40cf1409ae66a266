package native

// RepairConfig is struct repair_config of core/repair.h.
type RepairConfig struct {
	LimitBytes uint32 // of the queue
	ParkBytes  uint32 // the most that waits
	FullBytes  uint32 // of the queue, for packets that come back; 0: they never wait once more
}

// RepairFlow is struct repair_flow: what a port knows of a direction of a connection.
type RepairFlow struct {
	ParkedNs uint64 // when its last packet was parked
	Waiting  uint32 // packets that wait
	_        uint32
}

// RepairVerdict is enum repair_verdict.
type RepairVerdict uint8

// The verdicts.
const (
	RepairPass   RepairVerdict = iota
	RepairOver                 // parked: the queue has no room for it
	RepairBehind               // parked: the queue has room for it, and packets of its flow wait
	RepairFull                 // dropped: the parking has no room for it
	RepairOther                // dropped: over the limit, and not TCP
)
