package tcp

import "weir/sim/event"

// Cubic's constants, in the integers of Linux (net/ipv4/tcp_cubic.c).
const (
	cubicBeta      = 717 // β_cubic = 0.7, in 1/1024
	cubicC         = 410 // C = 0.4 segments/s³, in 1/1024
	cubicShift     = 10  // the function's clock counts 1/1024 s
	cubicFactor    = uint64(1<<(10+3*cubicShift)) / cubicC
	cubicFriend    = 8 * (1024 + cubicBeta) / 3 / (1024 - cubicBeta) // 8/α_cubic: ACKs for a Reno segment
	cubicMaxOffset = 1 << 18                                         // |t - K|: 256 s, where 64 bits overflow
	noEpoch        = -1
	defaultTick    = 4_000_000
)

// cubic is RFC 9438 with the arithmetic of Linux: the window follows W_cubic(t) = C (t-K)³ + W_max
// between reductions, is never below what Reno would have, and slow start ends by HyStart.
type cubic struct {
	epoch    event.Time // epoch_start, at the beginning of a tick; noEpoch after a reduction
	tickEnd  event.Time // end of the tick in which every was computed
	minDelay event.Time
	k        uint64 // K, 1/1024 s: the time in which the window returns to origin
	wMax     uint32 // W_max, segments; 0: no reduction yet
	origin   uint32 // the plateau: W_max, or the window where the epoch began above it
	every    uint32 // cnt: acknowledged segments per segment of growth
	lastCwnd uint32 // window for which every was computed
	acked    uint32 // acknowledged segments that have not increased wEst yet
	wEst     uint32 // W_est: the window of Reno since the epoch began (4.3)
	train    hyStart
	tick     event.Time // a jiffy
	second   event.Time // in whole ticks
	still    event.Time // a 32nd of a second in whole ticks
	options  ControlOptions
}

func newCubic(o ControlOptions) *cubic {
	c := &cubic{options: o, tick: o.Tick}
	if c.tick <= 0 {
		c.tick = defaultTick
	}
	c.second = event.Second / c.tick * c.tick
	c.still = event.Second / 32 / c.tick * c.tick
	return c
}

func (c *cubic) Name() string   { return "cubic" }
func (c *cubic) ExactECN() bool { return false }
func (c *cubic) Alpha() uint32  { return 0 }

func (c *cubic) Start(_ *Window, s *Sample) { c.reset(s) }

// reset clears what was learnt about the path (Linux: bictcp_reset, bictcp_hystart_reset).
func (c *cubic) reset(s *Sample) {
	*c = cubic{options: c.options, tick: c.tick, second: c.second, still: c.still, epoch: noEpoch}
	c.train.round(s)
}

// Measure keeps the shortest delay and updates HyStart (Linux: cubictcp_acked).
func (c *cubic) Measure(w *Window, s *Sample) {
	if s.RTT <= 0 {
		return
	}
	// Delays right after a recovery include a queue.
	if c.epoch != noEpoch && s.Now < c.epoch+c.second {
		return
	}
	if c.minDelay == 0 || c.minDelay > s.RTT {
		c.minDelay = s.RTT
	}
	if !c.options.NoHyStart && !c.train.found && w.SlowStarting() && w.Cwnd >= hyStartLowWindow {
		c.train.update(w, s, c.minDelay)
	}
}

// Grow is RFC 9438 4.1 and 4.10 (Linux: cubictcp_cong_avoid).
func (c *cubic) Grow(w *Window, s *Sample) {
	if !s.Limited {
		return
	}
	acked := s.Delivered
	if w.SlowStarting() {
		acked = w.slowStart(acked)
		if acked == 0 {
			return
		}
	}
	c.update(w.Cwnd, acked, s.Now)
	w.avoid(c.every, acked)
}

// update computes how many acknowledged segments grow the window by one (Linux: bictcp_update). It does so at most once
// per tick, and every 31 ms while the window stays the same.
func (c *cubic) update(cwnd, acked uint32, now event.Time) {
	c.acked += acked
	if c.lastCwnd == cwnd && now < c.tickEnd+c.still {
		return
	}
	if c.epoch == noEpoch || now >= c.tickEnd {
		at := now - now%c.tick
		c.lastCwnd, c.tickEnd = cwnd, at+c.tick
		if c.epoch == noEpoch {
			c.begin(cwnd, acked, at)
		}
		c.follow(cwnd, c.target(at))
	}
	if !c.options.NoFriendly {
		c.befriend(cwnd)
	}
	// RFC 9438 4.4: at most half a segment per acknowledged segment.
	c.every = max(c.every, 2)
}

