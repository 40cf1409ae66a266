package sed

import (
	"fmt"
	"time"

	"weir/law"
)

// LossRepairParams configures lossrepair: the ports' part of rsed with repair: reinject, without windows.
type LossRepairParams struct {
	Park law.Bytes `json:"park" above:"0" jsonschema_description:"the most that a port keeps: on Linux not more than it sends in 50 ms, or in the time of a full buffer and 1 ms (default: 150KB)"`
}

// Check returns an error for parameters that cannot work.
func (p *LossRepairParams) Check() error {
	if p.Park > mostPark {
		return fmt.Errorf("park: at most %v", mostPark)
	}
	return nil
}

// RepairBurst is how much a parking may send at once, in time at the port's rate (datapath/park).
const RepairBurst = 200 * time.Microsecond

const (
	repairLate     = 2 * time.Millisecond  // how much longer than its full buffer a port may need for a repair (SPEC 1.11)
	repairSpare    = time.Millisecond      // a reserve within it, because processors are slow
	repairLongest  = 50 * time.Millisecond // that a packet is kept: half of the time after which core/repair.h takes it as lost
	repairFrame    = 1514                  // bytes
	repairFrames   = 4                     // that enter a queue on several processors at once
	leastBurst     = 1600                  // bytes
	leastOfOthers  = 2                     // frames of packets that did not wait
	largestOfQueue = 1<<32 - 1
)

// AtPort is lossrepair at a port.
type AtPort struct {
	Limit law.Bytes     // of the buffer, that packets may fill that did not wait. The rest is for those that come back
	Most  law.Bytes     // that is kept: so a packet that is kept is back in time
	Bound law.Bytes     // that can be kept, although some packets come back late
	Due   time.Duration // a repair that takes longer is late: the time of a full buffer and 2 ms
}

// At returns what the port of a switch does. It returns an error if the buffer is too short.
func (p *LossRepairParams) At(rate law.Rate, buffer law.Bytes) (AtPort, error) {
	sends := func(in time.Duration) float64 { return float64(rate) / 8 * in.Seconds() }
	head := law.Bytes(max(sends(RepairBurst), leastBurst) + repairFrames*repairFrame)
	if rate == 0 || buffer > largestOfQueue || buffer < head+leastOfOthers*repairFrame {
		return AtPort{}, fmt.Errorf("lossrepair: a buffer of %v at %v is too short: packets that come back need %v, and others two frames", buffer, rate, head)
	}
	bound := min(float64(p.Park), sends(repairLongest))
	return AtPort{
		Limit: buffer - head,
		Most:  law.Bytes(min(bound, float64(buffer)+sends(repairLate-repairSpare))),
		Bound: law.Bytes(bound),
		Due:   time.Duration(float64(buffer)*8e9/float64(rate)) + repairLate,
	}, nil
}

// LossRepairSpec describes lossrepair: switches keep the packets that a full buffer would drop, and send them later. Windows stay as they are.
func LossRepairSpec() law.Spec {
	return law.Spec{
		Name: "lossrepair", Folder: "sed", Title: "SED, RSED (paper 001)", Params: func() any { return &LossRepairParams{Park: 150e3} }, Worlds: law.BothWorlds(),
		Sites: []law.Site{law.SwitchPort}, Claims: []law.Resource{law.FirstPlace}, Metrics: repairMetrics(), Report: law.ReportTotals(repairMetrics()),
	}
}

// Counters of repairs at switches.
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

func repairMetrics() []law.Metric {
	return []law.Metric{
		{Name: Repairs, Kind: law.Total, Text: "losses that the controller answered with ACKs, or packets that a port kept and sent later"},
		{Name: InTime, Kind: law.Total, Text: "of the repairs in the lab: packets that were back in the queue within the time of a full buffer and 2 ms"},
		{Name: SentInTime, Kind: law.Total, Text: "of those: packets that also left the queue within that time"},
		{Name: LongestUs, Kind: law.Total, Text: "the longest that such a packet was kept, in µs"},
		{Name: Kept, Kind: law.Total, Text: "packets that a port kept: those of repairs, and those that had to stay behind them"},
		{Name: LostFull, Kind: law.Total, Text: "TCP segments that a port could not keep, because it kept as many as it may: dropped"},
		{Name: LostOther, Kind: law.Total, Text: "packets without TCP for which the buffer had no room: dropped"},
		{Name: ParkingFails, Kind: law.Total, Text: "packets that should have been kept and went to the queue, because the parking was gone"},
	}
}
