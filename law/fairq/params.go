package fairq

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"weir/law"
)

// Params configures fairq (RWNDQ), SPEC 1.1.
type Params struct {
	Interval       law.Duration `json:"interval" above:"0" jsonschema_description:"sampling interval (T)"`
	Updates        int          `json:"updates" jsonschema:"minimum=1,maximum=1024" jsonschema_description:"samples a window update (M)"`
	TargetFraction float64      `json:"target_fraction" jsonschema:"exclusiveMinimum=0,exclusiveMaximum=1" jsonschema_description:"target queue as a fraction of the buffer (alpha)"`
	Gain           string       `json:"gain" jsonschema:"enum=paper,enum=code" jsonschema_description:"FQ-10: the paper's gain, MSS * kappa / flows, or the published code's"`
	Aggregate      bool         `json:"aggregate" jsonschema_description:"FQ-11: slow start adds 2 MSS to all windows together (default), not to every flow's as printed"`
	Start          string       `json:"start,omitempty" jsonschema:"enum=path,enum=target" jsonschema_description:"the sum of all windows when a port without flows begins. path: what its path holds, bandwidth x delay + target, at most the buffer (default). target: as printed, from where slow start takes many RTTs on a fast port. Windows of SYN-ACKs share the target with both"`
	Count          string       `json:"count" jsonschema:"enum=active,enum=opening,enum=handshake" jsonschema_description:"flows that sent recently; with the windows of SYN-ACKs limited to the share that counts open handshakes (opening, the default) or without (active), or the paper's SYN/FIN register"`
	MinWindow      law.Bytes    `json:"min_window" jsonschema_description:"least window (FQ-12); 0B: the flow's own MSS"`
	MaxWindow      law.Bytes    `json:"max_window" jsonschema_description:"most a flow is granted (Wmax); 0B: bandwidth x delay + target"`
	Idle           law.Duration `json:"idle" above:"0" jsonschema_description:"the flow count restarts after this long without data"`
	Scale          string       `json:"scale" jsonschema:"enum=learn,enum=shim,enum=unify" jsonschema_description:"source of a flow's window scale: the SYNs (learn), also a shim at the hosts (shim), or one scale that all SYNs are rewritten to announce (unify)"`
	UnifyShift     int          `json:"unify_shift" jsonschema:"minimum=0,maximum=14" jsonschema_description:"scale: unify: the window scale that SYNs announce; windows come in steps of 2 to its power"`
	Shrink         string       `json:"shrink" jsonschema:"enum=allow,enum=avoid" jsonschema_description:"whether the window's right edge may move left"`
	Edge           bool         `json:"edge" jsonschema_description:"edge mode: the switches rewrite and flag some ACKs, and the last port before the sender applies each flow's window to all of them"`
	Paths          int          `json:"paths" jsonschema:"minimum=1,maximum=1024" jsonschema_description:"equal paths (ECMP): flows whose data passes another switch than their acknowledgements are limited to a port's window divided by it; 1: they are not limited"`
	Undivided      bool         `json:"undivided" jsonschema_description:"paths above 1: limit to the whole window instead"`
	EdgeInterval   law.Duration `json:"edge_interval" above:"0" jsonschema_description:"edge: true: a flow's window is advertised once in this interval, and at once when it has changed by more than an eighth"`
	Promises       bool         `json:"promises,omitempty" jsonschema_description:"SYN-ACKs and requests grant a first flight that the port has room for"`
	Credits        bool         `json:"credits,omitempty" jsonschema_description:"promises; and when one segment of each flow exceeds the port's capacity, ACKs wait until the port has drained what was released before"`
	HoldRequests   *bool        `json:"hold_requests,omitempty" jsonschema_description:"credits: true: requests wait while the buffer has no room for the answers that late servers still owe (default: true)"`
	RepairLosses   *bool        `json:"repair_losses,omitempty" jsonschema_description:"credits: true: segments that the buffer has no room for wait, and are sent later in order (default: true)"`
	LongestWait    law.Duration `json:"longest_wait,omitempty" jsonschema_description:"credits: true: the longest time that a packet waits for its credit, 1ms to 1s, half of the guests' least retransmission timeout; 0s: 100ms"`
	FairSwitch     bool         `json:"fairswitch,omitempty" jsonschema_description:"the paper's hardware (SPEC 1.3): the queue is the mean of the last 32 samples, every change of the flow count sets the windows to target / flows, and there is no slow start"`
}

