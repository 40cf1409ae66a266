// Package tcp is the transport of the simulator's hosts: complete TCP. Sequence numbers are 32 bits and wrap, windows
// are 16 bits and a shift, and every segment has its record. If the RFCs leave the arithmetic open it is Linux's (6.x).
// Linux's own choices are settings in Config.
//
//	config.go     all parameters and switches
//	stack.go      connections, listeners, finding a packet's endpoint
//	endpoint.go   one end of a connection, and its methods for a program
//	handshake.go  SYN, SYN-ACK, options                         RFC 9293, 7323, 3168, 6298 5.7
//	input.go      a segment arrives; FIN, RST, states           RFC 9293 3.10.7
//	receive.go    data, in order and not; SACK and DSACK        RFC 2018, 2883
//	acking.go     when to acknowledge; the window offered       RFC 1122, 5681 4.2, 8257 3.2
//	output.go     what may be sent; headers                     RFC 9293 3.8.6, 1122, 896, 3042
//	smallqueue.go the limit of data in the host's NIC           Linux TCP Small Queues
//	segments.go   the scoreboard: a record per segment in flight
//	ack.go        an acknowledgement, step by step              Linux tcp_ack
//	sack.go       SACK blocks on the scoreboard                 RFC 2018, 2883, 6675
//	loss.go       which segments are lost                       RFC 6675, 6582
//	rack.go       loss by time                                  RFC 8985
//	recovery.go   states of loss recovery                       RFC 6675, 6582, Linux tcp_fastretrans_alert
//	frto.go       after a timeout; spurious timeouts            RFC 5682
//	undo.go       spurious reductions undone                    RFC 3708, 3522
//	window.go     cwnd: PRR, growth, validation, idle           RFC 6937, 2861, 5681 4.1
//	rtt.go        RTT and RTO                                   RFC 6298
//	timer.go      RTO, TLP, RACK, persist and delayed ACK       RFC 6298 5, 8985 7, 1122 4.2.2.17
//	cc*.go        congestion controls
//	check.go      conditions that must always be true of an endpoint
//	trace.go      changes that an observer sees
package tcp

import (
	"fmt"

	"weir/sim/event"
)

