// Package model is FairQ written slowly and plainly in floating point, line for line as the paper's Algorithm
// 1. The law that runs is datapath/core/fairq/fairq.h. Its tests compare it with this model, which is the place
// to read first.
package model

// Config are the parameters of one queue. Zero values of the options are the defaults of the law.
type Config struct {
	TargetBytes float64 // αB
	BufferBytes float64 // B: a longer queue counts as B; 0: unknown
	TickNs      int64   // T
	PeriodNs    int64   // M*T
	FloorBytes  float64 // Wmin; 0: MSS
	CapBytes    float64 // Wmax; 0: 2^30
	StartBytes  float64 // the sum of the windows at first; 0: αB, as printed

	OVSGain          bool // FQ-10: add mean(αB - Q) instead of MSS*mean(κ)
	SlowStartPerFlow bool // FQ-11: 2 MSS to each window instead of to all together
	NoSlowStart      bool
	FairSwitch       bool // Q is the mean of 32 samples; Rwnd = αB/β when β changes
}

// Queue is Algorithm 1's state. Names are the paper's.
type Queue struct {
	Config
	Rwnd      float64 // of every flow, bytes; not yet between its limits
	Beta      float64 // β: ongoing flows
	Gamma     float64 // γ: sum of κ over the time since the last update, in periods (of αB-Q, gain OVS)
	MSS       float64 // largest seen
	SlowStart bool

	elapsedNs    int64 // Γ as a time
	lastSampleNs int64
	samples      [32]float64
	next         int
}

// New returns a queue without flows.
func New(c Config, nowNs int64) *Queue {
	q := &Queue{Config: c, MSS: 1460}
	q.begin(nowNs)
	return q
}

func (q *Queue) begin(nowNs int64) {
	q.lastSampleNs = nowNs
	q.Rwnd = q.TargetBytes // lines 3 and 11
	if q.StartBytes > 0 && !q.FairSwitch {
		q.Rwnd = q.StartBytes
	}
	q.SlowStart = !q.NoSlowStart && !q.FairSwitch
	q.Gamma, q.elapsedNs = 0, 0
}

// FlowAdded handles a SYN-ACK: lines 3 to 6.
func (q *Queue) FlowAdded(nowNs int64) {
	if q.Beta == 0 {
		q.begin(nowNs)
	} else {
		q.Rwnd = q.Rwnd * q.Beta / (q.Beta + 1)
	}
	q.Beta++
	q.fairSwitch()
}

// FlowRemoved handles a FIN: lines 7 to 12.
func (q *Queue) FlowRemoved() {
	if q.Beta == 0 {
		return
	}
	q.Beta--
	if q.Beta > 0 {
		q.Rwnd = q.Rwnd * (q.Beta + 1) / q.Beta
	} else {
		q.begin(q.lastSampleNs)
	}
	q.fairSwitch()
}

// fairSwitch is the hardware's reaction to a new count.
func (q *Queue) fairSwitch() {
	if q.FairSwitch && q.Beta > 0 {
		q.Rwnd = q.TargetBytes / q.Beta
		q.Gamma, q.elapsedNs = 0, 0
	}
}

// Sample handles the timer: lines 17 to 24. The queue was backlog bytes long since the last sample.
func (q *Queue) Sample(nowNs int64, backlog float64) {
	dt := min(max(nowNs-q.lastSampleNs, 0), max(q.PeriodNs, 2*q.TickNs))
	q.lastSampleNs = nowNs
	if q.BufferBytes > 0 {
		backlog = min(backlog, q.BufferBytes)
	}
	if q.FairSwitch {
		backlog = q.mean(backlog)
	}
	if q.Beta == 0 {
		return
	}
	if q.OVSGain {
		q.Gamma += (q.TargetBytes - backlog) * float64(dt) / float64(q.PeriodNs)
	} else {
		kappa := 1 - backlog/q.TargetBytes // κ
		q.Gamma += kappa * float64(dt) / float64(q.PeriodNs)
	}
	if backlog >= q.TargetBytes {
		q.SlowStart = false
	}
	q.elapsedNs += dt
	if q.elapsedNs < q.PeriodNs {
		return
	}
	periods := float64(q.elapsedNs / q.PeriodNs) // 1, unless M is 1
	q.elapsedNs %= q.PeriodNs
	switch {
	case q.SlowStart && q.SlowStartPerFlow:
		q.Rwnd += 2 * q.MSS * periods
	case q.SlowStart:
		q.Rwnd += 2 * q.MSS * periods / q.Beta
	case q.OVSGain:
		q.Rwnd += q.Gamma / q.Beta
	default:
		q.Rwnd += q.Gamma * q.MSS / q.Beta
	}
	q.Rwnd = q.clamp(q.Rwnd)
	q.Gamma = 0
}

// mean returns avg_32, in whole bytes.
func (q *Queue) mean(backlog float64) float64 {
	q.samples[q.next] = backlog
	q.next = (q.next + 1) % len(q.samples)
	sum := 0.0
	for _, s := range q.samples {
		sum += s
	}
	return float64(int64(sum / float64(len(q.samples))))
}

func (q *Queue) clamp(w float64) float64 {
	floor, limit := q.FloorBytes, q.CapBytes
	if floor == 0 {
		floor = q.MSS
	}
	if limit == 0 {
		limit = 1 << 30
	}
	return max(min(w, limit), floor)
}

// Window returns the window that an ACK is given, in bytes.
func (q *Queue) Window() float64 { return q.clamp(q.Rwnd) }
