// Package result has the results of an experiment: the raw measurements of a run, the statistics calculated from
// them, and the document that is printed, stored and drawn.
package result

import (
	"net/netip"
	"time"

	"weir/law"
)

// Raw has the measurements of one run in one world, before any statistics. Times are in the world's own time, from
// the start of the traffic (t = 0).
type Raw struct {
	RTT      time.Duration // measured on the idle network, 0: not measured
	Unmet    []Unmet       // settings and requests that were not fulfilled
	Partial  bool          // the run was cut short
	Duration time.Duration // how long it ran
	Bin      time.Duration // width of a Delivery bin
	Flows    []Flow
	Ports    []Port
	Drops    []Drop
	// LostRecords counts measurements that did not fit: if there are any, dependent metrics are absent.
	LostRecords uint64
	// Busy is the share of all the machine's processors that was not idle, in each second of its clock; empty if
	// it does not apply or is not known.
	Busy []float64
	// LawSamples are the laws' metrics over time, of the ports whose queues are sampled.
	LawSamples []LawSample
	// LawTotals is what laws counted at all their ports, in the whole run: metrics of kind law.Total.
	LawTotals []law.Value
	// PayloadShare is the largest possible share of payload in a link's rate, for the segments sent; 0: the
	// world's default.
	PayloadShare float64
}

// LawEvery is the interval between two readings of a law's state, in the world's time: in the lab a few hundred
// readings a second cost less than one per cent of a processor.
const LawEvery = 10 * time.Millisecond

// LawSample is one reading of a law's metric at a port.
type LawSample struct {
	At        time.Duration
	Port      string
	law.Value // of a metric of kind law.OverTime
}

// Flow is one flow (or one request on a persistent connection).
type Flow struct {
	Group, Item string
	Src, Dst    string        // data is sent from Src to Dst
	Mouse       int           // index of its pair and connection within the group
	Epoch       int           // burst, or request within a closed loop
	Key         Key           // connecting side first
	Start       time.Duration // connect(), or the first byte of a request
	Wrote       time.Duration // the connecting program's first byte, from Start, on a connection of its own; 0: not known, or a SYN was lost
	End         time.Duration // last byte at the receiving program, or when it was given up or stopped
	Done        bool          // all bytes arrived; an Endless flow is done when stopped as planned
	Endless     bool          // without a size: it has no completion time
	Bytes       int64         // payload that reached the receiving program
	Size        int64         // payload it had to send; 0: Endless, or recorded by a build that did not note it
	Timeouts    int           // RTO events, both ends, the handshake's included; -1: not known
	Causes      Causes        // of the Timeouts
	OutOfOrder  OutOfOrder    // segments that arrived before their predecessors
	Deadline    time.Duration // from Start; 0: none
	Delivered   []Delivery    // when the bytes arrived; ordered, sparse
	Opening     Opening       // of its connection
}

// waited reports whether the flow never began: it waited for earlier flows of its open persistent connection until the run
// ended. It is unfinished, but it was never in progress.
func (f *Flow) waited() bool { return f.Opening == Opened && f.Key == Key{} }

// Opening reports whether the connection of a flow opened during the flow, that is, whether the accepting end
// received the last packet of the handshake.
type Opening uint8

// The values of Opening.
const (
	OpeningUnknown Opening = iota // UDP, or recorded by a build that did not note it
	Opened
	NeverOpened
)

// Causes counts the retransmission timeouts of a flow by cause, in the papers' words. FLoss-TO, full window loss:
// nothing of the window arrived. LAck-TO, lack of ACKs: some of it did, but too few ACKs came back for fast
// retransmit. Those of the handshake are neither. A world that does not see both ends does not know them.
type Causes struct {
	Known       bool
	FLoss, LAck int32
}

// OutOfOrder counts the segments of a flow that either end received before their predecessors, as tcpi_rcv_ooopack of Linux does:
// those behind a loss, and those that the network reordered. netstack does not count them.
type OutOfOrder struct {
	Known    bool
	Segments int64
}

// FCT returns the flow completion time; meaningful when Done and not Endless.
func (f *Flow) FCT() time.Duration { return f.End - f.Start }

// Delivery is payload that reached the receiving program in one bin of Raw.Bin.
type Delivery struct {
	Bin   int32
	Bytes int32
}

// Key identifies a transport connection.
type Key struct {
	Proto    uint8 // 6 TCP, 17 UDP
	Src, Dst netip.AddrPort
}

// Reverse returns the key of the same connection seen from the other end.
func (k Key) Reverse() Key { return Key{k.Proto, k.Dst, k.Src} }

// Port has the measurements of one port of a switch or host.
type Port struct {
	Name    string   // "switch->receiver1"
	Labels  []string // of measure.ports
	RateBps int64
	Buffer  int64 // bytes
	Samples []Sample
}

// Sample is the state of a port's queue on Count consecutive points of a fixed grid that starts at At with steps
// of Step; counters have their value at At.
type Sample struct {
	At      time.Duration
	Step    time.Duration
	Count   int64
	Backlog int64  // bytes
	Marks   uint64 // packets so far that arrived without CE and left with it
	Sent    uint64 // bytes so far that left the queue, as the port's line or shaper counts them
}

// Drop is one packet that a port dropped.
type Drop struct {
	At     time.Duration
	Port   string // name of the port
	Key    Key    // zero when the packet was not TCP or UDP
	Bytes  int
	Reason string // tail, law
}

// LawTotal returns the count of a metric of kind law.Total; false: no law counted it.
func (r *Raw) LawTotal(metric string) (float64, bool) {
	for _, v := range r.LawTotals {
		if v.Metric == metric {
			return v.Value, true
		}
	}
	return 0, false
}
