// Package fairq is what Weir knows of FairQ (RWNDQ, SPEC 1.1): its parameters, what they come to at a port, and what is
// said of a run that it could not hold as it should. Its decisions, per packet and per sample, are datapath/core/fairq/fairq.h.
package fairq

import "weir/law"

// Name is the law's.
const Name = "fairq"

// DefaultCount is how flows are counted where nothing says otherwise, on a switch and in experiments alike: by measurement
// (docs/fairq.md, Which flows count).
const DefaultCount = "opening"

// Spec is fairq.
func Spec() law.Spec {
	return law.Spec{
		Name: Name, Folder: "fairq", Title: "FairQ, FairSwitch, RWNDQ (paper 002 and the reports before it)",
		Params: func() any { return Default() }, Worlds: law.BothWorlds(), Sites: []law.Site{law.SwitchPort, law.VMPort},
		Signals: []law.Signal{law.Backlog, law.Flows}, Claims: []law.Resource{law.ReceiveWindow},
		Metrics: []law.Metric{
			{Name: Flows, Main: "mean", Heading: "law counts", Unit: "flows", Text: "flows that it counted"},
			{Name: Grant, Main: "p50", Heading: "grants each", Unit: "B p50", Text: "what windows were held to, while any were"},
			{Name: Window, Text: "the law's window, without the floor"},
			{Name: Acks, Kind: law.Total, Main: "-", Text: "acknowledgements of connections that it knows, where they leave"},
			{Name: Rewritten, Kind: law.Total, Main: "-", Text: "of them, to a smaller window"},
			{Name: Told, Kind: law.Total, Main: "-", Heading: "ACKs told", Unit: "thousand", Scale: 1e-3, Text: "edge mode: flagged, to tell the edge a window"},
			{Name: Left, Kind: law.Total, Main: "-", Heading: "ACKs left", Unit: "thousand", Scale: 1e-3, Text: "edge mode: as they were, left to the edge"},
		},
		Report: report,
	}
}

// Names of the metrics.
const (
	Flows     = "flows"
	Grant     = "grant_bytes"
	Window    = "window_bytes"
	Acks      = "acks"
	Rewritten = "acks_rewritten"
	Told      = "acks_told"
	Left      = "acks_left"
)

// What a Tally has beside the metrics of kind Total.
const (
	Seen    = "seen"    // packets
	Unknown = "unknown" // of them, acknowledgements of connections that it does not know
	Opened  = "opened"  // connections that came into a flow table
	Refused = "refused" // attempts to that failed
	Samples = "samples" // of queues, by the timer
	Late    = "late"    // and by a packet because the timer was late; never in the simulator
)

const noteworthy = 1000 // one in so many

// Sample is what FairQ holds of a port at one moment, as values of its metrics: how many flows it counts, its law's
// window and what windows are held to, in bytes (0: nothing is held).
func Sample(flows uint32, window, grant uint64) []law.Value {
	out := []law.Value{{Metric: Flows, Value: float64(flows)}, {Metric: Window, Value: float64(window)}}
	if grant > 0 {
		out = append(out, law.Value{Metric: Grant, Value: float64(grant)})
	}
	return out
}

// report says what kept FairQ from holding every flow where it is more than a thousandth of them, and where it did not see
// the queue when it should.
func report(t law.Tally) (totals []law.Value, trouble []string) {
	for _, name := range []string{Acks, Rewritten, Told, Left} {
		if (name == Told || name == Left) && t[Told]+t[Left] == 0 {
			continue // no edge mode
		}
		totals = append(totals, law.Value{Metric: name, Value: float64(t[name])})
	}
	if t[Refused]*noteworthy > t[Opened] {
		trouble = append(trouble, "fairq: over 0.1 % of the connections were not entered in the flow table (no room, or an entry of their addresses was there), and not held")
	}
	if t[Unknown]*noteworthy > t[Seen] {
		trouble = append(trouble, "fairq: over 0.1 % of the acknowledgements were of no connection in the flow table, and not rewritten")
	}
	if t[Late]*20 > t[Samples]+t[Late] {
		trouble = append(trouble, "fairq: over 5 % of the samples of queues were taken by a packet, because the timer was late")
	}
	return totals, trouble
}
