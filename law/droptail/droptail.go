// Package droptail is the baseline without a law: a packet that arrives at a full buffer is dropped.
package droptail

import "weir/law"

// Name is the law's name.
const Name = "droptail"

// Params is empty: the buffer belongs to the network.
type Params struct{}

// DeepParams configures deeptail.
type DeepParams struct {
	More law.Bytes `json:"more" above:"0" jsonschema_description:"ports have so much buffer in addition, as a law has that keeps packets"`
}

// DeepSpec describes deeptail: droptail with more buffer than the network's.
func DeepSpec() law.Spec {
	return law.Spec{
		Name: "deeptail", Params: func() any { return &DeepParams{More: 150e3} }, Worlds: law.BothWorlds(), Sites: []law.Site{law.SwitchPort},
	}
}

// Spec describes droptail.
func Spec() law.Spec {
	return law.Spec{Name: Name, Baseline: true, Params: func() any { return &Params{} }, Worlds: law.BothWorlds(), Sites: []law.Site{law.SwitchPort}}
}
