//go:build cgo

package fluid

import (
	"time"

	"weir/datapath/native"
)

// Case is FairQ, as in the kernel, on a queue.
type Case struct {
	Model
	Buffer    float64     // B, bytes
	Alpha     float64     // target, a share of B
	Updates   int         // M: ticks an update
	MSS       int         // bytes
	Flows     int         // all present from the start
	Gain      native.Gain // FQ-10
	SlowStart native.SlowStart
	Capped    bool // windows are limited to C*RTT + αB, as Weir does; the paper does not
}

// Target returns αB in bytes.
func (c *Case) Target() float64 { return c.Alpha * c.Buffer }

// Run runs the case for this many ticks.
func (c *Case) Run(ticks int) *Course {
	tick := uint64(c.Tick)
	config := native.FairQConfig{
		TargetBytes: uint32(c.Target()), BufferBytes: uint32(c.Buffer), TickNs: uint32(tick), PeriodNs: uint32(tick) * uint32(c.Updates),
		Gain: c.Gain, SlowStart: c.SlowStart,
	}
	if c.Capped {
		config.CapBytes = uint32(c.RateBps*c.RTT.Seconds() + c.Target())
	}
	law, now := native.NewFairQ(config, 0), uint64(0)
	defer law.Close()
	law.SawMSS(uint32(c.MSS))
	for range c.Flows {
		law.FlowAdded(now)
	}
	return c.Model.Run(ticks,
		func() float64 { return float64(law.WindowQ8()) / 256 * float64(law.Flows()) },
		func(backlog float64) {
			now += tick
			law.Sample(now, uint32(min(backlog, 1<<31)))
		})
}

// Verdict is how a case ends.
type Verdict struct {
	Swing float64 // largest less least queue of the last quarter, over the target
	Mean  float64 // mean queue of the last quarter, over the target
	Peak  float64 // largest queue of the whole run, over the buffer
}

// Settles reports whether the queue ends within a tenth of the target, and its mean too.
func (v Verdict) Settles() bool { return v.Swing < 0.1 && v.Mean > 0.9 && v.Mean < 1.1 }

// Judge runs a case until its windows could have settled, and as long again. It judges the last quarter.
func (c *Case) Judge() Verdict {
	// The paper's gain changes the sum by a segment an update: from the target to the target and the BDP.
	updates := c.RateBps*c.RTT.Seconds()/float64(c.MSS) + 100
	wait := max(2*updates*float64(c.Updates)*c.Tick.Seconds(), 200*c.RTT.Seconds())
	course := c.Run(int(wait * float64(time.Second) / float64(c.Tick)))
	least, mean, most := course.Range(0.75, 1)
	_, _, peak := course.Range(0, 1)
	return Verdict{(most - least) / c.Target(), mean / c.Target(), peak / c.Buffer}
}
