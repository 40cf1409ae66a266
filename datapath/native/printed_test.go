//go:build cgo

package native_test

import (
	"testing"

	"weir/datapath/native"
)

// The queue of the authors' analysis (SPEC 1.1): 10 Gbit/s, RTT 100 us, buffer 83 packets, α 20 %.
const (
	packet   = 1500
	buffer   = 83 * packet
	target   = buffer / 5 // 16.6 packets
	tickNs   = 50_000
	m        = 10
	periodNs = m * tickNs
	rateBps  = 10e9 / 8 // bytes per second
	rttNs    = 100_000
	bdp      = rateBps * rttNs / 1e9 // 83.3 packets
)

func config() native.FairQConfig {
	return native.FairQConfig{
		TargetBytes: target, BufferBytes: buffer, TickNs: tickNs, PeriodNs: periodNs,
		CapBytes: bdp + target,
	}
}

// queue is the law with a clock that ticks.
type queue struct {
	*native.FairQ
	now uint64
}

func newQueue(t testing.TB, c native.FairQConfig, flows int) *queue {
	t.Helper()
	q := &queue{FairQ: native.NewFairQ(c, 0)}
	t.Cleanup(q.Close)
	q.SawMSS(packet)
	for range flows {
		q.FlowAdded(q.now)
	}
	return q
}

func (q *queue) tick(backlog uint32) {
	q.now += tickNs
	q.Sample(q.now, backlog)
}

// period is M ticks: one update.
func (q *queue) period(backlog uint32) {
	for range m {
		q.tick(backlog)
	}
}

func (q *queue) window() float64 { return float64(q.WindowQ8()) / 256 }

// printed is Algorithm 1 to the letter, line by line, errors included.
type printed struct {
	rwnd, beta, gamma float64
	ticks             int // Γ
	slowStart         bool
}

func (p *printed) synAck() {
	if p.beta <= 0 {
		p.rwnd = target
	} else {
		p.rwnd *= p.beta / (p.beta + 1)
	}
	p.beta++
}

func (p *printed) fin() {
	p.beta--
	if p.beta >= 0 {
		p.rwnd *= (p.beta + 1) / p.beta
	} else {
		p.rwnd = target
		p.slowStart = true
	}
}

func (p *printed) timer(backlog float64) {
	kappa := 1 - backlog/target
	p.gamma += kappa * packet / m
	p.ticks++
	if p.ticks == m {
		if p.slowStart {
			p.rwnd += 2 * packet
		} else {
			p.rwnd += p.gamma / p.beta
		}
		if backlog >= target {
			p.slowStart = false
		}
	}
}

// reset is the step that FQ-2 found missing.
func (p *printed) reset() {
	if p.ticks == m {
		p.gamma, p.ticks = 0, 0
	}
}
