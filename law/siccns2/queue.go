package siccns2

// packetBytes is the packet of the ns-2 scripts (mean_pktsize_), in the prediction and as the window of an incast.
const packetBytes = 1500

// Kind is what an arriving packet is, as a set.
type Kind uint8

// The kinds. A packet without a kind is data.
const (
	SYN    Kind = 1 << iota // SYN or SYN-ACK
	FIN                     //
	ACK                     // without data
	Resume                  // data of a flow that was idle
)

// Queue is the queue discipline at one port. Make one with NewQueue. All lengths are bytes.
type Queue struct {
	p          Params
	limit      float64 // of the buffer
	high, low  float64
	flowsBegun int // in this interval, minus flows that ended; never below 0 (syncount)
	flows      int // that began, minus flows that ended; never below 0 (flownum)
	incast     bool
	counts     Counts
}

// Counts is what a Queue did.
type Counts struct {
	Incasts uint64 // that began
	Refused uint64 // data packets, by ack_threshold
}

// NewQueue returns the queue discipline of a port with a buffer of limit bytes.
func NewQueue(p Params, limit int64) *Queue {
	b := float64(limit)
	return &Queue{p: p, limit: b, high: p.OnFraction * b, low: p.OffFraction * b}
}

// Tick predicts: call it each interval.
func (q *Queue) Tick(queue int64) {
	predicted := float64(q.flowsBegun)*float64(q.p.InitialWindow)*packetBytes + float64(queue)
	if q.p.IncastOnly && q.flowsBegun > 0 && predicted >= q.high {
		q.begin()
	}
	q.flowsBegun = 0
}

// Arrive takes a packet that finds queue bytes. It reports false if the packet must be dropped.
func (q *Queue) Arrive(queue int64, k Kind) bool {
	if !q.p.IncastOnly && float64(queue) > q.high {
		q.begin()
	}
	if !q.incast && k&(ACK|SYN|FIN) == 0 && float64(queue) > q.p.AckThreshold*q.limit {
		q.counts.Refused++
		return false
	}
	switch {
	case k&SYN != 0, q.p.Persist && k&Resume != 0:
		q.flowsBegun++
		q.flows++
	case k&FIN != 0:
		q.flowsBegun = max(0, q.flowsBegun-1)
		q.flows = max(0, q.flows-1)
	}
	return true
}

// Leave notes that a packet left, and queue bytes remain.
func (q *Queue) Leave(queue int64) {
	if float64(queue) < q.low {
		q.incast = false
	}
}

// Window returns the window that an ACK of a flow through this queue may carry at most, in bytes; 0: no limit.
func (q *Queue) Window() int64 {
	switch {
	case !q.incast || q.flows == 0:
		return 0
	case q.p.DivWin:
		return max(1, int64(q.limit)/int64(q.flows))
	}
	return packetBytes
}

// Counts returns what the queue discipline did so far.
func (q *Queue) Counts() Counts { return q.counts }

func (q *Queue) begin() {
	if !q.incast {
		q.incast = true
		q.counts.Incasts++
	}
}
