//go:build cgo

package laws

import (
	"math"

	"weir/datapath/native"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
)

// Promises and credits (core/fairq/credit.h): the code here finds what a packet opens, and keeps the packets that wait.

// credits is the part of a port that needs them.
type credits struct {
	net     *network.Network
	state   *native.CreditState
	waiting []waiting // by the time when they leave; the first is waiting[first]
	first   int
	leave   event.Event
}

// waiting is a packet in the parking queue.
type waiting struct {
	pk     *network.Packet
	leaves event.Time
}

// turns is what a switch with promises or credits knows of a connection in addition.
type turns struct {
	has   [2]bool       // it sent data: sent is valid
	sent  [2]uint32     // sequence number behind the furthest data of each end
	una   [2]uint32     // the furthest acknowledgement of each end
	known [2]bool       // una is valid
	live  [2]event.Time // when the promise of an end ends (native.CreditAnswer.LiveNs)
	until [2]event.Time // the latest packet of an end waits until then
	turn  uint8         // 1 + the end that sent data last
	short bool          // its latest segment was shorter than others
}

const (
	creditHold = 4 << 20 // bytes
	lineBytes  = 24      // preamble, gap and checksum of an Ethernet frame
	firstMSS   = 10      // segments of a first flight (RFC 6928)
)

// creditMode returns core's modes for the parameters.
func creditMode(p *fairq.Params) native.CreditMode {
	var mode native.CreditMode
	if p.Promises {
		mode |= native.CreditPromises
	}
	if p.Credits {
		mode |= native.CreditPromises | native.CreditPaces
	}
	return mode
}

// credit begins promises and credits at the port.
func (q *fairQPort) credit(n *network.Network, at fairq.Port, mode native.CreditMode) {
	if mode == 0 {
		return
	}
	q.credits = &credits{net: n}
	q.credits.leave.Init(leaver{q})
	q.credits.state = q.sw.state.SetCredit(int(q.id)-1, &native.CreditConfig{
		ByteNsQ20: uint64(math.Round(8e9 * (1 << 20) / float64(q.port.Rate))), CapacityBytes: at.Pipe + at.Target, TargetBytes: at.Target,
		FirstBytes: firstMSS * mostMSS, WaitNs: uint32(at.Wait), HoldBytes: creditHold, LineBytes: lineBytes, Mode: mode,
	})
}

// took notes data that leaves by the port, and reports whether it begins a turn: the other end sent last, or nobody. longest:
// payload of the longest segment that its end has sent.
func (t *turns) took(from int, pk *network.Packet, longest uint16) bool {
	if end := behind(pk); int32(end-t.sent[from]) > 0 || !t.has[from] {
		t.sent[from], t.has[from] = end, true
	}
	begins := t.turn != uint8(from+1)
	t.turn, t.short = uint8(from+1), pk.Payload() < int32(longest)
	return begins
}

// uses ends the promise of a segment's sender.
func (q *fairQPort) uses(c *connection, pk *network.Packet, now event.Time) {
	e := &c.ends[side(pk)]
	if e.Promise != 0 && q.credits != nil {
		left := q.sw.turns[c.slot].live[side(pk)] - now
		q.sw.state.CreditUsed(int(q.id)-1, uint64(now), uint32(e.Promise), uint32(pk.Payload()), int64(left), side(pk) == 0)
		e.Promise = 0
	}
}

// opens returns what a packet begins: native.CreditAccepts, CreditOpens, CreditCompletes, or 0. turns: it begins a turn;
// completes: it completes a handshake.
func (t *turns) opens(from int, pk *network.Packet, turns, completes bool) uint8 {
	switch {
	case pk.Flags()&network.SYN != 0:
		return native.CreditAccepts
	case turns && from == 0 && (!t.has[1-from] || pk.Ack()-t.sent[1-from] <= 1): // a request: the dialler asks, and the other end has nothing in flight
		return native.CreditOpens
	case completes:
		return native.CreditCompletes
	}
	return 0
}

