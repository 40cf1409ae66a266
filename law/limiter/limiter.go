// Package limiter has the common parameters of the laws that limit a VM's rate.
package limiter

import "weir/law"

// Params are common to the laws that limit a VM's rate, SPEC 1.6 and 1.9.
type Params struct {
	MinRate    law.Rate     `json:"min_rate" above:"0" jsonschema_description:"least rate of a VM (Min_Rate)"`
	Period     law.Duration `json:"period" above:"0" jsonschema_description:"timer of the limiter"`
	Depth      law.Duration `json:"depth" above:"0" jsonschema_description:"depth of the bucket in time at the VM's rate"`
	Timeout    law.Duration `json:"timeout" above:"0" jsonschema_description:"silence before the rate rises (Cong_Timeout)"`
	Inactivity law.Duration `json:"inactivity" above:"0" jsonschema_description:"a VM without traffic frees its share after it"`
	Increase   law.Rate     `json:"increase" jsonschema_description:"added to the rate each period without congestion"`
	Decrease   law.Rate     `json:"decrease" jsonschema_description:"taken from the rate for each mark"`
}
