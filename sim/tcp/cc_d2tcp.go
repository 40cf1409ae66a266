package tcp

import "math"

// d2tcp is D2TCP (Vamanan, Hasan, Vijaykumar: Deadline-Aware Datacenter TCP, SIGCOMM 2012): DCTCP whose reduction for a
// mark is p/2 with p = alpha^d. d is the urgency of the flow: a flow with d above 1 yields less (alpha <= 1), one below
// 1 more. Without a deadline d = 1, and this is DCTCP.
type d2tcp struct{ dctcp }

// Bounds of d (section 3.2), and its granularity, in 1/256.
const (
	urgencyOne = 256
	urgencyMin = urgencyOne / 2
	urgencyMax = urgencyOne * 2
)

func (d *d2tcp) Name() string { return "d2tcp" }

// Ssthresh is equation (2) with (1) for a mark: W (1 - p/2).
func (d *d2tcp) Ssthresh(w *Window, s *Sample, why Cause) uint32 {
	if why != CauseECE {
		return d.dctcp.Ssthresh(w, s, why)
	}
	return d.cut(w, gammaCorrect(d.alpha, urgency(w, s)))
}

// urgency returns d = Tc/D in 1/256 (section 3.2). Tc is the time to send the remaining bytes with a sawtooth between
// W/2 and W, which carries 3/4 W per RTT. D is the time left to the deadline. A flow past its deadline has the largest
// d.
func urgency(w *Window, s *Sample) uint32 {
	if s.Deadline == 0 || s.Remaining <= 0 || s.SRTT <= 0 {
		return urgencyOne
	}
	left := int64(s.Deadline - s.Now)
	if left <= 0 {
		return urgencyMax
	}
	perTrip := float64(0.75 * float64(int64(w.Cwnd)*int64(s.MSS)))
	needed := float64(float64(s.Remaining)/perTrip) * float64(s.SRTT)
	d := float64(needed * urgencyOne / float64(left))
	return uint32(min(max(d, urgencyMin), urgencyMax))
}

// gammaCorrect returns p = alpha^d (equation 1), alpha in 1/1024, d in 1/256 and < 1024. It multiplies square roots of
// alpha. Multiplication and square root give the same bits on every machine, and math.Pow does not.
func gammaCorrect(alpha, d uint32) uint32 {
	base := float64(alpha) / alphaOne
	p := 1.0
	for range d / urgencyOne {
		p = float64(p * base)
	}
	root := base
	for bit := uint32(urgencyOne / 2); bit > 0; bit >>= 1 {
		root = math.Sqrt(root)
		if d&bit != 0 {
			p = float64(p * root)
		}
	}
	return uint32(float64(p*alphaOne) + 0.5)
}
