package experiment

import (
	"slices"

	"weir/law"
)

// maxControl is the largest delay and jitter of a controller's messages, that of sim/control.
const maxControl = law.Duration(100e9)

// controls reports whether one of the laws runs at a controller.
func (ls *Laws) controls(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		l, _ := ls.named(name)
		return slices.Contains(l.Sites, law.Controller)
	})
}

// controlDelay returns control_delay; 0: it is not set.
func (n *Network) controlDelay() law.Duration {
	if n.ControlDelay == nil {
		return 0
	}
	return *n.ControlDelay
}

// control returns how a controller's messages travel, for a network with this RTT; nil: the file says nothing.
func (n *Network) control(rtt law.Duration) *Control {
	if n.ControlDelay == nil && n.ControlJitter == 0 && n.ControlLoss == 0 {
		return nil
	}
	c := &Control{Delay: rtt / 2, Jitter: n.ControlJitter, Loss: n.ControlLoss}
	if n.ControlDelay != nil {
		c.Delay = *n.ControlDelay
	}
	return c
}
