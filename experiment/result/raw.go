// Package result is what an experiment yields: raw measurements of a run, the statistics made of
// them, and the document that is printed, stored and drawn.
package result

import (
	"net/netip"
	"time"

	"weir/law"
)

// Raw is what a world measured in one run, before any statistics. Times are in the world's own
// time, counted from the start of the traffic (t = 0).
type Raw struct {
	RTT      time.Duration // measured on the idle network, 0: not measured
	Unmet    []Unmet       // what was asked for and is not as asked
	Partial  bool          // the run was cut short
	Duration time.Duration // how long it ran
	Bin      time.Duration // width of a Delivery bin
	Flows    []Flow
	Ports    []Port
	Drops    []Drop
	// LostRecords counts measurements that did not fit: with any, dependent metrics are absent.
	LostRecords uint64
	// Busy is the share of all the machine's processors that was not idle, in each second of its clock;
	// empty where it does not apply or is not known.
	Busy []float64
	// LawSamples is what laws held of the ports whose queues are sampled.
	LawSamples []LawSample
	// LawTotals is what they counted at all their ports, in the whole run: metrics of kind law.Total.
	LawTotals []law.Value
	// PayloadShare is the largest share of a link's rate that can be payload of what was sent; 0: the world's own.
	PayloadShare float64
}

// LawEvery is how often a law's state is read, in the world's time: in the lab a few hundred of these a second cost less
// than one per cent of a processor.
const LawEvery = 10 * time.Millisecond

// LawSample is what a law held of a port at one moment.
type LawSample struct {
	At        time.Duration
	Port      string
	law.Value // of a metric of kind law.OverTime
}

// Flow is one flow (or one request on a persistent connection).
type Flow struct {
	Group, Item string
	Src, Dst    string        // data goes from Src to Dst
	Mouse       int           // index of its pair and connection within the group
	Epoch       int           // burst, or request within a closed loop
	Key         Key           // connecting side first
	Start       time.Duration // connect(), or the first byte of a request
	Wrote       time.Duration // the connecting program's first byte, from Start, on a connection of its own; 0: not known, or a SYN was lost
	End         time.Duration // last byte at the receiving program, or when it was given up or stopped
	Done        bool          // all bytes arrived; an Endless flow is done when stopped as planned
	Endless     bool          // had no size: it has no completion time
	Bytes       int64         // payload that reached the receiving program
	Size        int64         // payload that was to; 0: Endless, or a run of a build that did not note it
	Timeouts    int           // RTO events, both ends, the handshake's included; -1: not known
	Causes      Causes        // of the Timeouts
	Deadline    time.Duration // from Start; 0: none
	Delivered   []Delivery    // where in time the bytes arrived; ordered, sparse
	Opening     Opening       // of its connection
}

// Opening says whether the connection of a flow opened while the flow lasted: whether the accepting end got the last
// packet of the handshake.
type Opening uint8

// The values of Opening.
const (
	OpeningUnknown Opening = iota // UDP, or a run of a build that did not note it
	Opened
	NeverOpened
)

// Causes tells the retransmission timeouts of a flow apart, in the papers' words. FLoss-TO, full window loss: nothing
// of the window arrived. LAck-TO, lack of ACKs: some of it did, and too few ACKs came back for fast retransmit. Those of
// the handshake are neither. A world that does not see both ends does not know.
type Causes struct {
	Known       bool
	FLoss, LAck int32
}

// FCT is the flow completion time; meaningful when Done and not Endless.
func (f *Flow) FCT() time.Duration { return f.End - f.Start }

// Delivery is payload that reached the receiving program within one bin of Raw.Bin.
type Delivery struct {
	Bin   int32
	Bytes int32
}

// Key names a transport connection.
type Key struct {
	Proto    uint8 // 6 TCP, 17 UDP
	Src, Dst netip.AddrPort
}

// Reverse is the same connection seen from the other end.
func (k Key) Reverse() Key { return Key{k.Proto, k.Dst, k.Src} }

// Port is what was seen at one port of a switch or host.
type Port struct {
	Name    string   // "switch->receiver1"
	Labels  []string // of measure.ports
	RateBps int64
	Buffer  int64 // bytes
	Samples []Sample
}

// Sample holds what a port's queue was on Count consecutive points of a fixed grid that starts at
// At and advances by Step; counters are as of At.
type Sample struct {
	At      time.Duration
	Step    time.Duration
	Count   int64
	Backlog int64  // bytes
	Marks   uint64 // packets that left with CE and came without, so far
	Sent    uint64 // bytes taken from the queue, so far
}

// Drop is one packet that a port dropped.
type Drop struct {
	At     time.Duration
	Port   string // name of the port
	Key    Key    // zero when the packet was not TCP or UDP
	Bytes  int
	Reason string // tail, law
}

// LawTotal gives what laws counted of a metric of kind law.Total; false: none of them did.
func (r *Raw) LawTotal(metric string) (float64, bool) {
	for _, v := range r.LawTotals {
		if v.Metric == metric {
			return v.Value, true
		}
	}
	return 0, false
}
