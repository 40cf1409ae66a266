package fairq

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// EdgeMode is edge mode in the switch (docs/fairq.md): of a flow's ACKs only some are rewritten, and
// flagged for the edge, which remembers the window and applies it to all of them. Without an edge before
// a flow's sender the flow is hardly held.
type EdgeMode struct {
	// Interval: a flow whose window is held is told it once in so long. 0: off, every ACK is rewritten.
	// The kernel's tick (4 ms at 250 Hz) is the least that it can tell apart.
	Interval time.Duration
	// Change: a flow is told at once when its window has moved by more than this fraction. 0: 1/8.
	Change float64
	// Lease is how long the edge remembers: edge.Config.Lease. 0: 1 s.
	Lease time.Duration
}

// EdgeInterval is an interval that suits most networks: a flow of 10 Gbit/s is told with one ACK of
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
		// One ACK that is lost must not let a flow go.
		return fmt.Errorf("an edge's lease of %v: at least twice the interval (%v), at most 60s", e.Lease, e.Interval)
	case e.Change < 1.0/256 || e.Change > 1:
		return fmt.Errorf("an edge's change of %v: 1/256 to 1", e.Change)
	case c.Scale == ScaleShim:
		return errors.New("edge mode flags ACKs with one of the reserved bits that scale: shim fills: choose scale learn, with which switch and edge read the scales from the handshakes")
	case c.Scale == ScaleUnify:
		return errors.New("scale: unify converts the window of every ACK: edge mode spares it nothing, choose scale learn")
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

// shrink is Shrink as the switch's programs have it. In edge mode what leaves the switch is not what the sender is
// granted: the edge keeps right edges.
func (c *Config) shrink() Shrink {
	if c.Edge.Interval != 0 {
		return ShrinkAllow
	}
	return c.Shrink
}

// EdgeClock is a time in units of edge_clock.
func EdgeClock(d time.Duration) uint32 { return uint32(d.Nanoseconds() >> edgeClockShift) }
