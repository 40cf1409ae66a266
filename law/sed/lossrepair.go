package sed

import (
	"fmt"

	"weir/law"
)

// LossRepairParams configures lossrepair: the ports' part of rsed with repair: reinject, without windows.
type LossRepairParams struct {
	Park law.Bytes `json:"park" above:"0" jsonschema_description:"the most that a port keeps: on Linux not more than it sends in the time of a full buffer and 1 ms"`
}

// Check returns an error for parameters that cannot work.
func (p *LossRepairParams) Check() error {
	if p.Park > mostPark {
		return fmt.Errorf("park: at most %v", mostPark)
	}
	return nil
}

// LossRepairSpec describes lossrepair: switches keep the packets that a full buffer would drop, and send them later. Windows stay as they are.
func LossRepairSpec() law.Spec {
	return law.Spec{
		Name: "lossrepair", Folder: "sed", Title: "SED, RSED (paper 001)", Params: func() any { return &LossRepairParams{Park: 150e3} }, Worlds: []string{law.WorldLab},
		Sites: []law.Site{law.SwitchPort}, Metrics: repairMetrics(), Report: reportOf(repairMetrics()),
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