// advance returns by how many bytes an acknowledgement is further than those before it.
func (t *turns) advance(from int, ack uint32) uint32 {
	by := ack - t.una[from]
	if !t.known[from] {
		by = 0
	} else if int32(by) <= 0 {
		return 0
	}
	t.una[from], t.known[from] = ack, true
	return by
}

// credited charges an acknowledgement of data that leaves by the port at, and returns what the port q does with it.
func (q *fairQPort) credited(c *connection, pk *network.Packet, at *fairQPort, opens uint8, now event.Time) network.Verdict {
	from := side(pk)
	e, sender, t := &c.ends[from], &c.ends[1-from], &q.sw.turns[c.slot]
	ask := native.CreditAck{
		NowNs: uint64(now), Promise: uint32(sender.Promise), LongestBytes: uint32(sender.Longest), AdvanceBytes: t.advance(from, pk.Ack()), Opens: opens,
		LengthBytes: uint32(pk.Bytes()), Ack: pk.Ack(), Sent: t.sent[1-from], Allowed: sender.Allowed,
	}
	if from == 0 && t.turn == 2 && t.short {
		ask.Answered = 1
	}
	if sender.Flags&native.EndFIN != 0 {
		ask.Ends = 1
	}
	if t.until[from] > now {
		ask.Behind = 1
	}
	ask.FloorBytes = q.sw.state.Floor(int(at.id)-1, e.MSS, 0)
	ask.BacklogBytes = uint32(min(at.port.Backlog(), math.MaxUint32))
	var answer native.CreditAnswer
	if ask.Shift = e.Shift; e.Flags&native.EndUnified != 0 {
		ask.Shift = e.Announced
	}
	if pk.Flags()&network.SYN != 0 {
		ask.Shift = 0
	}
	sender.Promise = uint16(q.sw.state.Acknowledges(int(at.id)-1, &ask, int64(t.live[1-from]-now), &answer))
	sender.Allowed = answer.Allowed
	if answer.Renewed != 0 {
		t.live[1-from] = event.Time(answer.LiveNs)
	}
	q.limit(c, pk, now)
	if answer.LengthBytes == 0 {
		return network.Pass
	}
	t.until[from] = event.Time(answer.LeavesNs) + 1
	at.credits.wait(q.sw.queue, pk, event.Time(answer.LeavesNs))
	return network.Take
}

// wait adds a packet to the parking queue.
func (w *credits) wait(queue *event.Queue, pk *network.Packet, leaves event.Time) {
	if w.first == len(w.waiting) {
		w.waiting, w.first = w.waiting[:0], 0
		queue.Set(&w.leave, leaves)
	} else if w.first > len(w.waiting)/2 && w.first > 64 {
		w.waiting, w.first = append(w.waiting[:0], w.waiting[w.first:]...), 0
	}
	w.waiting = append(w.waiting, waiting{pk, leaves})
}

// leaver is the event at which the first waiting packet leaves.
type leaver struct{ q *fairQPort }

func (l leaver) Happen(_ *event.Event, now event.Time) {
	w := l.q.credits
	for w.first < len(w.waiting) && w.waiting[w.first].leaves <= now {
		pk := w.waiting[w.first].pk
		w.waiting[w.first].pk = nil
		w.first++
		w.net.Return(pk)
	}
	if w.first < len(w.waiting) {
		l.q.sw.queue.Set(&w.leave, w.waiting[w.first].leaves)
	}
}

// uncredited charges a packet that no credit released, while the port's clock runs.
func (q *fairQPort) uncredited(pk *network.Packet, now event.Time) {
	if w := q.credits; w != nil && (q.state.Pacing != 0 || int64(w.state.ClockNs)-int64(now) > 0) {
		q.sw.state.CreditOther(int(q.id)-1, uint64(now), uint32(pk.Bytes()))
	}
}

// limitOf returns the limit that promises and credits of the port set for the sender's data, in bytes; 0: the law's
// (credit_limit of core). The port may be nil.
func (q *fairQPort) limitOf(sender *native.End) uint32 {
	switch {
	case sender.Promise != 0:
		return uint32(sender.Promise)
	case q != nil:
		return q.state.Pacing
	}
	return 0
}
