// Package siccns2 is the model behind the figures of SICC's papers: the queue discipline of the authors' ns-2 code. It predicts
// an incast at its own queue, and limits ACKs of the same link at once (docs/spec/sicc.md, NS-1 to NS-6). The paper describes
// a controller instead, which is the law sicc. This law exists to compare the two.
package siccns2

import (
	"errors"

	"weir/law"
)

// Name is the law's name.
const Name = "siccns2"

// Params configures siccns2. The comments have the names of the ns-2 code.
type Params struct {
	Interval      law.Duration `json:"interval" above:"0" jsonschema_description:"time between predictions (flowupdateinterval_, T_s)"`
	OffFraction   float64      `json:"off_fraction" jsonschema:"minimum=0,maximum=1" jsonschema_description:"incast ends when a packet leaves less than this fraction of the buffer behind (lowthreshold_)"`
	OnFraction    float64      `json:"on_fraction" jsonschema:"exclusiveMinimum=0,maximum=4" jsonschema_description:"incast begins when the predicted queue reaches this fraction of the buffer (highthreshold_)"`
	InitialWindow int          `json:"initial_window" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"packets a new flow is expected to send at once (init_cwnd_)"`
	AckThreshold  float64      `json:"ack_threshold" jsonschema:"minimum=0.5,maximum=1" jsonschema_description:"outside an incast data is dropped above this fraction of the buffer, which keeps room for ACKs, SYNs and FINs; 1: no room is kept (ack_threshold_)"`
	DivWin        bool         `json:"divwin" jsonschema_description:"in an incast a flow gets the buffer divided by the number of flows, not one packet (divwin_)"`
	Persist       bool         `json:"persist" jsonschema_description:"a flow that was idle and sends again counts, too (persist_)"`
	SYNACK        bool         `json:"syn_ack" jsonschema_description:"in an incast SYN-ACKs are limited, too, as under the law sicc; not in the ns-2 code"`
	IncastOnly    bool         `json:"incast_only" jsonschema_description:"false: an incast begins at a packet that finds more than on_fraction in the queue, and is not predicted (incastonly_)"`
}

// Default returns the defaults. T, alpha1 and alpha2 are the paper's, the initial window is the Journal's. The published
// scripts do not set the other four.
func Default() *Params {
	return &Params{Interval: 1e6, OffFraction: 0.2, OnFraction: 1, InitialWindow: 10, AckThreshold: 1, IncastOnly: true}
}

// Check returns an error for parameters that cannot work together.
func (p *Params) Check() error {
	if !p.IncastOnly && p.OnFraction >= 1 {
		return errors.New("incast_only: false begins an incast above on_fraction of the buffer, and no queue is longer than the buffer: choose on_fraction below 1")
	}
	return nil
}

// Spec describes siccns2. It has no kernel form, because it models a figure of a paper: it runs in the simulator alone. Queue
// decides, in Go, so Spec.New is nil.
func Spec() law.Spec {
	return law.Spec{
		Name: Name, Folder: "sicc", Title: "SICC (paper 003 and its longer reports)", Params: func() any { return Default() }, Worlds: []string{law.WorldSim},
		Sites: []law.Site{law.SwitchPort}, Signals: []law.Signal{law.Backlog, law.Arrivals}, Claims: []law.Resource{law.ReceiveWindow},
	}
}
