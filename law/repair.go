package law

import (
	"fmt"
	"math"
	"time"
)

// Repair is the repair of losses at a port (datapath/core/repair.h): the port keeps TCP segments that its buffer has no room for, and
// sends them later, in order, at its rate.
type Repair struct {
	Limit Bytes         // of the buffer, that packets may fill that did not wait. The rest is for those that come back
	Full  Bytes         // of the buffer, that those may fill; one that finds more can wait once more. The rest is for others that come meanwhile
	Most  Bytes         // that is kept: so a packet that is kept is back in time
	Bound Bytes         // that can be kept, although some packets come back late
	Due   time.Duration // a repair that takes longer is late: the time of a full buffer and 2 ms
	Burst time.Duration // how much may come back at once, in time at the port's rate
}

const (
	mostRepairBurst = 200 * time.Microsecond // a timer of the kernel may be as late
	burstOfBuffer   = 3                      // a burst has at most such a part of the buffer: at fast ports less than 200 us

	repairLate     = 2 * time.Millisecond   // how much longer than its full buffer a port may need for a repair (SPEC 1.11)
	repairSpare    = time.Millisecond       // a reserve within it, because processors are slow
	repairLongest  = 50 * time.Millisecond  // that a packet is kept if it must be back in time
	repairBound    = 100 * time.Millisecond // that any packet is kept: half of the time after which core/repair.h takes it as lost
	repairFrame    = 1514                   // bytes
	repairFrames   = 4                      // that enter a queue on several processors at once
	leastBurst     = 1600                   // bytes
	leastOfOthers  = 2                      // frames of packets that did not wait
	largestOfQueue = math.MaxUint32
)

// RepairAt returns what a port does that keeps at most `park` bytes. It returns an error if the buffer is too short.
func RepairAt(rate Rate, buffer, park Bytes) (Repair, error) {
	sends := func(in time.Duration) float64 { return float64(rate) / 8 * in.Seconds() }
	burst := min(sends(mostRepairBurst), float64(buffer)/burstOfBuffer)
	head := Bytes(max(burst, leastBurst) + repairFrames*repairFrame)
	if rate == 0 || buffer > largestOfQueue || buffer < head+leastOfOthers*repairFrame {
		return Repair{}, fmt.Errorf("repair of losses: a buffer of %v at %v is too short: packets that come back need %v, and others two frames", buffer, rate, head)
	}
	return Repair{
		Limit: buffer - head,
		Full:  buffer - leastOfOthers*repairFrame,
		Most:  Bytes(min(float64(park), sends(repairLongest), float64(buffer)+sends(repairLate-repairSpare))),
		Bound: Bytes(min(float64(park), sends(repairBound))),
		Due:   time.Duration(float64(buffer)*8e9/float64(rate)) + repairLate,
		Burst: time.Duration(burst * 8e9 / float64(rate)),
	}, nil
}

// Counters of repairs at switches, and metrics of the laws that have them.
const (
	Repairs      = "repairs"
	InTime       = "repairs_in_time"
	SentInTime   = "repairs_sent_in_time"
	LongestUs    = "longest_repair_us"
	Kept         = "kept_packets"
	LostFull     = "unkept_packets"
	LostOther    = "unkept_others"
	ParkingFails = "unparked_packets"
)

// RepairMetrics returns them.
func RepairMetrics() []Metric {
	return []Metric{
		{Name: Repairs, Kind: Total, Text: "losses that the controller answered with ACKs, or packets that a port kept and sent later"},
		{Name: InTime, Kind: Total, Text: "of the repairs in the lab: packets that were back in the queue within the time of a full buffer and 2 ms"},
		{Name: SentInTime, Kind: Total, Text: "of those: packets that also left the queue within that time"},
		{Name: LongestUs, Kind: Total, Text: "the longest that such a packet was kept, in µs"},
		{Name: Kept, Kind: Total, Text: "packets that a port kept: those of repairs, and those that had to stay behind them"},
		{Name: LostFull, Kind: Total, Text: "TCP segments that a port could not keep, because it kept as many as it may: dropped"},
		{Name: LostOther, Kind: Total, Text: "packets without TCP for which the buffer had no room: dropped"},
		{Name: ParkingFails, Kind: Total, Text: "packets that should have been kept and went to the queue, because the parking was gone"},
	}
}