// Default returns the defaults: T = 50 us, M = 10 and alpha = 0.20 are RWNDQ1's (SPEC 1.1). Slow start adds to the sum of all
// windows, as in the authors' code. The printed form adds 2 MSS for each flow and update: 16 flows that start together then
// fill a buffer of 83 packets before their first data is through (FQ-11). A scale of 7 is that of Linux with 6 MB of receive
// buffer: windows up to 8 MB in steps of 128 bytes.
func Default() *Params {
	return &Params{
		Interval: 50e3, Updates: 10, TargetFraction: 0.2, Gain: "paper", Aggregate: true, Count: DefaultCount,
		Idle: 1e9, Scale: "learn", UnifyShift: 7, Shrink: "allow", EdgeInterval: 10e6, Paths: 1,
	}
}

// Limits holds the limits of FairQ's parameters that differ between worlds.
type Limits struct {
	Interval law.Duration  // least sampling interval
	Active   time.Duration // longest time that a flow can stay active after it last sent; 0: no limit
}

// LabLimits returns the limits of the switch program: a kernel timer, and times in 32 bits.
func LabLimits() Limits {
	return Limits{Interval: 10e3, Active: 4 * time.Second}
}

// SimLimits returns the limits of the simulator.
func SimLimits() Limits { return Limits{Interval: 1e3} }

// Defaults of edge mode.
const (
	EdgeLease  = law.Duration(1e9) // how long the edge remembers a window
	EdgeChange = 1.0 / 8           // a window that changes by more than this fraction is advertised at once
)

const startTarget = "target" // of Params.Start

// DefaultWait is the longest time that a packet waits for its credit: half of the least retransmission timeout of Linux.
const DefaultWait = law.Duration(100e6)

const (
	leastWait      = law.Duration(1e6)
	mostWait       = law.Duration(1e9)     // core/fairq/credit.h
	mostPeriod     = law.Duration(1e9)     // between two updates (core/fairq/fairq.h)
	mostWindow     = 1 << 30               // TCP's largest, 65535 << 14, is just below (core/fairq/fairq.h)
	leastActive    = 10 * time.Millisecond // that a flow stays active after it last sent
	leastEdge      = law.Duration(1e6)     // of the switch program
	mostEdge       = EdgeLease / 2         // the loss of one ACK must not release a flow
	mostFairSwitch = 4                     // samples per update, with gain: code
)

// Check returns an error for a parameter, or a port of the network, that is outside the limits of a world.
func (p *Params) Check(topo *law.Topology, world Limits) error {
	switch {
	case p.Interval < world.Interval || p.Interval > mostPeriod/law.Duration(max(1, p.Updates)):
		return fmt.Errorf("a sampling interval of %v and %d samples an update: the interval must be at least %v, and an update takes %v at most", p.Interval, p.Updates, world.Interval, mostPeriod)
	case p.MinWindow < 0 || p.MinWindow > mostWindow || p.MaxWindow < 0 || p.MaxWindow > mostWindow:
		return fmt.Errorf("windows of %v to %v: 0B to %v", p.MinWindow, p.MaxWindow, law.Bytes(mostWindow))
	case p.LongestWait != 0 && (p.LongestWait < leastWait || p.LongestWait > mostWait):
		return fmt.Errorf("a longest_wait of %v: choose %v to %v", p.LongestWait, leastWait, mostWait)
	case p.FairSwitch && p.Gain == "code" && p.Updates > mostFairSwitch:
		// The mean over 32 samples lags so much that this gain keeps overshooting.
		return fmt.Errorf("fairswitch with gain: code oscillates with more than %d samples an update: choose gain: paper", mostFairSwitch)
	case p.HoldRequests != nil && !p.Credits:
		return errors.New("hold_requests has an effect with credits only: add credits: true")
	case p.RepairLosses != nil && !p.Credits:
		return errors.New("repair_losses has an effect with credits only: add credits: true")
	case p.Edge && (p.Promises || p.Credits):
		return errors.New("edge mode works without promises and credits only: an edge writes the windows later")
	case p.Edge && p.Scale != "learn":
		return fmt.Errorf("edge mode with scale: %s: shim uses the reserved bit that flags ACKs in edge mode, and unify converts the window of every ACK: choose scale: learn", p.Scale)
	case p.Edge && (p.EdgeInterval < leastEdge || p.EdgeInterval > mostEdge):
		return fmt.Errorf("an edge_interval of %v: choose %v to %v, half of the time that the edge remembers a window", p.EdgeInterval, leastEdge, mostEdge)
	}
	for _, l := range topo.Links {
		if l.Rate == 0 {
			continue
		}
		if err := p.checkPort(topo.RTT, l.Rate, l.Buffer.Bytes(), world.Active); err != nil {
			return fmt.Errorf("between %s and %s: %w", l.A, l.B, err)
		}
	}
	return nil
}

