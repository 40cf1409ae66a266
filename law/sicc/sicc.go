// Package sicc is SICC: the parameters of a controller that predicts an incast and limits senders to one segment (SPEC 1.4,
// 1.5).
package sicc

import (
	"errors"

	"weir/law"
)

// Values of Params.OffRule, Arrivals and Model.
const (
	OffOr           = "or"
	OffAnd          = "and"
	OffQueue        = "queue"
	ArrivalsSYN     = "syn"
	ArrivalsActive  = "active"
	ArrivalsRequest = "request"
	ModelController = "controller"
	ModelQueueNS2   = "queue"
)

// Params configures sicc: the controller and its hypervisor part, SPEC 1.4 and 1.5.
type Params struct {
	Interval      law.Duration `json:"interval" above:"0" jsonschema_description:"monitoring interval (T, T_i)"`
	OffFraction   float64      `json:"off_fraction" jsonschema:"minimum=0,maximum=1" jsonschema_description:"incast ends at or below this fraction of the buffer (alpha1)"`
	OnFraction    float64      `json:"on_fraction" jsonschema:"exclusiveMinimum=0,maximum=4" jsonschema_description:"incast begins when the predicted queue reaches this fraction of the buffer (alpha2)"`
	MouseDuration law.Duration `json:"mouse_duration" above:"0" jsonschema_description:"mean mouse duration (DM): incast ends after it"`
	MinHold       law.Duration `json:"min_hold" jsonschema_description:"incast lasts at least this long"`
	OffRule       string       `json:"off_rule" jsonschema:"enum=or,enum=and,enum=queue" jsonschema_description:"SI-3: DM elapsed or queue low (prose, code), both (as printed), or queue low alone (ns-2)"`
	Arrivals      string       `json:"arrivals" jsonschema:"enum=syn,enum=active,enum=request" jsonschema_description:"flows that begin: SYNs (the paper), or also flows that were idle and send again, or also answers, when their requests pass"`
	QueueWeight   float64      `json:"queue_weight" jsonschema:"exclusiveMinimum=0,maximum=1" jsonschema_description:"weight of the newest queue in its mean (3/4)"`
	InitialWindow int          `json:"initial_window" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"segments a new flow is expected to send at once (TCP_ICWND)"`
	SourceShare   float64      `json:"source_share" jsonschema:"minimum=0,maximum=4" jsonschema_description:"the most that new flows of one VM count for within mouse_duration, as a fraction of the buffer, so that a flood of SYNs of one VM begins no incast; 0: no limit (the paper)"`
	Lease         law.Duration `json:"lease" above:"0" jsonschema_description:"SH-5: a clamp that is not renewed ends after it"`
	Model         string       `json:"model" jsonschema:"enum=controller,enum=queue" jsonschema_description:"the paper's controller, or the queue discipline of its ns-2 plots"`
}

// Default returns the defaults. T = 1 ms and alpha1 = 0.20 are the paper's, alpha2 = 1.00 is the Journal's. DM = 15 ms, the
// least duration of 4 ms and an initial window of 10 are the published code's (SPEC 1.4). SourceShare is ours: with half a buffer
// one VM begins no incast at a port that is not busy, and two can. The rule that ends an incast is the
// one that experiments/sicc/sicc-choices.yaml finds best (SI-3).
func Default() *Params {
	return &Params{
		Interval: 1e6, OffFraction: 0.2, OnFraction: 1, MouseDuration: 15e6, MinHold: 4e6, OffRule: OffAnd, Arrivals: ArrivalsSYN,
		QueueWeight: 0.75, InitialWindow: 10, SourceShare: 0.5, Lease: 1e9, Model: ModelController,
	}
}

// Check returns an error for parameters that cannot work together.
func (p *Params) Check() error {
	switch {
	case p.Model == ModelQueueNS2:
		return errors.New("model: queue is a law of its own, for the simulator: name siccns2 in the scheme's laws")
	case p.OffRule != OffQueue && p.MinHold > p.MouseDuration:
		return errors.New("min_hold is longer than mouse_duration, after which an incast ends: choose it shorter")
	}
	return nil
}

// Spec describes sicc.
func Spec() law.Spec {
	return law.Spec{
		Name: "sicc", Folder: "sicc", Title: "SICC (paper 003 and its longer reports)", Params: func() any { return Default() }, Worlds: law.BothWorlds(),
		Sites: []law.Site{law.Controller, law.VMPort}, Signals: []law.Signal{law.Backlog, law.Arrivals}, Claims: []law.Resource{law.ReceiveWindow},
		Interval: func(params any) law.Duration { return params.(*Params).Interval },
		New:      func(_ law.Site, params any, _ *law.Topology) (law.Law, error) { return New(*params.(*Params)) },
		Metrics:  metrics(), Report: law.ReportTotals(metrics()),
	}
}

func metrics() []law.Metric {
	return []law.Metric{
		{Name: "grants", Kind: law.Total, Text: "windows that the controller granted or released"},
		{Name: "reports", Kind: law.Total, Text: "in the simulator: reports of switches to the controller"},
		{Name: "report_bytes", Kind: law.Total, Text: "bytes of these reports as messages of the bus, without headers"},
	}
}
