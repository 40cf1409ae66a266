// Package hygenicc is HyGenICC: the parameters of per-VM rates that the sending host sets from the marks its peers count
// (SPEC 1.9).
package hygenicc

import (
	"weir/law"
	"weir/law/limiter"
)

// Config configures hygenicc, SPEC 1.9.
type Config struct {
	limiter.Params
	Interval law.Duration `json:"interval" above:"0" jsonschema_description:"rate-update timeout"`
	Feedback string       `json:"feedback" jsonschema:"enum=evil_bit,enum=message" jsonschema_description:"marks go back on the reserved IP flag, or counted in a packet of their own"`
}

// Default returns the defaults: 500 us (5 RTT) is paper 000's; the rest is the published code's.
func Default() *Config {
	return &Config{
		Params: limiter.Params{
			MinRate: 10e6, Period: 500e3, Depth: 25e6, Timeout: 2e6, Inactivity: 1e9, Increase: 1e6, Decrease: 5e6,
		},
		Interval: 500e3, Feedback: "message",
	}
}

// Spec describes hygenicc.
func Spec() law.Spec {
	return law.Spec{
		Name: "hygenicc", Folder: "sdn-gcc", Title: "SDN-GCC (paper 000)", Params: func() any { return Default() }, Worlds: law.BothWorlds(),
		Sites: []law.Site{law.SwitchPort, law.Uplink, law.VMPort}, Signals: []law.Signal{law.Backlog, law.Marks},
		// The law ecn runs at the same port and sets the marks.
		Claims: []law.Resource{law.ECN, law.Shim, law.SendRate},
	}
}
