// Package sed is SED and RSED (paper 001; SPEC 1.10, 1.11): a controller gives each flow the window that its deadline needs, and
// repairs its losses.
//
//	port.go      at a switch's port: normal or congested
//	law.go       at the controller: events, and grants to hosts
//	table.go     the table of flows (GIF)
//	allocate.go  Algorithm 2: the windows of a congested port
//	repair.go    RSED: which acknowledgements repair a loss
package sed

import (
	"fmt"
	"time"

	"weir/law"
)

// Values of the named choices.
const (
	PauseHold  = "hold"
	PauseFloor = "floor"
	PauseZero  = "zero"

	TripQueue = "queue"
	TripEmpty = "empty"

	ShortagePart = "part"
	ShortageNone = "none"

	OverloadMost     = "most"
	OverloadEarliest = "earliest"

	SpareBoth     = "both"
	SpareOthers   = "others"
	SpareEarliest = "earliest"

	FirstBase = "base"
	FirstOpen = "open"

	RepairDupACKs  = "dupacks"
	RepairDrained  = "dupacks_drained"
	RepairReinject = "reinject"
)

// Params configures sed, SPEC 1.10.
type Params struct {
	Threshold  law.Limit    `json:"threshold" above:"0" jsonschema_description:"a port is congested at this queue (K)"`
	Recover    law.Limit    `json:"recover" jsonschema_description:"and no longer so at or below this one"`
	BaseWindow law.Bytes    `json:"base_window" above:"0" jsonschema_description:"window of a flow without deadline (base_win)"`
	Period     law.Duration `json:"period" jsonschema_description:"SE-8: windows are allocated again this often; 0s: on events only, as printed"`
	Pause      string       `json:"pause" jsonschema:"enum=hold,enum=floor,enum=zero" jsonschema_description:"SE-6: the ACKs of a flow without a share are delayed (hold), or carry a window of one segment (floor) or of zero"`
	Hold       law.Duration `json:"hold" above:"0" jsonschema_description:"SE-6: how long an ACK of a paused flow waits at most: half of the guests' least RTO or less"`
	Margin     law.Duration `json:"margin" jsonschema_description:"with overhead: windows aim at this long before the deadline, in addition to one RTT: for reports, commands and hosts that are late"`
	Overhead   bool         `json:"overhead" jsonschema_description:"SE-8: shares count headers, whole segments and one RTT"`
	RoundTrip  string       `json:"round_trip" jsonschema:"enum=queue,enum=empty" jsonschema_description:"SE-14: windows are sized with the round trip through a queue of K, or through an empty one (Eq. 4 as printed)"`
	Shortage   string       `json:"shortage" jsonschema:"enum=part,enum=none" jsonschema_description:"the first flow whose share does not fit gets what is left (part), or nothing, as printed"`
	Overload   string       `json:"overload" jsonschema:"enum=most,enum=earliest" jsonschema_description:"if not all deadlines can be met: as many as possible are, or the earliest go first, as printed"`
	Spare      string       `json:"spare" jsonschema:"enum=both,enum=others,enum=earliest" jsonschema_description:"SE-3: what deadlines leave goes to flows without deadline (others, the body of the paper), to the earliest deadlines (the abstract), or to others and, if there are none, to the earliest (both)"`
	First      string       `json:"first" jsonschema:"enum=base,enum=open" jsonschema_description:"a new flow has a window of one segment until the controller has answered, which also acts when new flows could fill the port (base), or its own first window, as printed (open)"`
	Initial    int          `json:"initial_window" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"first: base: segments that a new flow is expected to send at once"`
	Lease      law.Duration `json:"lease" above:"0" jsonschema_description:"a window that is not renewed ends after it"`
	RTT        law.Duration `json:"rtt" jsonschema_description:"round-trip time with empty queues (RTT_avg); 0s: the network's"`
}

// Default returns the defaults. K = 30 of 100 packets and base_win = 1 MSS are the paper's. The recover threshold is on its
// missing first pages; K/2 is SPEC's proposal, as are period and pause. The paper's least RTO is 30 ms: hold is half of it. The
// choices that differ from the printed algorithm are the ones with a reason in docs/sed.md.
func Default() *Params {
	return &Params{
		Threshold: law.Limit{N: 30, Packets: true}, Recover: law.Limit{N: 15, Packets: true},
		BaseWindow: 1460, Period: 1e6, Pause: PauseHold, Hold: 15e6, Overhead: true, RoundTrip: TripQueue,
		Shortage: ShortagePart, Overload: OverloadMost, Spare: SpareBoth, First: FirstBase, Initial: 10, Lease: 100e6,
	}
}

