package fairq

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// EdgeMode configures edge mode in the switch (docs/fairq.md). The switch rewrites only some of a flow's ACKs
// and flags them for the edge, which remembers the window and applies it to all ACKs. Without an edge in front
// of a flow's sender the flow is hardly limited.
type EdgeMode struct {
	// Interval is the time between two advertisements of a limited flow's window: 1 ms to 10 s, in steps of the
	// kernel's tick (4 ms at 250 Hz). 0: edge mode is off, and every ACK is rewritten.
	Interval time.Duration
	// Change is the fraction (1/256 to 1) by which a window must change to be advertised at once. 0: 1/8.
	Change float64
	// Lease is how long the edge remembers: edge.Config.Lease. 0: 1 s.
	Lease time.Duration
}

// EdgeInterval is an interval that suits most networks: a flow of 10 Gbit/s gets an advertisement on one ACK of
// some thousands.
const EdgeInterval = 10 * time.Millisecond

func (e EdgeMode) withDefaults() EdgeMode {
	if e.Interval == 0 {
		return EdgeMode{}
	}
	if e.Change == 0 {
		e.Change = 1.0 / 8
	}
	if e.Lease == 0 {
		e.Lease = time.Second
	}
	return e
}

func (e *EdgeMode) check(c *Config) error {
	switch {
	case e.Interval == 0:
		return nil
	case e.Interval < time.Millisecond || e.Interval > 10*time.Second:
		return fmt.Errorf("an edge interval of %v: 1ms to 10s", e.Interval)
	case e.Lease < 2*e.Interval || e.Lease > 60*time.Second:
		// The loss of one ACK must not release a flow.
		return fmt.Errorf("an edge's lease of %v: at least twice the interval (%v), at most 60s", e.Lease, e.Interval)
	case e.Change < 1.0/256 || e.Change > 1:
		return fmt.Errorf("an edge's change of %v: 1/256 to 1", e.Change)
	case c.Scale == ScaleShim:
		return errors.New("edge mode flags ACKs with one of the reserved bits that scale: shim uses: choose scale: learn, with which switch and edge read the scales from the handshakes")
	case c.Scale == ScaleUnify:
		return errors.New("scale: unify converts the window of every ACK, so edge mode saves nothing: choose scale: learn")
	}
	return nil
}

// edgeClockShift: the kernel programs' coarse clock counts 2^20 ns.
const edgeClockShift = 20

// set sets the constants of the switch program.
func (e *EdgeMode) set(spec *ebpf.CollectionSpec) error {
	if e.Interval == 0 {
		return nil
	}
	return errors.Join(
		spec.Variables[fairqVarEdgeInterval].Set(max(1, EdgeClock(e.Interval))),
		spec.Variables[fairqVarEdgeLease].Set(EdgeClock(e.Lease)),
		spec.Variables[fairqVarEdgeChange].Set(uint16(e.Change*256)),
	)
}

// shrink returns Shrink for the switch's programs. In edge mode the window that leaves the switch is not the
// one that the sender is granted, and the edge respects right edges.
func (c *Config) shrink() Shrink {
	if c.Edge.Interval != 0 {
		return ShrinkAllow
	}
	return c.Shrink
}

// EdgeClock converts a duration to units of edge_clock.
func EdgeClock(d time.Duration) uint32 { return uint32(d.Nanoseconds() >> edgeClockShift) }