func (p *Params) checkPort(rtt law.Duration, rate law.Rate, buffer law.Bytes, mostActive time.Duration) error {
	if buffer > math.MaxUint32 {
		return fmt.Errorf("a buffer of %v: at most %v", buffer, law.Bytes(math.MaxUint32))
	}
	at := p.At(rtt, rate, buffer)
	switch {
	case buffer > 0 && int64(at.Target) >= int64(buffer):
		return errors.New("a buffer of 1B: the target must be below it; choose a larger buffer")
	case mostActive > 0 && at.Active > mostActive:
		return fmt.Errorf("a queue at its target of %d bytes takes so long to drain that flows would count for %v: %v at most; lower the buffer or target_fraction, or raise the rate", at.Target, at.Active, mostActive)
	}
	return nil
}

// Port holds the values of FairQ's parameters at one port.
type Port struct {
	Target, Buffer uint32 // of the queue, bytes
	Floor, Cap     uint32 // of a flow's window, bytes; 0: none
	Pipe           uint32 // BDP, bytes
	Start          uint32 // of the sum of all windows when there are no flows, bytes
	Tick, Period   time.Duration
	Active         time.Duration // how long a flow stays active after it last sent
	Wait           time.Duration // the longest time that a packet waits for its credit
	Hold           bool          // with credits: requests wait while late servers owe more than the buffer has room for
	Repair         law.Repair    // with credits: segments that the buffer has no room for wait; zero: they are dropped
}

// mostKept is the most that a port with credits keeps of segments that its buffer has no room for. At most rates, what it sends in
// 100 ms is less (law.RepairAt).
const mostKept = law.Bytes(2 << 20)

// At returns the parameters at a port of this rate and buffer, where flows have this RTT with empty queues. The target is a
// fraction of the buffer. A flow is granted at most the BDP plus the target, and stays active for four RTTs with the queue at
// its target.
func (p *Params) At(rtt law.Duration, rate law.Rate, buffer law.Bytes) Port {
	target := max(1, uint32(float64(buffer)*p.TargetFraction))
	drain := time.Duration(float64(target) * 8 / float64(rate) * float64(time.Second))
	pipe := min(float64(rate)/8*rtt.Std().Seconds(), mostWindow)
	f := Port{
		Pipe:   uint32(pipe),
		Target: target, Buffer: uint32(buffer), Floor: uint32(p.MinWindow), Cap: uint32(p.MaxWindow),
		Tick: p.Interval.Std(), Period: p.Interval.Std() * time.Duration(p.Updates), Active: max(4*(rtt.Std()+drain), leastActive),
		Wait: cmp.Or(p.LongestWait, DefaultWait).Std(), Hold: p.HoldRequests == nil || *p.HoldRequests,
	}
	if p.RepairLosses == nil || *p.RepairLosses {
		f.Repair, _ = law.RepairAt(rate, buffer, mostKept) // an error: the buffer is too short for it
	}
	f.Start = target
	if p.Start != startTarget {
		// If all these windows come at once, they still fit into the buffer.
		f.Start = max(target, uint32(min(pipe+float64(target), float64(buffer))))
	}
	if f.Cap == 0 {
		f.Cap = uint32(min(pipe+float64(target), mostWindow))
	}
	return f
}
