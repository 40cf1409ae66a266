package tcp

import (
	"fmt"

	"weir/sim/event"
)

// Window is what congestion control and loss recovery share: how many segments may be in flight. The
// units are segments, as in Linux. It lives in the endpoint.
type Window struct {
	Cwnd      uint32 // snd_cwnd: congestion window, >= 1
	Ssthresh  uint32 // snd_ssthresh; NoSsthresh until the first reduction
	Count     uint32 // snd_cwnd_cnt: segments acknowledged that have not made Cwnd grow yet
	Clamp     uint32 // snd_cwnd_clamp: Cwnd never grows beyond
	PriorCwnd uint32 // prior_cwnd: Cwnd before the last reduction
	PriorSst  uint32 // prior_ssthresh: Ssthresh before the last reduction; 0: nothing to undo
}

// NoSsthresh is a slow-start threshold that nothing set yet (Linux: TCP_INFINITE_SSTHRESH).
const NoSsthresh = 0x7fffffff

// maxCwnd bounds windows: what 32-bit sequence numbers could carry with segments of one byte.
const maxCwnd = 1 << 30

// Sample is what one acknowledgement told, in the sender's view. Stack keeps one and fills it anew: as
// an argument of an interface it would else be allocated. At a timeout and after idle only Now, Una,
// Nxt, SRTT, MinRTT, InFlight, Flight, MSS, Deadline and Remaining hold something.
type Sample struct {
	Now       event.Time
	RTT       event.Time // of a segment that was sent once; 0: this ACK measured none (RFC 6298 Karn)
	SRTT      event.Time // smoothed; 0 before the first measurement
	MinRTT    event.Time // lowest of the connection; 0 before the first measurement
	Deadline  event.Time // of what is being sent; 0: none
	Remaining int64      // bytes of it that were not acknowledged yet
	Una, Nxt  uint32     // SND.UNA after this ACK, SND.NXT
	Delivered uint32     // segments that this ACK newly acknowledged or SACKed
	Marked    uint32     // those of Delivered that were marked: all where the ACK carries ECE, else 0
	Bytes     int32      // payload that was newly acknowledged cumulatively
	MSS       int32      // payload of a full segment
	InFlight  uint32     // segments in flight before this ACK
	Flight    uint32     // FlightSize of RFC 5681 in segments: sent and not acknowledged, without what limited transmit sent; 0: not known
	Limited   bool       // the window limited the sender (Linux: tcp_is_cwnd_limited)
}

// Cause is why a window is to be cut.
type Cause uint8

// The causes of a reduction.
const (
	CauseLoss    Cause = iota // fast retransmit begins (RFC 5681 3.2)
	CauseECE                  // an ACK with ECE, once per window (RFC 3168 6.1.2)
	CauseTimeout              // the retransmission timer fired (RFC 5681 (4))
)

// Control is one congestion control. The endpoint calls, in this order:
//
//   - Start when the connection is established (its window is set), also to use a Control anew;
//   - Measure at every ACK that is not a duplicate without news, in every state, before all else;
//   - Grow after it, at ACKs which delivered something, outside reductions (Linux: tcp_cong_avoid);
//   - Ssthresh before a reduction, with Window as it was. The endpoint then sets Ssthresh and lets
//     Cwnd follow (PRR, RFC 6582, at once); Window.Remember first, so that Undo can be asked;
//   - Timeout after Ssthresh when the timer fired, before Cwnd is cut to one segment;
//   - Undo when a reduction turned out spurious;
//   - Idle when sending begins with nothing in flight.
type Control interface {
	// Name is the name that newControl was asked for.
	Name() string
	// ExactECN says that the receiver shall echo the CE state of each segment (RFC 8257 3.2) instead
	// of latching ECE until CWR (RFC 3168 6.1.3).
	ExactECN() bool
	Start(w *Window, s *Sample)
	Measure(w *Window, s *Sample)
	Grow(w *Window, s *Sample)
	// Ssthresh gives the slow-start threshold of a reduction, in segments, >= 2.
	Ssthresh(w *Window, s *Sample, why Cause) uint32
	Timeout(w *Window, s *Sample)
	// Undo gives the window to go back to.
	Undo(w *Window) uint32
	// Idle tells that nothing was sent for idle.
	Idle(w *Window, s *Sample, idle event.Time)
	// Alpha is the fraction of marked segments as DCTCP estimates it, in 1/1024; 0 for others.
	Alpha() uint32
}

