// Package limiter has what the laws share that limit a VM's rate at its host: the parameters, the shim that follows the VMs, and the
// law of the published code.
package limiter

import (
	"fmt"
	"time"

	"weir/law"
)

// Params are common to the laws that limit a VM's rate, SPEC 1.6 and 1.9.
type Params struct {
	MinRate    law.Rate     `json:"min_rate" above:"0" jsonschema_description:"least rate of a VM (Min_Rate)"`
	Period     law.Duration `json:"period" above:"0" jsonschema_description:"timer of the limiter"`
	Depth      law.Duration `json:"depth" above:"0" jsonschema_description:"depth of the bucket in time at the VM's rate"`
	Timeout    law.Duration `json:"timeout" above:"0" jsonschema_description:"silence before the rate rises (Cong_Timeout)"`
	Inactivity law.Duration `json:"inactivity" above:"0" jsonschema_description:"a VM without traffic frees its share after it"`
	Increase   law.Rate     `json:"increase" jsonschema_description:"added to the rate each period without congestion"`
	Decrease   law.Rate     `json:"decrease" jsonschema_description:"taken from the rate for each mark"`
	Excess     string       `json:"excess" jsonschema:"enum=queue,enum=drop" jsonschema_description:"what a host does with packets above a rate: they wait in a queue of 50 ms (70 KB at least), or are dropped, as in the paper's listings"`
}

// IdleDepth is why Depth has no effect.
func IdleDepth() law.Idle {
	return law.Idle{Why: "hosts' limiters have a bucket of 10 ms (core/bucket.h)", Do: "remove it"}
}

// Limits of parameters.
const (
	LeastPeriod = law.Duration(10e3)
	MostTime    = law.Duration(time.Hour)
	MostRate    = law.Rate(1e13)
)

// Check returns an error for a parameter that is out of range.
func (p *Params) Check() error {
	for _, d := range []law.Duration{p.Period, p.Timeout, p.Inactivity} {
		if d > MostTime {
			return fmt.Errorf("period, timeout, inactivity: %v is more than %v", d, MostTime)
		}
	}
	switch {
	case p.Period < LeastPeriod:
		return fmt.Errorf("period: %v is shorter than a host's timer: choose %v or more", p.Period, LeastPeriod)
	case p.MinRate > MostRate || p.Increase > MostRate || p.Decrease > MostRate:
		return fmt.Errorf("min_rate, increase, decrease: at most %v", MostRate)
	}
	return nil
}
