package fairq

import (
	"fmt"
	"time"
)

// Hold says which flows of a port are held, and to what window.
type Hold uint8

// The values are those of bpf/fairq/flows.h.
const (
	// HoldAll holds every flow to the law's window, which an integrator finds from the queue.
	HoldAll Hold = 0
	// HoldPart holds a share of the flows to the equilibrium window, and lets the others pass. The queue
	// says little about the few that are held, so the integrator rests.
	HoldPart Hold = 1
	// HoldNone changes nothing: flows are counted, the equilibrium window is reckoned, and what would
	// be limited is counted. (What ScaleUnify told connections before, it goes on to convert.)
	HoldNone Hold = 2
)

func (h Hold) String() string {
	switch h {
	case HoldAll:
		return "all"
	case HoldPart:
		return "part"
	case HoldNone:
		return "none"
	}
	return fmt.Sprintf("hold %d", uint8(h))
}

// Lots is how many lots there are. A connection has one, by a keyed hash of its ends that these do not
// know, for as long as the tables live; HoldShare so many of them are held. A larger share holds the
// same flows and more.
const Lots = 1 << 16

// Arm is what the held, or the free, flows of a port do, since it was attached. Bytes are TCP's payload,
// by sequence numbers as they pass this switch.
type Arm struct {
	Flows              uint32 // that count, as the last beat found them
	DataBytes          uint64 // sent, again or for the first time
	RetransmittedBytes uint64 // of them, those sent again, or overtaken on their way here
	AckedBytes         uint64 // newly acknowledged: goodput
	Acks               uint64 // segments that acknowledge
	Limited            uint64 // of them, those rewritten; of free flows, those that would be if they were held
}

// portArms is what arms a port has.
type portArms struct {
	arm                        [2]Arm
	oneSidedData, oneSidedAcks uint32
}

func (m *fairqMaps) arms(id uint32, p *fairqPort) (a portArms, err error) {
	var cpus []fairqPortArms
	if err := m.Arms.Lookup(id, &cpus); err != nil {
		return a, fmt.Errorf("read its arms: %w", err)
	}
	for i := range cpus {
		for j := range a.arm {
			a.arm[j].add(&cpus[i], j)
		}
	}
	var c fairqControl
	if err := m.Controls.Lookup(uint32(0), &c); err != nil {
		return a, fmt.Errorf("read control: %w", err)
	}
	if s := &p.Swept[c.Swept%2]; s.Sweep == c.Swept { // or that sweep found nothing here
		a.oneSidedData, a.oneSidedAcks = s.OneSidedData, s.OneSidedAcks
		for j := range a.arm {
			a.arm[j].Flows = s.Flows[j]
		}
	}
	return a, nil
}

func (a *Arm) add(c *fairqPortArms, arm int) {
	counts := &c.Arm[arm]
	a.DataBytes += counts.DataBytes
	a.RetransmittedBytes += counts.AgainBytes
	a.AckedBytes += counts.AckedBytes
	a.Acks += counts.Acks
	a.Limited += counts.Limited
}

// rttSpanLog2Ns is RTT_SPAN_LOG2_NS of bpf/fairq/flows.h.
const rttSpanLog2Ns = 33

// handshakeRTT is the least of this span of time and the one before it.
func (p *fairqPort) handshakeRTT(nowNs uint64) time.Duration {
	rtt := p.RttNs
	switch uint32(nowNs>>rttSpanLog2Ns) - p.RttSpan {
	case 0:
		if before := p.RttBeforeNs; before > 0 && (rtt == 0 || before < rtt) {
			rtt = before
		}
	case 1:
	default:
		rtt = 0
	}
	return time.Duration(rtt)
}
