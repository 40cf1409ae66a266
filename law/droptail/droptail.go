// Package droptail is the law of a network without laws: a packet that finds the buffer full is dropped.
package droptail

import "weir/law"

// Name is the law's.
const Name = "droptail"

// Params are none: the buffer is the network's.
type Params struct{}

// Spec is droptail.
func Spec() law.Spec {
	return law.Spec{Name: Name, Baseline: true, Params: func() any { return &Params{} }, Worlds: law.BothWorlds(), Sites: []law.Site{law.SwitchPort}}
}
