package tcp

import "weir/sim/event"

// reno is the window of RFC 5681 with appropriate byte counting (RFC 3465) as in Linux (net/ipv4/tcp_cong.c,
// tcp_reno_*). Slow start grows by the acknowledged segments, congestion avoidance by a segment per window, and a loss
// or mark halves the window. All state is in Window.
type reno struct {
	name        string
	halveFlight bool // ControlOptions.HalveFlight
}

func (r *reno) Name() string                      { return r.name }
func (r *reno) ExactECN() bool                    { return false }
func (r *reno) Start(*Window, *Sample)            {}
func (r *reno) Measure(*Window, *Sample)          {}
func (r *reno) LossInCWR(*Window)                 {}
func (r *reno) Timeout(*Window, *Sample)          {}
func (r *reno) Idle(*Window, *Sample, event.Time) {}
func (r *reno) Alpha() uint32                     { return 0 }
func (r *reno) Undo(w *Window) uint32             { return renoUndo(w) }
func (r *reno) Grow(w *Window, s *Sample)         { renoGrow(w, s) }

// Ssthresh is equation (4) of RFC 5681 for a loss with HalveFlight: half of the data in flight. Otherwise it is half of
// the window, as in Linux; this is more if the program does not fill the window. For a mark it is half of the window
// (RFC 3168 6.1.2).
func (r *reno) Ssthresh(w *Window, s *Sample, why Cause) uint32 {
	if r.halveFlight && why != CauseECE && s.Flight > 0 {
		return max(s.Flight>>1, 2)
	}
	return renoSsthresh(w)
}

// renoGrow is RFC 5681 3.1 (Linux: tcp_reno_cong_avoid).
func renoGrow(w *Window, s *Sample) {
	if !s.Limited {
		return // RFC 2861: an unused window does not grow
	}
	acked := s.Delivered
	if w.SlowStarting() {
		acked = w.slowStart(acked)
		if acked == 0 {
			return
		}
	}
	w.avoid(w.Cwnd, acked)
}

// renoSsthresh is tcp_reno_ssthresh of Linux: half of the window, at least two segments.
func renoSsthresh(w *Window) uint32 { return max(w.Cwnd>>1, 2) }

// renoUndo returns the window before the reduction (Linux: tcp_reno_undo_cwnd).
func renoUndo(w *Window) uint32 { return max(w.Cwnd, w.PriorCwnd) }
