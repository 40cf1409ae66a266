// Package acdc is AC/DC TCP (He et al., SIGCOMM 2016): the virtual switches of the hosts enforce DCTCP on guests with any TCP.
// It is a baseline: a published scheme that needs no change of guests.
package acdc

import "weir/law"

// Params configures acdc (AC/DC TCP, SIGCOMM 2016): the switches mark as ecn does, and virtual switches at the hosts
// enforce DCTCP's window through the receive window.
type Params struct {
	Threshold law.Limit    `json:"threshold" above:"0" jsonschema:"required" jsonschema_description:"switches mark above this backlog (K)"`
	Gain      float64      `json:"gain" jsonschema:"exclusiveMinimum=0,maximum=1" jsonschema_description:"weight of the newest marked fraction (g, 1/16)"`
	MinWindow law.Bytes    `json:"min_window" jsonschema_description:"least window; 0B: the flow's own MSS, and a byte"`
	Timeout   law.Duration `json:"timeout" above:"0" jsonschema_description:"data without any ACK for this time counts as lost"`
	Police    bool         `json:"police" jsonschema_description:"data beyond every window that was granted is dropped at its sender"`
}

// Spec describes acdc. g = 1/16 is DCTCP's.
func Spec() law.Spec {
	return law.Spec{
		Name: "acdc", Params: func() any { return &Params{Gain: 1.0 / 16, Timeout: law.Duration(200e6)} }, Worlds: []string{law.WorldSim},
		Sites: []law.Site{law.SwitchPort, law.VMPort}, Signals: []law.Signal{law.Backlog, law.Marks},
		Claims: []law.Resource{law.Marking, law.ECN, law.Shim, law.ReceiveWindow},
		Metrics: []law.Metric{
			{Name: Acks, Kind: law.Total, Main: "-", Text: "acknowledgements for a guest whose connection is in the table"},
			{Name: Rewritten, Kind: law.Total, Main: "-", Text: "of them, those rewritten to a smaller window"},
		},
		Report: report,
	}
}

// Counters: two metrics, the ends of connections that were entered in a table, and those that found no room there.
const (
	Acks      = "acks"
	Rewritten = "acks_rewritten"
	Opened    = "opened"
	Refused   = "refused"
)

func report(t law.Tally) (totals []law.Value, trouble []string) {
	if t[Refused]*1000 > t[Opened] {
		trouble = append(trouble, "acdc: over 0.1 % of the ends of connections were not entered in a host's table (no room), and not limited")
	}
	return []law.Value{{Metric: Acks, Value: float64(t[Acks])}, {Metric: Rewritten, Value: float64(t[Rewritten])}}, trouble
}