// Config is the behaviour of one end of connections. Default returns the values for each Control. It must not be
// changed after a Stack got it.
type Config struct {
	Control string         // reno, newreno, sack, cubic, dctcp, d2tcp
	Options ControlOptions // of the congestion control

	MSS           int32  // largest segment offered, payload and options of every segment, 88 .. 65495 bytes
	InitialWindow uint32 // segments (RFC 6928: 10)
	ClampWindow   uint32 // cwnd never grows beyond it, segments; 0: unlimited
	Buffer        int64  // receive buffer, bytes: the largest window offered, 1 .. 1 GiB. There is no auto-tuning
	Scale         int8   // window shift offered (RFC 7323), 0 .. 14; -1: no scaling; ScaleByBuffer: the least that can express Buffer

	RTOMin      event.Time // least RTO (RFC 6298 2.4: 1 s; Linux: 200 ms)
	RTOMax      event.Time // largest (RFC 6298 2.5; Linux: 120 s)
	InitialRTO  event.Time // of the first SYN (RFC 6298 2.1: 1 s)
	FallbackRTO event.Time // if the handshake timed out and measured no RTT (RFC 6298 5.7, Linux too: 3 s)
	Granularity event.Time // G of RFC 6298, 2.3
	Tick        event.Time // timers expire on multiples of it, as on Linux's jiffies (CONFIG_HZ=250: 4 ms); 0: exactly
	LinuxRTT    bool       // tcp_rtt_estimator: RTTVAR is the largest deviation of a round trip, at least RTOMin

	SmallQueues bool // Linux's TSQ: a connection has at most two bursts in its host's NIC (smallqueue.go)

	DelayedACK event.Time // timeout of a delayed ACK (Linux: 40 ms); every second segment is acknowledged at once; 0: each segment at once
	QuickACKs  int        // Linux's TCP_MAX_QUICKACKS: ACKs at once in the beginning and after duplicates (16); 0: none
	ACKPushed  bool       // Linux's ICSK_ACK_PUSHED: ACK when the program reads the end of a write, unless it answers
	Nagle      bool       // RFC 896 with Minshall's change, as Linux; false is TCP_NODELAY

	FillWindow bool // Linux: after full segments, a small one fills the rest of the peer's window
	// Linux bounds a segment by half of the largest window seen. For an accepted connection the SYN's window does not
	// count. The first window is that of the ACK which ends the handshake, and a switch may have made it small
	// (tcp_create_openreq_child).
	SYNWindowUncounted bool

	Timestamps  bool // RFC 7323: 12 bytes in each header, RTT of retransmitted segments, detection of spurious recoveries
	SACK        bool // RFC 2018
	DSACK       bool // RFC 2883: duplicates are reported
	ECN         bool // RFC 3168: requested, and granted to peers that request it
	ECTOnSYN    bool // SYN and SYN-ACK are ECT; otherwise a marking queue drops them (RFC 8257 3.6)
	ECTAlways   bool // all packets of a DCTCP connection are ECT: RST (RFC 8257 3.6); as in Linux, bare ACKs, FINs and retransmissions too
	OneCut      bool // RFC 3168 6.1.2: drops and marks of one window reduce it once. Linux reduces again if the ACK that ends a recovery has ECE
	ECNFallback bool // a SYN that timed out is retransmitted without ECN (RFC 3168 6.1.1.1)

	DupThresh          uint32     // duplicate ACKs or SACKed segments that show a loss (RFC 5681, 6675: 3)
	AllDuplicates      bool       // RFC 5681 2: every duplicate ACK counts. Linux without SACK counts at most one for each segment behind the hole
	LimitedTransmit    bool       // RFC 3042
	RACK               bool       // RFC 8985: loss detection by time; needs SACK
	TLP                bool       // RFC 8985 7: a probe before the RTO; needs SACK
	WorstDelayedACK    event.Time // WCDelAckT of RFC 8985 7.2 (Linux: RTOMin)
	ProbeSlack         event.Time // added to the probe's 2 SRTT and to RACK's wait (Linux's TCP_TIMEOUT_MIN: 2 ms)
	PRR                bool       // RFC 6937; else cwnd is ssthresh at once
	FRTO               bool       // RFC 5682
	Undo               bool       // undo reductions that DSACK or timestamps show to be spurious
	Rescue             bool       // RFC 6675 NextSeg rules 3 and 4
	Impatient          bool       // RFC 6582 4: the timer is reset at the first partial ACK only
	SlowStartAfterIdle bool       // RFC 5681 4.1
	WindowValidation   bool       // RFC 2861 as in Linux: cwnd falls if the program does not use it and no ACK comes for an RTO (it never grows without use)

	SYNLossWindow int // handshake retransmissions from which on the initial window is 1 segment (RFC 5681 3.1: 1; Linux: 2); 0: never
	SYNRetries    int // retransmissions of SYN and SYN-ACK before giving up (Linux: 6)
	Retries       int // R2: timeouts in a row before giving up (RFC 1122 4.2.3.5; Linux: 15)

	Deadline event.Time // d2tcp: from the first Write of an Endpoint; Endpoint.SetDeadline sets it by flow. 0: none
}

// ScaleByBuffer derives the window shift from Buffer.
const ScaleByBuffer = -2

// Limits.
const (
	maxBuffer      = 1 << 30 // the largest window of 65535 << 14
	maxScale       = 14      // RFC 7323 2.3
	timestampBytes = 12      // the option with its padding
)

