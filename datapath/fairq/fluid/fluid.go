// Package fluid is the authors' model of a queue whose flows respect granted windows (SPEC 1.1, RWNDQ1 Eq.
// 1-3). It has no packets, so it shows the law alone: its equilibrium and whether it settles there.
//
//	Q(t) = [Q(t-dt) + dt/RTT * W(t-RTT/2) - C*dt]^+
//
// W is the sum of the windows. RTT is the base round trip and the time in the queue, Q/C: a window of W sends W
// per round trip, which a queue lengthens. With the base round trip alone, as Eq. 3 has it, queue and window
// both integrate.
package fluid

import (
	"math"
	"time"
)

// Model is one queue and the path to it.
type Model struct {
	RateBps float64       // C, bytes/s
	RTT     time.Duration // base round trip
	Tick    time.Duration // T: time between two samples of the law
	// ConstantRTT leaves the queue out of the round trip, as the equation is typeset.
	ConstantRTT bool
}

// stepsPerTick divides the shorter of T and RTT/2.
const stepsPerTick = 10

// Course is the queue over time, in bytes, one value a step.
type Course struct {
	Queue []float64
	StepS float64 // seconds a step
	ticks int     // steps a tick
}

// Run runs the model with a law for this many ticks. window returns the sum of the windows, and tick gets the
// queue, both in bytes. The queue is unbounded: what exceeds the buffer would be lost.
func (m *Model) Run(ticks int, window func() float64, tick func(backlog float64)) *Course {
	t, half := m.Tick.Seconds(), m.RTT.Seconds()/2
	steps := int(math.Ceil(stepsPerTick * t / min(t, half)))
	c := &Course{StepS: t / float64(steps), ticks: steps, Queue: make([]float64, 0, ticks*steps)}
	delay := int(math.Round(half / c.StepS))
	late := make([]float64, delay+1) // a ring: the sums of the last RTT/2
	backlog, at := 0.0, 0
	for i := range late {
		late[i] = window()
	}
	for range ticks {
		sum := window()
		for range steps {
			late[at] = sum
			at = (at + 1) % len(late)
			rtt := 2 * half
			if !m.ConstantRTT {
				rtt += backlog / m.RateBps
			}
			backlog = max(0, backlog+c.StepS*(late[at]/rtt-m.RateBps))
			c.Queue = append(c.Queue, backlog)
		}
		tick(backlog)
	}
	return c
}

// Range returns the least, the mean and the most of the part of a course between two shares of it, 0 to 1.
func (c *Course) Range(from, to float64) (least, mean, most float64) {
	n := float64(len(c.Queue))
	part := c.Queue[int(n*from):int(n*to)]
	least = math.Inf(1)
	for _, q := range part {
		least, most = min(least, q), max(most, q)
		mean += q / float64(len(part))
	}
	return least, mean, most
}

// MeanAt returns the mean of the queue over this many first ticks.
func (c *Course) MeanAt(ticks int) float64 {
	sum, n := 0.0, min(ticks*c.ticks, len(c.Queue))
	for _, q := range c.Queue[:n] {
		sum += q
	}
	return sum / float64(max(n, 1))
}
