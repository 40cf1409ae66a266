package sed

import (
	"fmt"

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

// At returns what the port of a switch does. It returns an error if the buffer is too short.
func (p *LossRepairParams) At(rate law.Rate, buffer law.Bytes) (law.Repair, error) {
	return law.RepairAt(rate, buffer, p.Park)
}

// LossRepairSpec describes lossrepair: switches keep the packets that a full buffer would drop, and send them later. Windows stay as they are.
func LossRepairSpec() law.Spec {
	metrics := law.RepairMetrics()
	return law.Spec{
		Name: "lossrepair", Folder: "sed", Title: "SED, RSED (paper 001)", Params: func() any { return &LossRepairParams{Park: 150e3} }, Worlds: law.BothWorlds(),
		Sites: []law.Site{law.SwitchPort}, Claims: []law.Resource{law.FirstPlace}, Metrics: metrics, Report: law.ReportTotals(metrics),
	}
}
