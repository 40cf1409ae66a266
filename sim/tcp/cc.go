package tcp

import (
	"fmt"

	"weir/sim/event"
)

// Window is the state that congestion control and loss recovery share: the limit of segments in flight. Units are
// segments, as in Linux. It is part of the endpoint.
type Window struct {
	Cwnd      uint32 // snd_cwnd: congestion window, >= 1
	Ssthresh  uint32 // snd_ssthresh; NoSsthresh until the first reduction
	Count     uint32 // snd_cwnd_cnt: acknowledged segments that have not increased Cwnd yet
	Clamp     uint32 // snd_cwnd_clamp: Cwnd never grows beyond it
	PriorCwnd uint32 // prior_cwnd: Cwnd before the last reduction
	PriorSst  uint32 // prior_ssthresh: Ssthresh before the last reduction; 0: nothing to undo
}

// NoSsthresh is a slow-start threshold that was never set (Linux: TCP_INFINITE_SSTHRESH).
const NoSsthresh = 0x7fffffff

// maxCwnd bounds windows, segments: the most that 32-bit sequence numbers allow with segments of one byte.
const maxCwnd = 1 << 30

// Sample is what one acknowledgement showed the sender. The Stack has one and fills it for each ACK, because an
// argument of an interface would be allocated. After a timeout or idle time only Now, Una, Nxt, SRTT, MinRTT, InFlight,
// Flight, MSS, Deadline and Remaining are set.
type Sample struct {
	Now       event.Time
	RTT       event.Time // of a segment that was sent once; 0: this ACK measured none (RFC 6298 Karn)
	SRTT      event.Time // smoothed; 0 before the first measurement
	MinRTT    event.Time // lowest of the connection; 0 before the first measurement
	Deadline  event.Time // of the data being sent; 0: none
	Remaining int64      // bytes of it that are not acknowledged yet
	Una, Nxt  uint32     // SND.UNA after this ACK, SND.NXT
	Delivered uint32     // segments that this ACK newly acknowledged or SACKed
	Marked    uint32     // the marked ones of Delivered: all if the ACK carries ECE, else 0
	Bytes     int32      // payload that was newly acknowledged cumulatively
	MSS       int32      // payload of a full segment
	InFlight  uint32     // segments in flight before this ACK
	Flight    uint32     // FlightSize of RFC 5681 in segments: sent and not acknowledged, without limited transmit; 0: not known
	Limited   bool       // the window limited the sender (Linux: tcp_is_cwnd_limited)
}

// Cause is the reason for reducing a window.
type Cause uint8

// The causes of a reduction.
const (
	CauseLoss    Cause = iota // fast retransmit begins (RFC 5681 3.2)
	CauseECE                  // an ACK with ECE, once per window (RFC 3168 6.1.2)
	CauseTimeout              // the retransmission timer fired (RFC 5681 (4))
)

// Control is one congestion control. The endpoint calls, in this order:
//
//   - Start when the connection is established (its window is set), also to reuse a Control;
//   - Measure first at every ACK, in every state, except at duplicates without new information;
//   - Grow after it, at ACKs that delivered something, outside reductions (Linux: tcp_cong_avoid);
//   - Ssthresh before a reduction, with Window as it was. The endpoint calls Window.Remember first, so that Undo
//     is possible. Then it sets Ssthresh, and reduces Cwnd (PRR, RFC 6582, or at once);
//   - LossInCWR instead of Ssthresh when fast recovery begins during a reduction for a mark;
//   - Timeout whenever the timer fired, before Cwnd becomes one segment: after Ssthresh, or without it if the data in
//     flight has reduced the window already;
//   - Undo when a reduction turned out spurious;
//   - Idle when sending begins with nothing in flight.
type Control interface {
	// Name returns the name that was passed to newControl.
	Name() string
	// ExactECN reports whether the receiver must echo the CE state of each segment (RFC 8257 3.2), instead of ECE until
	// CWR (RFC 3168 6.1.3).
	ExactECN() bool
	Start(w *Window, s *Sample)
	Measure(w *Window, s *Sample)
	Grow(w *Window, s *Sample)
	// Ssthresh returns the slow-start threshold of a reduction, in segments, >= 2.
	Ssthresh(w *Window, s *Sample, why Cause) uint32
	// LossInCWR may reduce Ssthresh further. The reduction that is in progress then continues towards it.
	LossInCWR(w *Window)
	Timeout(w *Window, s *Sample)
	// Undo returns the window to restore.
	Undo(w *Window) uint32
	// Idle is called when nothing was sent for the time idle.
	Idle(w *Window, s *Sample, idle event.Time)
	// Alpha returns DCTCP's estimate of the fraction of marked segments, in 1/1024; 0 for others.
	Alpha() uint32
}

