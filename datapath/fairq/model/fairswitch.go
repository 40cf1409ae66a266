package model

import "math/big"

// FairSwitchConfig are the registers of FairSwitch. Zero values have the meaning that core/fairq/fairswitch.h gives them.
type FairSwitchConfig struct {
	QueueWords, AggregateMax, Floor, MSSMax, IdleSamples, Threshold, Updates int
}

// FairSwitch is the hardware's law of one queue (SPEC 1.3), slow and obvious: all samples are kept, divisions are those of
// rationals, and a window follows each event at once.
type FairSwitch struct {
	FairSwitchConfig
	Flows, SYNs, FINs, RSTs int
	MSS                     int // 0: none seen
	Aggregate, Window       int
	Samples                 []int // all of them, in words
	quiet                   int   // samples since the last data packet
	data                    bool
	stale                   bool
}

// Target returns the target in words.
func (q *FairSwitch) Target() int {
	words := min(q.QueueWords, 1<<18-1)
	for range q.Threshold {
		words /= 2
	}
	return max(words, 1)
}

// Average returns the mean of the last 32 samples, with zeros before the first.
func (q *FairSwitch) Average() int {
	sum := 0
	for _, words := range q.Samples[max(0, len(q.Samples)-32):] {
		sum += words
	}
	return sum / 32
}

// Opens is a SYN-ACK.
func (q *FairSwitch) Opens() { q.SYNs = min(q.SYNs+1, 65535); q.flows(q.Flows + 1) }

// Closes is a FIN.
func (q *FairSwitch) Closes() { q.FINs = min(q.FINs+1, 65535); q.flows(q.Flows - 1) }

// Aborts is a RST.
func (q *FairSwitch) Aborts() { q.RSTs = min(q.RSTs+1, 65535); q.flows(q.Flows - 1) }

func (q *FairSwitch) flows(n int) {
	if n = max(0, min(n, 4095)); n != q.Flows {
		q.Flows, q.stale = n, true
	}
}

// Data is a segment with this payload.
func (q *FairSwitch) Data(payload int) {
	if payload == 0 {
		return
	}
	q.data = true
	most := 1<<14 - 1
	if q.MSSMax != 0 {
		most = min(most, q.MSSMax)
	}
	q.MSS = max(q.MSS, min(payload, most))
}

// Sample is the queue's length after another avg_queue_time.
func (q *FairSwitch) Sample(words int) {
	q.Settle()
	q.Samples = append(q.Samples, min(words, 1<<18-1))
	q.quiet++
	if q.data || q.IdleSamples == 0 {
		q.quiet = 0
	}
	q.data = false
	due := len(q.Samples)%max(q.Updates, 1) == 0
	if q.IdleSamples != 0 && q.quiet >= q.IdleSamples {
		q.quiet, q.SYNs, q.FINs, q.RSTs = 0, 0, 0, 0
		if q.Flows != 0 {
			q.flows(0)
			due = false
		}
	}
	q.Settle()
	if due && q.Flows > 0 {
		q.update()
	}
}

// Settle calculates the window after changes of the count.
func (q *FairSwitch) Settle() {
	if q.stale {
		q.stale = false
		q.Aggregate = min(8*q.Target(), q.most())
		q.share()
	}
}

func (q *FairSwitch) update() {
	target, mss := q.Target(), q.MSS
	if mss == 0 {
		mss = 1460
	}
	kappa := big.NewRat(int64(target-q.Average()), int64(target)) // 1 - Q/target
	step := new(big.Rat).Mul(kappa, big.NewRat(int64(mss), 1))
	whole := new(big.Int).Quo(step.Num(), step.Denom()) // towards 0
	q.Aggregate = min(max(q.Aggregate+int(whole.Int64()), 0), q.most())
	q.Aggregate = max(q.Aggregate, q.Flows*max(q.Floor, 1))
	q.share()
}

// most is the most of all windows together.
func (q *FairSwitch) most() int {
	if q.AggregateMax != 0 {
		return min(q.AggregateMax, 1<<30-1)
	}
	return 1<<30 - 1
}

func (q *FairSwitch) share() {
	q.Window = 0
	if q.Flows > 0 {
		q.Window = max(q.Aggregate/q.Flows, q.Floor, 1)
	}
}
