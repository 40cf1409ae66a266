// Package mark describes the laws red and ecn: dropping and marking at an instantaneous threshold. The decision is in
// datapath/core/mark.h.
package mark

import "weir/law"

// The names of the two laws.
const (
	ECN = "ecn"
	RED = "red"
)

// Params configures red and ecn: an instantaneous threshold on the queue. Above it, red drops all packets; ecn marks ECT
// packets, and passes or drops the others as NotECT says.
type Params struct {
	Threshold law.Limit `json:"threshold" above:"0" jsonschema:"required" jsonschema_description:"mark or drop above this backlog (K)"`
	NotECT    string    `json:"not_ect" jsonschema:"enum=pass,enum=drop" jsonschema_description:"ecn: what happens to Not-ECT packets above the threshold"`
}

// The values of Params.NotECT.
const (
	Pass = "pass"
	Drop = "drop"
)

// REDSpec describes red, which drops every packet above the threshold.
func REDSpec() law.Spec {
	s := spec(RED, Drop)
	s.Idle = map[string]law.Idle{"not_ect": {Why: "red drops every packet above the threshold", Do: "remove it, or choose the law ecn"}}
	return s
}

// ECNSpec describes ecn, which marks the packets that can be marked.
func ECNSpec() law.Spec { return spec(ECN, Pass) }

func spec(name, notECT string) law.Spec {
	return law.Spec{
		Name: name, Baseline: true, Params: func() any { return &Params{NotECT: notECT} }, Worlds: law.BothWorlds(), Sites: []law.Site{law.SwitchPort},
		Signals: []law.Signal{law.Backlog}, Claims: []law.Resource{law.Marking},
	}
}