// Default returns the settings of a congestion control. reno, cubic, dctcp and d2tcp follow Linux's TCP. newreno is RFC
// 6582 without SACK, and sack is RFC 6675 alone (as ns-2's Sack1). These two follow RFC 5681 and 6298, without Linux's
// additions.
func Default(control string) *Config {
	c := &Config{
		Control: control, MSS: 1460, InitialWindow: 10, Buffer: 3 << 20, Scale: ScaleByBuffer,
		RTOMin: 200 * event.Millisecond, RTOMax: 120 * event.Second,
		InitialRTO: event.Second, FallbackRTO: 3 * event.Second, Granularity: event.Millisecond,
		DelayedACK: 40 * event.Millisecond, WorstDelayedACK: 200 * event.Millisecond,
		DupThresh: 3, LimitedTransmit: true, SlowStartAfterIdle: true, SYNLossWindow: 1, SYNRetries: 6, Retries: 15,
	}
	switch control {
	case "newreno":
		c.Impatient, c.OneCut, c.Options.HalveFlight, c.AllDuplicates = true, true, true, true
		return c
	case "sack":
		c.SACK, c.Rescue, c.OneCut, c.Options.HalveFlight = true, true, true, true
		return c
	case "dctcp", "d2tcp":
		c.ECN, c.ECTOnSYN, c.ECTAlways = true, true, true
	}
	c.LinuxRTT, c.QuickACKs, c.ACKPushed, c.SYNLossWindow = true, 16, true, 2
	c.Timestamps, c.SACK, c.DSACK, c.ECNFallback = true, true, true, true
	c.ProbeSlack = 2 * event.Millisecond
	c.SmallQueues, c.FillWindow, c.SYNWindowUncounted = true, true, true
	c.RACK, c.TLP, c.PRR, c.FRTO, c.Undo, c.WindowValidation = true, true, true, true, true, true
	return c
}

// Check returns an error if a setting of a Config is out of range.
func (c *Config) Check() error {
	if _, err := newControl(c.Control, c.Options); err != nil {
		return err
	}
	for _, r := range []struct {
		name            string
		value, from, to int64
	}{
		{"an MSS", int64(c.MSS), 88, 65495},
		{"an initial window", int64(c.InitialWindow), 1, 1 << 20},
		{"a receive buffer", c.Buffer, 1, maxBuffer},
		{"a window scale", int64(c.Scale), ScaleByBuffer, maxScale},
		{"a minimum RTO", int64(c.RTOMin), 1, int64(c.RTOMax)},
		{"an initial RTO", int64(c.InitialRTO), 1, int64(c.RTOMax)},
		{"an RTO after a lost SYN", int64(c.FallbackRTO), 1, int64(c.RTOMax)},
		{"a maximum RTO", int64(c.RTOMax), 1, int64(3600 * event.Second)},
		{"a granularity", int64(c.Granularity), 0, int64(c.RTOMax)},
		{"a tick", int64(c.Tick), 0, int64(event.Second)},
		{"a delayed ACK", int64(c.DelayedACK), 0, int64(event.Second)},
		{"WCDelAckT", int64(c.WorstDelayedACK), 0, int64(c.RTOMax)},
		{"a probe's slack", int64(c.ProbeSlack), 0, int64(c.RTOMax)},
		{"quick ACKs", int64(c.QuickACKs), 0, 1 << 16},
		{"a duplicate threshold", int64(c.DupThresh), 1, 300},
		{"retransmissions of a SYN", int64(c.SYNRetries), 0, 127},
		{"retransmissions", int64(c.Retries), 1, 127},
	} {
		if r.value < r.from || r.value > r.to {
			return fmt.Errorf("tcp: %s of %d is out of range: set %d to %d", r.name, r.value, r.from, r.to)
		}
	}
	if !c.SACK && (c.RACK || c.TLP || c.DSACK) {
		return fmt.Errorf("tcp: RACK, TLP and DSACK need SACK: set SACK, or unset these")
	}
	return nil
}

// shift returns the window scale to offer: -1 for none.
func (c *Config) shift() int8 {
	if c.Scale != ScaleByBuffer {
		return c.Scale
	}
	s := int8(0)
	for c.Buffer>>s > 65535 && s < maxScale {
		s++
	}
	return s
}

// profile is a Config as a Stack uses it, with a pool of endpoints for reuse.
type profile struct {
	Config
	of    *Config
	scale int8
	free  []*Endpoint
}