// mostTime bounds the parameters that are times.
const mostTime = law.Duration(time.Hour)

// Check returns an error for parameters that cannot work together.
func (p *Params) Check() error {
	for _, d := range []law.Duration{p.Period, p.Hold, p.Lease, p.RTT, p.Margin} {
		if d > mostTime {
			return fmt.Errorf("period, hold, lease, rtt, margin: %v is more than %v", d, mostTime)
		}
	}
	switch {
	case p.Recover.Bytes() >= p.Threshold.Bytes():
		return fmt.Errorf("recover: %v is not below threshold, %v: a port would change its state with each packet", p.Recover, p.Threshold)
	case law.Duration(law.Renewal(time.Duration(p.Lease))) < p.Interval():
		return fmt.Errorf("lease: %v is shorter than three periods, in which a grant is renewed: choose %v or more", p.Lease, 3*p.Interval())
	}
	return nil
}

// Interval returns how often switches report how far flows have come.
func (p *Params) Interval() law.Duration {
	if p.Period > 0 {
		return p.Period
	}
	return printedInterval
}

// printedInterval is how often RSize is refreshed with the printed algorithm, which leaves it open.
const printedInterval = law.Duration(1e6)

// RepairParams configures rsed, SPEC 1.11: SED that repairs drops.
type RepairParams struct {
	Params
	Repair string    `json:"repair" jsonschema:"enum=dupacks,enum=dupacks_drained,enum=reinject" jsonschema_description:"three duplicate ACKs by way of the controller (the paper); the same, when the queue has drained; or the switch keeps the packet and sends it then (real stacks with SACK)"`
	Park   law.Bytes `json:"park" above:"0" jsonschema_description:"reinject: the most that a port keeps"`
}

// DefaultRepair returns the defaults of rsed: the paper's repair. Kept packets have as much room as the paper's buffer.
func DefaultRepair() *RepairParams {
	return &RepairParams{Params: *Default(), Repair: RepairDupACKs, Park: 150e3}
}

// Check returns an error for parameters that cannot work together.
func (p *RepairParams) Check() error {
	if p.Park > mostPark {
		return fmt.Errorf("park: at most %v", mostPark)
	}
	return p.Params.Check()
}

// mostPark bounds the memory of a port.
const mostPark = law.Bytes(64e6)

// Spec describes sed.
func Spec() law.Spec {
	s := spec("sed", func() any { return Default() })
	s.Interval = func(params any) law.Duration { return params.(*Params).Interval() }
	s.New = func(_ law.Site, params any, topo *law.Topology) (law.Law, error) {
		return New(*params.(*Params), "", topo.RTT)
	}
	return s
}

// RepairSpec describes rsed.
func RepairSpec() law.Spec {
	s := spec("rsed", func() any { return DefaultRepair() })
	s.Interval = func(params any) law.Duration { return params.(*RepairParams).Interval() }
	s.New = func(_ law.Site, params any, topo *law.Topology) (law.Law, error) {
		p := params.(*RepairParams)
		if err := p.Check(); err != nil {
			return nil, err
		}
		return New(p.Params, p.Repair, topo.RTT)
	}
	return s
}

func spec(name string, params func() any) law.Spec {
	return law.Spec{
		Name: name, Folder: "sed", Title: "SED, RSED (paper 001)", Params: params, Worlds: law.BothWorlds(),
		Sites:   []law.Site{law.SwitchPort, law.Controller, law.VMPort},
		Signals: []law.Signal{law.Backlog, law.Drops, law.Deadline, law.Progress}, Claims: []law.Resource{law.ReceiveWindow},
		Metrics: metrics(), Report: law.ReportTotals(metrics()),
	}
}

// metrics are what both laws count, of all ports together.
func metrics() []law.Metric {
	return append([]law.Metric{
		{Name: "triggers", Kind: law.Total, Text: "times that a port became congested (NOR to CNG)"},
		{Name: "window_grants", Kind: law.Total, Text: "windows that the controller granted"},
		{Name: "pauses", Kind: law.Total, Text: "times that a flow was paused"},
		{Name: "held_acks", Kind: law.Total, Text: "ACKs of paused flows that waited at a host"},
	}, law.RepairMetrics()...)
}
