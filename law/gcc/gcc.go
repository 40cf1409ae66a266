// Package gcc is SDN-GCC: the parameters of per-VM rates that a controller sets from the marks it collects (SPEC 1.6 to 1.8).
package gcc

import (
	"weir/law"
	"weir/law/limiter"
)

// Config configures gcc (SDN-GCC), SPEC 1.6 to 1.8.
type Config struct {
	limiter.Params
	Interval law.Duration `json:"interval" above:"0" jsonschema_description:"the controller reads marks this often (T_i)"`
	Variant  string       `json:"variant" jsonschema:"enum=paper,enum=ovs" jsonschema_description:"Algorithm 1 (AIAD), or the law of the Open vSwitch listings (SPEC 1.8)"`
	Clear    bool         `json:"clear" jsonschema_description:"GS-7: CE is cleared before delivery"`
}

// Default returns the defaults: T_i = 5 ms is the paper's; period, depth, timeout, Min_Rate and 5 Mbit/s a mark are the
// published code's. The increase is fitted to Fig. 2d (1.3 Mbit/s per ms, SPEC GS-5): the paper
// does not define scale().
func Default() *Config {
	return &Config{
		Params: limiter.Params{
			MinRate: 10e6, Period: 250e3, Depth: 25e6, Timeout: 2e6, Inactivity: 1e9, Increase: 325e3, Decrease: 5e6,
		},
		Interval: 5e6, Variant: "paper", Clear: true,
	}
}

// Spec describes gcc.
func Spec() law.Spec {
	return law.Spec{
		Name: "gcc", Folder: "sdn-gcc", Title: "SDN-GCC (paper 000)", Params: func() any { return Default() }, Worlds: law.BothWorlds(),
		Sites: []law.Site{law.SwitchPort, law.Uplink, law.VMPort, law.Controller}, Signals: []law.Signal{law.Backlog, law.Marks},
		// The law ecn runs at the same port and sets the marks.
		Claims: []law.Resource{law.ECN, law.Shim, law.SendRate},
	}
}
