package tcp

import "weir/sim/event"

// alphaOne is alpha = 1: alpha is kept in 1/1024, as Linux does (DCTCP_MAX_ALPHA).
const alphaOne = 1024

// dctcp is RFC 8257 with the arithmetic of Linux (net/ipv4/tcp_dctcp.c). alpha is the moving average of the fraction of
// marked segments, updated once per window. A mark reduces the window by alpha/2, a loss by half. Between reductions
// the window grows as Reno's.
type dctcp struct {
	alpha        uint32 // DCTCP.Alpha, 1/1024
	windowEnd    uint32 // DCTCP.WindowEnd: SND.NXT when the observation window began
	delivered    uint32 // segments acknowledged in the observation window
	marked       uint32 // those of them that were marked
	cutWindow    uint32 // window before the last cut, for Undo (Linux: loss_cwnd)
	initialAlpha uint32
	gShift       uint8 // g = 1/2^gShift
}

func newDCTCP(o ControlOptions) *dctcp {
	d := &dctcp{gShift: o.GShift, initialAlpha: alphaOne}
	if d.gShift == 0 {
		d.gShift = 4
	}
	d.gShift = min(d.gShift, 10)
	if o.InitialAlpha != 0 {
		d.initialAlpha = uint32(min(max(o.InitialAlpha, 0), alphaOne))
	}
	return d
}

func (d *dctcp) Name() string   { return "dctcp" }
func (d *dctcp) ExactECN() bool { return true }
func (d *dctcp) Alpha() uint32  { return d.alpha }

func (d *dctcp) Start(_ *Window, s *Sample) {
	d.alpha = d.initialAlpha
	d.cutWindow = 0
	d.observe(s)
}

// observe begins an observation window. It ends when the data sent by now is acknowledged.
func (d *dctcp) observe(s *Sample) {
	d.windowEnd = s.Nxt
	d.delivered, d.marked = 0, 0
}

// Measure is RFC 8257 3.3, steps 1 to 9, counted in segments (Linux: dctcp_update_alpha).
func (d *dctcp) Measure(_ *Window, s *Sample) {
	d.delivered += s.Delivered
	d.marked += s.Marked
	if seqBefore(s.Una, d.windowEnd) {
		return
	}
	// alpha = (1 - g) alpha + g M. An alpha too small for the shift to reduce becomes 0.
	decay := d.alpha >> d.gShift
	if decay == 0 {
		decay = d.alpha
	}
	d.alpha -= decay
	if d.marked > 0 {
		part := uint64(d.marked) << (10 - d.gShift) / uint64(max(1, d.delivered))
		d.alpha = min(d.alpha+uint32(part), alphaOne)
	}
	d.observe(s)
}

func (d *dctcp) Grow(w *Window, s *Sample) { renoGrow(w, s) }

// Ssthresh is RFC 8257 3.3 for a mark, cwnd (1 - alpha/2), and 3.5 for a loss: half.
func (d *dctcp) Ssthresh(w *Window, _ *Sample, why Cause) uint32 {
	if why != CauseECE {
		d.cutWindow = w.Cwnd
		return renoSsthresh(w)
	}
	return d.cut(w, d.alpha)
}

// LossInCWR is RFC 8257 3.5: the cut for the mark may have been small, so the loss halves the present window (Linux:
// dctcp_state, dctcp_react_to_loss).
func (d *dctcp) LossInCWR(w *Window) { w.Ssthresh = d.Ssthresh(w, nil, CauseLoss) }

// cut returns the window reduced by p/2, p in 1/1024.
func (d *dctcp) cut(w *Window, p uint32) uint32 {
	d.cutWindow = w.Cwnd
	return max(w.Cwnd-uint32(uint64(w.Cwnd)*uint64(p)>>11), 2)
}

func (d *dctcp) Undo(w *Window) uint32             { return max(w.Cwnd, d.cutWindow) }
func (d *dctcp) Timeout(*Window, *Sample)          {}
func (d *dctcp) Idle(*Window, *Sample, event.Time) {}
