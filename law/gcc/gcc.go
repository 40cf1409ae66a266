// Package gcc is SDN-GCC (paper 000; SPEC 1.6 to 1.8). Its two halves are laws of their own:
//
//	law.go   at the controller: it divides the marks of each port among the VMs that use it
//	host.go  at a hypervisor: the rate of each VM, from these messages and from the clock
package gcc

import (
	"errors"
	"fmt"

	"weir/law"
	"weir/law/limiter"
)

// Values of Config.Variant.
const (
	Paper = "paper" // Algorithm 1
	OVS   = "ovs"   // the Open vSwitch listings (SPEC 1.8)
	Code  = "code"  // the published evilbit.c
)

// Values of Config.Divide.
const (
	Equal = "equal"
	ByVM  = "by_vm"
)

// Config configures gcc (SDN-GCC), SPEC 1.6 to 1.8.
type Config struct {
	limiter.Params
	limiter.Steps              // of the variant paper
	Interval      law.Duration `json:"interval" above:"0" jsonschema_description:"the controller reads marks this often (T_i)"`
	Variant       string       `json:"variant" jsonschema:"enum=paper,enum=ovs,enum=code" jsonschema_description:"Algorithm 1, the law of the Open vSwitch listings (SPEC 1.8), or that of the published evilbit.c"`
	Divide        string       `json:"divide" jsonschema:"enum=equal,enum=by_vm" jsonschema_description:"marks of a port are divided equally among the VMs that use it (the paper), or each VM gets those of its own packets"`
	Clear         string       `json:"clear" jsonschema:"enum=all,enum=not_negotiated" jsonschema_description:"GS-7: hosts clear the ECN field of all packets towards a VM (the paper), or leave it to connections that negotiated ECN"`
	Delay         law.Duration `json:"delay" jsonschema_description:"messages are so late: steps become smaller, and timeout and fast_after longer, by 1 + delay/interval; 0s: messages come within interval"`
}

// Default returns the defaults. T_i = 5 ms is the paper's; period, Min_Rate and 5 Mbit/s a mark are the published code's. The paper
// does not define scale() and Cong_Timeout: gain, increase, fast_after, fast_increase and timeout are fitted to Fig. 2d
// (SPEC GS-5), once for all experiments.
func Default() *Config {
	return &Config{
		Params: limiter.Params{
			MinRate: 10e6, Period: 250e3, Depth: 25e6, Timeout: 10e6, Inactivity: 1e9, Increase: 325e3, Decrease: 5e6, Excess: law.ExcessQueue,
		},
		Steps:    limiter.Steps{Gain: 0.8, FastAfter: 200e6, FastIncrease: 2625e3},
		Interval: 5e6, Variant: Paper, Divide: Equal, Clear: law.ClearAll,
	}
}

// Check returns an error for parameters that cannot work together.
func (c *Config) Check() error {
	if err := c.Params.Check(); err != nil {
		return err
	}
	switch {
	case c.Interval > limiter.MostTime:
		return fmt.Errorf("interval: at most %v", limiter.MostTime)
	case c.Inactivity < c.Interval:
		return fmt.Errorf("inactivity: %v is shorter than interval, after which a host looks at what its VMs sent: choose %v or more", c.Inactivity, c.Interval)
	case c.Delay > mostLate*c.Interval:
		return fmt.Errorf("delay: at most %d times interval", mostLate)
	case c.Delay > 0 && c.Variant == OVS:
		return errors.New("delay: the law of the listings has no steps that it could make smaller: leave it out, or choose another variant")
	case c.Delay > 0 && c.Variant == Paper && c.Gain > mostLateGain:
		return fmt.Errorf("gain: with a delay rates swing: choose %v or less, or leave delay out", mostLateGain)
	case c.Variant == Paper:
		return c.Steps.Check(c.late().Increase)
	}
	return nil
}

// mostLate is the longest Delay in intervals.
const mostLate = 1000

// mostLateGain is the largest Gain with a Delay. If n VMs meet at a port, messages that are out of date lower a rate by Gain/n once more,
// although it is low enough. Up to a fifth, and with messages up to 200 ms late, a rate's SD is
// at most 15 % (docs/sdn-gcc.md); two VMs are the fewest that meet.
const mostLateGain = 0.4

// late returns the parameters for messages that are late by Delay. Until the marks of a rate come back, 1 + Delay/Interval messages about
// earlier rates do. So that all of them together are one step of the paper, each is so much smaller.
func (c *Config) late() Config {
	p := *c
	if c.Delay == 0 {
		return p
	}
	k := 1 + float64(c.Delay)/float64(c.Interval)
	p.Gain /= k
	for _, rate := range []*law.Rate{&p.Increase, &p.FastIncrease, &p.Decrease} {
		*rate = law.Rate(float64(*rate) / k)
	}
	for _, d := range []*law.Duration{&p.Timeout, &p.FastAfter} {
		*d = law.Duration(float64(*d) * k)
	}
	return p
}

// Spec describes gcc.
func Spec() law.Spec {
	return law.Spec{
		Name: "gcc", Folder: "sdn-gcc", Title: "SDN-GCC (paper 000)", Params: func() any { return Default() }, Worlds: law.BothWorlds(),
		Idle:  map[string]law.Idle{"depth": limiter.IdleDepth()},
		Sites: []law.Site{law.Uplink, law.VMPort, law.Controller}, Signals: []law.Signal{law.Marks},
		// The law ecn runs at the same port and sets the marks.
		Claims:   []law.Resource{law.ECN, law.SendRate},
		Interval: func(params any) law.Duration { return params.(*Config).Interval },
		Clear:    func(params any) string { return params.(*Config).Clear },
		Excess:   func(params any) string { return params.(*Config).Excess },
		New: func(site law.Site, params any, _ *law.Topology) (law.Law, error) {
			if site == law.Uplink {
				return NewHost(*params.(*Config))
			}
			return New(*params.(*Config))
		},
	}
}
