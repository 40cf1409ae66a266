//go:build cgo

package laws

import (
	"fmt"

	"weir/datapath/native"
	"weir/experiment"
	"weir/law"
	acdclaw "weir/law/acdc"
	"weir/sim/event"
	"weir/sim/network"
)

// AC/DC TCP (He et al., SIGCOMM 2016): the virtual switches of the hosts enforce DCTCP, whatever TCP the guests use. It
// is a baseline: of the published schemes it is the nearest to FairQ, because it too asks nothing of guests.
//
//	acdc.go         parameters; what a run reads of it
//	acdc_window.go  DCTCP's window, computed for each sending guest
//	acdc_table.go   a virtual switch's table of connections
//	acdc_guard.go   a packet: what is read from it, and what is written into it
//
// The virtual switch runs between a guest and its link, in the hypervisor or in the driver of the NIC. So it is the
// first to see what the guest sends, and the last to see what it gets.

// ACDC returns the law `acdc`.
func ACDC() Law { return Law{Check: checkACDC, Put: putACDC} }

// putACDC puts marking on the switches in r.At, and a virtual switch before every host.
func putACDC(n *network.Network, r *experiment.Run, name string) (Attached, error) {
	params, err := law.Params[acdclaw.Params](r.Params, name)
	if err != nil {
		return nil, err
	}
	if err := markAt(n, r, name, native.MarkConfig{}, params.Threshold); err != nil {
		return nil, err
	}
	a := newACDC(n, &params)
	n.SetGuards(append(n.Guards(), a)...)
	return a, nil
}

// checkACDC returns an error if the parameters of a run's AC/DC are out of range.
func checkACDC(r *experiment.Run, name string) error {
	params, err := law.Params[acdclaw.Params](r.Params, name)
	if err != nil {
		return err
	}
	if params.MinWindow < 0 || params.MinWindow > mostWindow {
		return fmt.Errorf("law %s: min_window %v is out of range: set 0B to %v", name, params.MinWindow, law.Bytes(mostWindow))
	}
	return nil
}

func newACDC(n *network.Network, p *acdclaw.Params) *acdc {
	a := &acdc{
		net: n, gain: max(1, uint32(p.Gain*gainOne+0.5)), least: uint32(p.MinWindow), police: p.Police,
		patience: event.Time(p.Timeout), ends: make([]acdcEnd, 1), mostConns: tableFlows,
	}
	a.sweep.Init(a)
	return a
}

// acdcCounts counts what AC/DC did at all hosts of a network.
type acdcCounts struct {
	acks      uint64 // ACKs to guests whose connection is in the table
	rewritten uint64 // ACKs whose window was made smaller
	opened    uint64 // connection ends that were entered in a table
	refused   uint64 // connection ends that a full table refused
	policed   uint64 // segments dropped because they ended beyond the window
	alone     uint64 // feedback sent in an ACK of its own, because the guest's segment had no room
}

// Tally returns the counts under the names of the law's Spec.
func (a *acdc) Tally() law.Tally {
	return law.Tally{acdclaw.Acks: a.counts.acks, acdclaw.Rewritten: a.counts.rewritten, acdclaw.Opened: a.counts.opened, acdclaw.Refused: a.counts.refused}
}