// ControlOptions are the numbers of the congestion controls. Zero is Linux's default of each.
type ControlOptions struct {
	HalveFlight       bool // reno, newreno, sack: a loss halves FlightSize (RFC 5681 (4)), not the window
	NoHyStart         bool // cubic: slow start ends with a loss or mark only
	NoFastConvergence bool // cubic: RFC 9438 4.7 off
	NoFriendly        bool // cubic: RFC 9438 4.3 (Reno-friendly region) off
	// Tick is the grain of cubic's clock. 0: 4 ms, the jiffy of CONFIG_HZ=250: Linux computes the
	// growth once a jiffy, so that with round trips of 1 ms the window overshoots W_est by much.
	// 1: as good as none, as the RFC writes it.
	Tick         event.Time
	GShift       uint8 // dctcp: g = 1/2^GShift; 0: 4 (RFC 8257 4.2: 1/16); <= 10
	InitialAlpha int32 // dctcp: alpha at start in 1/1024; 0: 1024 (RFC 8257 3.3: 1); < 0: 0
}

// newControl makes the congestion control of that name. reno, newreno and sack have the same window;
// they differ in recovery, which is the endpoint's.
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
	return nil, fmt.Errorf("congestion control %q is not known to the simulator: reno, newreno, sack, cubic, dctcp, d2tcp", name)
}

// SlowStarting says whether slow start is what grows the window.
func (w *Window) SlowStarting() bool { return w.Cwnd < w.Ssthresh }

// Start begins a connection with an initial window (RFC 6928) of so many segments.
func (w *Window) Start(initial, clamp uint32) {
	if clamp == 0 || clamp > maxCwnd {
		clamp = maxCwnd
	}
	*w = Window{Cwnd: max(1, min(initial, clamp)), Ssthresh: NoSsthresh, Clamp: clamp}
}

// Remember notes the window before a reduction, so that it can be undone (Linux: tcp_init_undo and
// tcp_init_cwnd_reduction). A reduction for a mark is never undone. reducing: one is under way.
func (w *Window) Remember(why Cause, reducing bool) {
	w.PriorCwnd = w.Cwnd
	w.PriorSst = 0
	if why != CauseECE {
		w.PriorSst = w.Current(reducing)
	}
}

// Current is the threshold that says most of what the path bore (Linux: tcp_current_ssthresh): a
// sender between two reductions is credited three quarters of its window.
func (w *Window) Current(reducing bool) uint32 {
	if reducing {
		return w.Ssthresh
	}
	return max(w.Ssthresh, w.Cwnd>>1+w.Cwnd>>2)
}

// Restore takes a reduction back (Linux: tcp_undo_cwnd_reduction). cwnd is what Control.Undo gave.
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

// Restart halves the window for each rto that passed without sending (RFC 2861 as Linux has it,
// tcp_cwnd_restart; RFC 5681 4.1 asks for the initial window at once), not below the initial window.
// For idle > rto.
func (w *Window) Restart(idle, rto event.Time, initial uint32) {
	w.Ssthresh = w.Current(false)
	floor := min(initial, w.Cwnd)
	for idle > rto && w.Cwnd > floor {
		idle -= rto
		w.Cwnd >>= 1
	}
	w.Cwnd = max(w.Cwnd, floor)
}

// slowStart grows the window by what was acknowledged, up to the threshold (RFC 5681 3.1, counted in
// segments: RFC 3465 without the limit L, Linux: tcp_slow_start). It returns what is left for
// congestion avoidance.
func (w *Window) slowStart(acked uint32) uint32 {
	cwnd := min(w.Cwnd+acked, w.Ssthresh)
	acked -= cwnd - w.Cwnd
	w.Cwnd = min(cwnd, w.Clamp)
	return acked
}

// avoid grows the window by one segment for each per segments acknowledged (Linux: tcp_cong_avoid_ai).
// What was saved up for a larger per is worth one segment only.
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

// seqBefore compares sequence numbers (RFC 9293 3.4).
func seqBefore(a, b uint32) bool { return int32(a-b) < 0 }
