package tcp

import "weir/sim/event"

// HyStart's parameters in Linux (net/ipv4/tcp_cubic.c).
const (
	hyStartLowWindow  = 16        // segments; below it, slow start continues
	hyStartAckDelta   = 2_000_000 // ns: ACKs further apart are not one train
	hyStartSamples    = 8         // delays of a round before they count
	hyStartDelayMin   = 4_000_000
	hyStartDelayMax   = 16_000_000
	hyStartMaxCushion = 1_000_000
	gsoMaxBytes       = 65536 // sk_gso_max_size
)

// hyStart ends slow start before the first loss (Ha, Rhee: Taming the Elephants, 2008, with Linux's later changes). It
// does so when the ACKs of a round come in one train longer than half the shortest RTT. It also does so when the
// shortest delay of a round has grown by an eighth.
type hyStart struct {
	roundStart event.Time
	lastAck    event.Time
	roundDelay event.Time // shortest of the round; 0: none yet
	end        uint32     // the round ends when this is acknowledged
	samples    uint8
	found      bool // slow start was ended
}

// round begins a round at s (Linux: bictcp_hystart_reset).
func (h *hyStart) round(s *Sample) {
	h.roundStart, h.lastAck = s.Now, s.Now
	h.roundDelay, h.samples = 0, 0
	h.end = s.Nxt
}

// update processes one ACK that measured a delay (Linux: hystart_update).
func (h *hyStart) update(w *Window, s *Sample, minDelay event.Time) {
	if seqBefore(h.end, s.Una) {
		h.round(s)
	}
	if s.Now-h.lastAck <= hyStartAckDelta {
		h.lastAck = s.Now
		// Half of the delay, as in Linux without pacing.
		if s.Now-h.roundStart > (minDelay+cushion(w, s))/2 {
			h.stop(w)
		}
	}
	if h.roundDelay == 0 || h.roundDelay > s.RTT {
		h.roundDelay = s.RTT
	}
	if h.samples < hyStartSamples {
		h.samples++
	} else if h.roundDelay > minDelay+min(max(minDelay/8, hyStartDelayMin), hyStartDelayMax) {
		h.stop(w)
	}
}

func (h *hyStart) stop(w *Window) {
	h.found = true
	w.Ssthresh = w.Cwnd
}

// cushion returns the time of a sender's bursts with segmentation offload, at most 1 ms. It is four of the largest bursts
// at the rate of the window, doubled in slow start. (Linux: hystart_ack_delay, with the rate of tcp_update_pacing_rate.)
func cushion(w *Window, s *Sample) event.Time {
	if s.SRTT <= 0 || s.MSS <= 0 {
		return 0
	}
	percent := int64(120)
	if w.Cwnd < w.Ssthresh/2 {
		percent = 200
	}
	window := int64(s.MSS) * int64(max(w.Cwnd, s.InFlight)) * percent / 100
	return min(hyStartMaxCushion, 4*gsoMaxBytes*s.SRTT/event.Time(window))
}
