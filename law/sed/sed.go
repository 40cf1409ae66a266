// Package sed is SED and RSED: the parameters of a controller that grants each flow the window its deadline needs (SPEC 1.10)
// and repairs its losses (SPEC 1.11).
package sed

import "weir/law"

// Params configures sed, SPEC 1.10.
type Params struct {
	Threshold  law.Limit    `json:"threshold" above:"0" jsonschema_description:"a port is congested at this queue (K)"`
	Recover    law.Limit    `json:"recover" jsonschema_description:"and no longer so below this one"`
	BaseWindow law.Bytes    `json:"base_window" above:"0" jsonschema_description:"window of a flow without deadline (base_win)"`
	Period     law.Duration `json:"period" jsonschema_description:"SE-8: windows are allocated again this often; 0s: on events only, as printed"`
	Pause      string       `json:"pause" jsonschema:"enum=hold,enum=floor,enum=zero" jsonschema_description:"SE-6: the ACKs of a flow without a share are delayed (hold), or carry a window of 1 MSS (floor) or of zero"`
	Overhead   bool         `json:"overhead" jsonschema_description:"SE-8: shares count headers, serialisation and one RTT"`
}

// Default returns the defaults: K = 30 of 100 packets and base_win = 1 MSS are the paper's. The paper's recover threshold is on
// its missing first pages; K/2 is SPEC's proposal, as are period and pause.
func Default() *Params {
	return &Params{
		Threshold: law.Limit{N: 30, Packets: true}, Recover: law.Limit{N: 15, Packets: true},
		BaseWindow: 1460, Period: 1e6, Pause: "hold", Overhead: true,
	}
}

// RepairParams configures rsed, SPEC 1.11: SED that repairs drops.
type RepairParams struct {
	Params
	Repair string `json:"repair" jsonschema:"enum=dupacks,enum=reinject" jsonschema_description:"three duplicate ACKs (the paper), or the packet sent again (real stacks with SACK)"`
}

// Spec describes sed.
func Spec() law.Spec { return spec("sed", func() any { return Default() }) }

// RepairSpec describes rsed.
func RepairSpec() law.Spec {
	return spec("rsed", func() any { return &RepairParams{Params: *Default(), Repair: "dupacks"} })
}

func spec(name string, params func() any) law.Spec {
	return law.Spec{
		Name: name, Folder: "sed", Title: "SED, RSED (paper 001)", Params: params, Worlds: law.BothWorlds(),
		Sites:   []law.Site{law.SwitchPort, law.Controller, law.VMPort},
		Signals: []law.Signal{law.Backlog, law.Drops, law.Deadline}, Claims: []law.Resource{law.ReceiveWindow},
	}
}
