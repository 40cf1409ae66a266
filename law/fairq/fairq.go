// Package fairq describes FairQ (RWNDQ, SPEC 1.1): its parameters, their values at a port, and the notes on a run in which
// FairQ could not limit all flows. Its decisions, per packet and per sample, are in datapath/core/fairq/fairq.h.
package fairq

import "weir/law"

// Name is the law's name.
const Name = "fairq"

// DefaultCount is the default way of counting flows, on a switch and in experiments: by measurement (docs/fairq.md, Which
// flows count).
const DefaultCount = "opening"

// Spec describes fairq.
func Spec() law.Spec {
	return law.Spec{
		Name: Name, Folder: "fairq", Title: "FairQ, FairSwitch, RWNDQ (paper 002 and the reports before it)",
		Params: func() any { return Default() }, Worlds: law.BothWorlds(), Sites: []law.Site{law.SwitchPort, law.VMPort},
		Signals: []law.Signal{law.Backlog, law.Flows}, Claims: []law.Resource{law.ReceiveWindow, law.FirstPlace},
		Metrics: append([]law.Metric{
			{Name: Flows, Main: "mean", Heading: "law counts", Unit: "flows", Text: "active flows"},
			{Name: Grant, Main: "p50", Heading: "grants each", Unit: "B p50", Text: "the limit of windows, while flows were limited"},
			{Name: Window, Text: "the law's window, without the floor"},
			{Name: Acks, Kind: law.Total, Main: "-", Text: "acknowledgements of connections in the flow table, where they leave"},
			{Name: Rewritten, Kind: law.Total, Main: "-", Text: "of them, those rewritten to a smaller window"},
			{Name: Advertised, Kind: law.Total, Main: "-", Heading: "ACKs advertised", Unit: "thousand", Scale: 1e-3, Text: "edge mode: flagged, to advertise a window to the edge"},
			{Name: Left, Kind: law.Total, Main: "-", Heading: "ACKs left", Unit: "thousand", Scale: 1e-3, Text: "edge mode: unchanged, left to the edge"},
		}, law.RepairMetrics()...), // with credits
		Report: report,
	}
}

// Names of the metrics.
const (
	Flows      = "flows"
	Grant      = "grant_bytes"
	Window     = "window_bytes"
	Acks       = "acks"
	Rewritten  = "acks_rewritten"
	Advertised = "acks_advertised"
	Left       = "acks_left"
)

// Further counters of a Tally, in addition to the metrics of kind Total.
const (
	Seen    = "seen"    // packets
	Unknown = "unknown" // of them, acknowledgements of connections that are not in the flow table
	Opened  = "opened"  // connections that were entered in a flow table
	Refused = "refused" // connections that could not be entered
	Samples = "samples" // of queues, by the timer
	Late    = "late"    // samples by a packet, because the timer was late; never in the simulator
)

const noteworthy = 1000 // a note is written for more than one in so many

// Sample returns the state of a port at one moment as values of FairQ's metrics: the number of active flows, the law's window,
// and the limit of windows (0: no flow is limited). Windows are in bytes.
func Sample(flows uint32, window, grant uint64) []law.Value {
	out := []law.Value{{Metric: Flows, Value: float64(flows)}, {Metric: Window, Value: float64(window)}}
	if grant > 0 {
		out = append(out, law.Value{Metric: Grant, Value: float64(grant)})
	}
	return out
}

// report implements law.Spec.Report. It notes causes that kept FairQ from limiting more than a thousandth of the flows or
// ACKs, and samples of the queue that came late.
func report(t law.Tally) (totals []law.Value, trouble []string) {
	for _, name := range []string{Acks, Rewritten, Advertised, Left} {
		if (name == Advertised || name == Left) && t[Advertised]+t[Left] == 0 {
			continue // no edge mode
		}
		totals = append(totals, law.Value{Metric: name, Value: float64(t[name])})
	}
	if t[law.Kept]+t[law.LostFull]+t[law.ParkingFails] > 0 { // else every packet had room
		repairs, _ := law.ReportTotals(law.RepairMetrics())(t)
		totals = append(totals, repairs...)
	}
	if t[Refused]*noteworthy > t[Opened] {
		trouble = append(trouble, "fairq: over 0.1 % of the connections were not entered in the flow table (no room, or an entry of their addresses was there), and not limited")
	}
	if t[Unknown]*noteworthy > t[Seen] {
		trouble = append(trouble, "fairq: over 0.1 % of the acknowledgements were of no connection in the flow table, and not rewritten")
	}
	if t[Late]*20 > t[Samples]+t[Late] {
		trouble = append(trouble, "fairq: over 5 % of the samples of queues were taken by a packet, because the timer was late")
	}
	return totals, trouble
}
