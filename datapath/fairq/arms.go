package fairq

import (
	"fmt"
	"time"
)

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
			addArm(&a.arm[j], &cpus[i], j)
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

func addArm(a *Arm, c *fairqPortArms, arm int) {
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