// ControlOptions are the parameters of the congestion controls. Zero is Linux's default of each.
type ControlOptions struct {
	HalveFlight       bool // reno, newreno, sack: a loss halves FlightSize (RFC 5681 (4)), not the window
	NoHyStart         bool // cubic: slow start ends only at a loss or mark
	NoFastConvergence bool // cubic: RFC 9438 4.7 off
	NoFriendly        bool // cubic: RFC 9438 4.3 (Reno-friendly region) off
	// Tick is the granularity of cubic's clock. 0: 4 ms, the jiffy of CONFIG_HZ=250. Linux computes the growth once per
	// jiffy, so at an RTT of 1 ms the window exceeds W_est by much. 1: almost continuous, as in the RFC.
	Tick         event.Time
	GShift       uint8 // dctcp: g = 1/2^GShift; 0: 4 (RFC 8257 4.2: 1/16); <= 10
	InitialAlpha int32 // dctcp: alpha at start in 1/1024; 0: 1024 (RFC 8257 3.3: 1); < 0: 0
}

// newControl returns the congestion control of that name, or an error that lists the names. reno, newreno and sack have
// the same window; they differ in recovery, which is part of the endpoint.
func newControl(name string, o ControlOptions) (Control, error) {
	switch name {
	case "reno", "newreno", "sack":
		return &reno{name: name, halveFlight: o.HalveFlight}, nil
	case "cubic":
		return newCubic(o), nil
	case "dctcp":
		return newDCTCP(o), nil
	case "d2tcp":
		return &d2tcp{dctcp: *newDCTCP(o)}, nil
	}
	return nil, fmt.Errorf("congestion control %q is not known to the simulator: use reno, newreno, sack, cubic, dctcp or d2tcp", name)
}

// SlowStarting reports whether the window grows by slow start.
func (w *Window) SlowStarting() bool { return w.Cwnd < w.Ssthresh }

// Start sets an initial window of that many segments (RFC 6928).
func (w *Window) Start(initial, clamp uint32) {
	if clamp == 0 || clamp > maxCwnd {
		clamp = maxCwnd
	}
	*w = Window{Cwnd: max(1, min(initial, clamp)), Ssthresh: NoSsthresh, Clamp: clamp}
}

// Remember notes the window before a reduction, so that it can be undone (Linux: tcp_init_undo and
// tcp_init_cwnd_reduction). A reduction for a mark is never undone. reducing: another reduction is in progress.
func (w *Window) Remember(why Cause, reducing bool) {
	w.PriorCwnd = w.Cwnd
	w.PriorSst = 0
	if why != CauseECE {
		w.PriorSst = w.Current(reducing)
	}
}

// Current returns the threshold to remember before a reduction (Linux: tcp_current_ssthresh): outside a reduction at
// least three quarters of the window.
func (w *Window) Current(reducing bool) uint32 {
	if reducing {
		return w.Ssthresh
	}
	return max(w.Ssthresh, w.Cwnd>>1+w.Cwnd>>2)
}

// Restore undoes a reduction (Linux: tcp_undo_cwnd_reduction). cwnd is the result of Control.Undo.
func (w *Window) Restore(cwnd uint32) {
	if w.PriorSst == 0 {
		return
	}
	w.Cwnd = min(cwnd, w.Clamp)
	if w.PriorSst > w.Ssthresh {
		w.Ssthresh = w.PriorSst
	}
	w.PriorSst = 0
}

// Restart halves the window for each RTO that passed without sending, but not below the initial window. This is RFC
// 2861 as in Linux, tcp_cwnd_restart; RFC 5681 4.1 sets the initial window at once. Call it if idle > rto.
func (w *Window) Restart(idle, rto event.Time, initial uint32) {
	w.Ssthresh = w.Current(false)
	floor := min(initial, w.Cwnd)
	for idle > rto && w.Cwnd > floor {
		idle -= rto
		w.Cwnd >>= 1
	}
	w.Cwnd = max(w.Cwnd, floor)
}

// slowStart grows the window by the acknowledged segments, up to the threshold (RFC 5681 3.1, counted in segments: RFC
// 3465 without the limit L, Linux: tcp_slow_start). It returns the segments that remain for congestion avoidance.
func (w *Window) slowStart(acked uint32) uint32 {
	cwnd := min(w.Cwnd+acked, w.Ssthresh)
	acked -= cwnd - w.Cwnd
	w.Cwnd = min(cwnd, w.Clamp)
	return acked
}

// avoid grows the window by one segment per acknowledged segments (Linux: tcp_cong_avoid_ai). A credit from a time with
// a larger per is worth one segment only.
func (w *Window) avoid(per, acked uint32) {
	if w.Count >= per {
		w.Count = 0
		w.Cwnd++
	}
	w.Count += acked
	if w.Count >= per {
		grown := w.Count / per
		w.Count -= grown * per
		w.Cwnd += grown
	}
	w.Cwnd = min(w.Cwnd, w.Clamp)
}

// seqBefore reports whether sequence number a is before b (RFC 9293 3.4).
func seqBefore(a, b uint32) bool { return int32(a-b) < 0 }
