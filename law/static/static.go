// Package static is a fixed rate for every sending host: the baseline of fixed reservations (SPEC, G1s).
package static

import "weir/law"

// Params configures static: a fixed rate for every sending host (G1s).
type Params struct {
	Rate  law.Rate     `json:"rate" above:"0" jsonschema:"required" jsonschema_description:"limit of every sender"`
	Depth law.Duration `json:"depth" above:"0" jsonschema_description:"depth of the bucket in time at that rate"`
}

// Spec describes static.
func Spec() law.Spec {
	return law.Spec{
		Name: "static", Baseline: true, Params: func() any { return &Params{Depth: law.Duration(25e6)} }, Worlds: []string{law.WorldSim},
		Sites: []law.Site{law.Uplink}, Claims: []law.Resource{law.SendRate},
	}
}
