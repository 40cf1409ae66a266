// Package hygenicc is HyGenICC, which paper 000 compares SDN-GCC with (SPEC 1.9). Its two halves are laws of their own:
//
//	receiver.go  at the host that gets marked packets: it counts them for each pair, and sends the counts back
//	host.go      at the host that sent them: the rate of each VM, from these counts and from the clock
package hygenicc

import (
	"errors"
	"fmt"
	"time"

	"weir/law"
	"weir/law/limiter"
)

// Values of Config.Feedback.
const (
	Bit     = "evil_bit"
	Message = "message"
)

// Values of Config.Variant.
const (
	Code         = "code"         // the published code, which paper 000 compares with
	Proportional = "proportional" // SDN-GCC's steps: a rate falls by a part of itself, and rises without a jump
)

// Config configures hygenicc, SPEC 1.9.
type Config struct {
	limiter.Params
	limiter.Steps              // of the variant proportional
	Variant       string       `json:"variant" jsonschema:"enum=code,enum=proportional" jsonschema_description:"the law of the published code, or steps as SDN-GCC's, which use the link more: see gain, fast_after and fast_increase"`
	Interval      law.Duration `json:"interval" above:"0" jsonschema_description:"rate-update timeout"`
	Feedback      string       `json:"feedback" jsonschema:"enum=evil_bit,enum=message" jsonschema_description:"marks go back on the reserved IP flag, or counted in a packet of their own"`
}

// Default returns the defaults: 500 us (5 RTT) is paper 000's, the rest is the published code's. The values of the variant proportional
// use 97 % of a link in the fluid model (TestProportional_UsesTheLink).
func Default() *Config {
	return &Config{
		Params: limiter.Params{
			MinRate: 10e6, Period: 500e3, Depth: 25e6, Timeout: 2e6, Inactivity: 1e9, Increase: 1e6, Decrease: 5e6, Excess: law.ExcessQueue,
		},
		Steps:   limiter.Steps{Gain: 0.05, FastAfter: 200e6, FastIncrease: 5e6},
		Variant: Code, Interval: 500e3, Feedback: Message,
	}
}

// Check returns an error for parameters that cannot work together.
func (c *Config) Check() error {
	if c.Inactivity < c.Interval {
		return fmt.Errorf("inactivity: %v is shorter than interval, after which a host looks at what its VMs sent: choose %v or more", c.Inactivity, c.Interval)
	}
	if err := c.Params.Check(); err != nil {
		return err
	}
	if c.Variant == Proportional {
		return c.Steps.Check(c.Increase)
	}
	return nil
}

// Spec describes hygenicc.
func Spec() law.Spec {
	return law.Spec{
		Name: "hygenicc", Folder: "sdn-gcc", Title: "SDN-GCC (paper 000)", Params: func() any { return Default() }, Worlds: law.BothWorlds(),
		Idle:  map[string]law.Idle{"depth": limiter.IdleDepth()},
		Sites: []law.Site{law.Uplink, law.VMPort}, Signals: []law.Signal{law.Marks},
		// The law ecn runs at the switches' ports and sets the marks.
		Claims:   []law.Resource{law.ECN, law.Shim, law.SendRate},
		Interval: func(params any) law.Duration { return params.(*Config).Interval },
		Clear:    func(any) string { return law.ClearAll },
		Excess:   func(params any) string { return params.(*Config).Excess },
		Agents: func(params any) error {
			if params.(*Config).Feedback == Bit {
				return errors.New("feedback: agents return marks in messages, and evil_bit is the simulator's: choose message")
			}
			return nil
		},
		New: func(site law.Site, params any, _ *law.Topology) (law.Law, error) {
			if site == law.VMPort {
				return NewReceiver(*params.(*Config))
			}
			return NewHost(*params.(*Config))
		},
	}
}

// messageEvery is the least time between two messages of a pair with few marks (published code).
const messageEvery = time.Millisecond
