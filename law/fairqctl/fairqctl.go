// Package fairqctl is FairQ by a controller, for networks whose switches have no agent (paper 002, II, "Role of SDN"; SPEC 1.1). The
// controller counts the flows of each port from copies of SYNs, FINs and RSTs. Hosts limit the windows.
package fairqctl

import (
	"fmt"
	"time"

	"weir/law"
)

// Name is the law's name.
const Name = "fairqctl"

// Params configures fairqctl.
type Params struct {
	TargetFraction float64      `json:"target_fraction" jsonschema:"minimum=0,maximum=1" jsonschema_description:"target queue as a fraction of the buffer (alpha)"`
	Rate           law.Rate     `json:"rate" jsonschema_description:"rate of the switches' ports (C), for ports without an agent; 0kbit: those are not limited"`
	Buffer         law.Bytes    `json:"buffer" jsonschema_description:"buffer of a port (B), for ports without an agent; 0B: those are not limited"`
	RTT            law.Duration `json:"rtt" jsonschema_description:"round trip with empty queues (RTT); 0s: that of the experiment, or 200us"`
	MSS            law.Bytes    `json:"mss" jsonschema:"minimum=88,maximum=65495" jsonschema_description:"largest segment (MSS): no window is below it and one byte (FQ-12)"`
	Update         law.Duration `json:"update" above:"0" jsonschema_description:"least time between two changes of the windows at a port"`
	Lease          law.Duration `json:"lease" above:"0" jsonschema_description:"a window that is not granted again ends after it; agents shorten it to 1s"`
	Idle           law.Duration `json:"idle" above:"0" jsonschema_description:"a connection counts for this long without a SYN, FIN or RST: copies get lost"`
}

// Default returns the defaults. alpha = 0.20 is RWNDQ1's (SPEC 1.1), and 200 us the RTT of its testbed (FQ-19).
func Default() *Params {
	return &Params{TargetFraction: 0.2, MSS: 1460, Update: 1e6, Lease: 1e9, Idle: 600e9}
}

const (
	defaultRTT  = law.Duration(200e3)
	leastUpdate = law.Duration(100e3)
	mostTime    = law.Duration(24 * time.Hour)
	mostBuffer  = law.Bytes(1) << 32
	mostRate    = law.Rate(1e13)
)

// Check returns an error for parameters that cannot work together.
func (p *Params) Check() error {
	switch {
	case p.Update < leastUpdate:
		return fmt.Errorf("update: %v is shorter than a message takes: choose %v or more", p.Update, leastUpdate)
	case p.Lease < 6*p.Update:
		return fmt.Errorf("lease: %v is shorter than 6 updates of %v: windows would end before they are renewed", p.Lease, p.Update)
	case p.Lease > mostTime || p.Idle > mostTime || p.RTT > mostTime:
		return fmt.Errorf("lease %v, idle %v, rtt %v: at most %v", p.Lease, p.Idle, p.RTT, mostTime)
	case p.Buffer > mostBuffer || p.Rate > mostRate:
		return fmt.Errorf("buffer %v, rate %v: at most %v and %v", p.Buffer, p.Rate, mostBuffer, mostRate)
	case (p.Rate == 0) != (p.Buffer == 0):
		return fmt.Errorf("rate %v, buffer %v: set both, or neither if agents report them", p.Rate, p.Buffer)
	}
	return nil
}

// Spec describes fairqctl.
func Spec() law.Spec {
	return law.Spec{
		Name: Name, Folder: "fairq", Title: "FairQ, FairSwitch, RWNDQ (paper 002 and the reports before it)",
		Params: func() any { return Default() }, Worlds: law.BothWorlds(),
		Sites: []law.Site{law.Controller, law.VMPort}, Signals: []law.Signal{law.Copies}, Claims: []law.Resource{law.ReceiveWindow},
		New: func(_ law.Site, params any, topo *law.Topology) (law.Law, error) {
			return New(*params.(*Params), topo.RTT)
		},
	}
}
