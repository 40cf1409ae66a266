package fairq

import (
	"fmt"
	"time"
)

// portGroups has the figures of a port's two groups of flows.
type portGroups struct {
	group                      [2]Group
	oneSidedData, oneSidedAcks uint32
	promisedBytes              uint64 // live promises
}

func (m *fairqMaps) groups(id uint32, p *fairqPort) (a portGroups, err error) {
	var cpus []fairqPortGroups
	if err := m.Groups.Lookup(id, &cpus); err != nil {
		return a, fmt.Errorf("read the counters of its groups: %w", err)
	}
	for i := range cpus {
		for j := range a.group {
			addGroup(&a.group[j], &cpus[i], j)
		}
	}
	var c fairqControl
	if err := m.Controls.Lookup(uint32(0), &c); err != nil {
		return a, fmt.Errorf("read control: %w", err)
	}
	if s := &p.Swept[c.Swept%2]; s.Sweep == c.Swept { // the last sweep may have found nothing here
		a.oneSidedData, a.oneSidedAcks, a.promisedBytes = s.OneSidedData, s.OneSidedAcks, s.PromisedBytes
		for j := range a.group {
			a.group[j].Flows = s.Flows[j]
		}
	}
	return a, nil
}

func addGroup(a *Group, c *fairqPortGroups, group int) {
	counts := &c.Group[group]
	a.DataBytes += counts.DataBytes
	a.RetransmittedBytes += counts.AgainBytes
	a.AckedBytes += counts.AckedBytes
	a.Acks += counts.Acks
	a.Limited += counts.Limited
}

// rttSpanLog2Ns is RTT_SPAN_LOG2_NS of bpf/fairq/flows.h.
const rttSpanLog2Ns = 33

// handshakeRTT returns the least round-trip time of this span and the one before it.
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