// begin starts an epoch: K = cbrt((W_max - cwnd)/C) (RFC 9438 4.2).
func (c *cubic) begin(cwnd, acked uint32, at event.Time) {
	c.epoch, c.acked, c.wEst = at, acked, cwnd
	c.k, c.origin = 0, cwnd
	if c.wMax > cwnd {
		c.k = cubeRoot(cubicFactor * uint64(c.wMax-cwnd))
		c.origin = c.wMax
	}
}

// target is W_cubic(t + RTT) in segments (RFC 9438 4.2, equation 1), at the beginning of a tick.
func (c *cubic) target(at event.Time) int64 {
	delay := (c.minDelay + c.tick - 1) / c.tick * c.tick
	t := uint64(at-c.epoch+delay) << cubicShift / uint64(event.Second)
	if t < c.k {
		return int64(c.origin) - cubed(c.k-t)
	}
	return int64(c.origin) + cubed(t-c.k)
}

// cubed is C x³ in segments, x in 1/1024 s.
func cubed(x uint64) int64 {
	x = min(x, cubicMaxOffset)
	return int64(cubicC * x * x * x >> (10 + 3*cubicShift))
}

// follow spreads the growth to target over the next window.
func (c *cubic) follow(cwnd uint32, target int64) {
	if target > int64(cwnd) {
		c.every = uint32(int64(cwnd) / (target - int64(cwnd)))
	} else {
		c.every = 100 * cwnd // the plateau
	}
	// Nothing is known of the path yet: 5 % per RTT.
	if c.wMax == 0 && c.every > 20 {
		c.every = 20
	}
}

// befriend grows at least as fast as W_est, the window of Reno with the same reduction (RFC 9438 4.3).
func (c *cubic) befriend(cwnd uint32) {
	need := uint32(uint64(cwnd) * cubicFriend >> 3)
	for c.acked > need {
		c.acked -= need
		c.wEst++
	}
	if c.wEst > cwnd {
		c.every = min(c.every, cwnd/(c.wEst-cwnd))
	}
}

// Ssthresh is RFC 9438 4.6 with fast convergence (4.7): a flow whose window did not return to W_max leaves room for
// others (Linux: cubictcp_recalc_ssthresh).
func (c *cubic) Ssthresh(w *Window, _ *Sample, _ Cause) uint32 {
	c.epoch = noEpoch
	if w.Cwnd < c.wMax && !c.options.NoFastConvergence {
		c.wMax = uint32(uint64(w.Cwnd) * (1024 + cubicBeta) / (2 * 1024))
	} else {
		c.wMax = w.Cwnd
	}
	return max(uint32(uint64(w.Cwnd)*cubicBeta/1024), 2)
}

// LossInCWR does nothing: the reduction for the mark is the same (RFC 9438 4.6).
func (c *cubic) LossInCWR(*Window) {}

// Timeout is RFC 9438 4.8: slow start begins again (Linux: cubictcp_state, at every entry to Loss).
func (c *cubic) Timeout(_ *Window, s *Sample) { c.reset(s) }

// Undo is RFC 9438 4.9 as in Linux: the window before the reduction, with the W_max that the reduction set.
func (c *cubic) Undo(w *Window) uint32 { return renoUndo(w) }

// Idle shifts the epoch, so that the window does not jump to a size that was never tested (RFC 9438 5.8, Linux:
// cubictcp_cwnd_event).
func (c *cubic) Idle(_ *Window, s *Sample, idle event.Time) {
	if c.epoch == noEpoch || idle <= 0 {
		return
	}
	c.epoch = min(c.epoch+idle-idle%c.tick, s.Now-s.Now%c.tick)
}

// cubeRoot returns the largest integer whose cube is at most a. (Linux: cubic_root uses a table and one Newton step,
// and is off by 0.2 % on average. This one is exact.)
func cubeRoot(a uint64) uint64 {
	var root uint64
	for bit := uint64(1) << 20; bit > 0; bit >>= 1 {
		next := root | bit
		if next*next*next <= a {
			root = next
		}
	}
	return root
}
