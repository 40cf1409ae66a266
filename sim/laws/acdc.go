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

// AC/DC TCP (He et al., SIGCOMM 2016): DCTCP enforced by the virtual switches of the hosts, whatever TCP the guests
// speak. It is here as a baseline: the published scheme nearest to FairQ in what it asks of guests, which is nothing.
//
//	acdc.go         parameters; what a run reads of it
//	acdc_window.go  DCTCP's window, computed beside the guest
//	acdc_table.go   what virtual switches know of connections
//	acdc_guard.go   a packet: what it tells, and what is written into it
//
// The virtual switch stands between a guest and its link, in its hypervisor or in the driver of its NIC: what leaves and
// reaches a guest passes it first and last.

// ACDC is `acdc` in the simulator.
func ACDC() Law { return Law{Check: checkACDC, Put: putACDC} }

// putACDC makes the switches in r.At mark, and puts a virtual switch before every host.
func putACDC(n *network.Network, r *experiment.Run, name string) (AtWork, error) {
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

// checkACDC says what of a run's AC/DC cannot be.
func checkACDC(r *experiment.Run, name string) error {
	params, err := law.Params[acdclaw.Params](r.Params, name)
	if err != nil {
		return err
	}
	if params.MinWindow < 0 || params.MinWindow > mostWindow {
		return fmt.Errorf("law %s: a window of %v at least: 0B to %v", name, params.MinWindow, law.Bytes(mostWindow))
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

// acdcCounts is what AC/DC did at all hosts of a network so far.
type acdcCounts struct {
	acks      uint64 // that came for a guest whose connection is known
	rewritten uint64 // of them, to a smaller window
	opened    uint64 // ends of connections that came into a table
	refused   uint64 // attempts to, for which there was no room
	policed   uint64 // segments that were dropped for being beyond the window
	alone     uint64 // feedback that had no room in a guest's segment
}

// Tally is what it counted, under the names of its Spec.
func (a *acdc) Tally() law.Tally {
	return law.Tally{acdclaw.Acks: a.counts.acks, acdclaw.Rewritten: a.counts.rewritten, acdclaw.Opened: a.counts.opened, acdclaw.Refused: a.counts.refused}
}
