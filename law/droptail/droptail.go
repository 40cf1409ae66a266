// Package droptail is the baseline without a law: a packet that arrives at a full buffer is dropped.
package droptail

import "weir/law"

// Name is the law's name.
const Name = "droptail"

// Params is empty: the buffer belongs to the network.
type Params struct{}

// Spec describes droptail.
func Spec() law.Spec {
	return law.Spec{Name: Name, Baseline: true, Params: func() any { return &Params{} }, Worlds: law.BothWorlds(), Sites: []law.Site{law.SwitchPort}}
}
