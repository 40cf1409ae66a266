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
	held    []*network.Packet // requests, and packets behind them, in order
	step    event.Event       // when the first of them is looked at
	repair  *repairPort       // segments that the buffer has no room for; nil: they are dropped
}

// waiting is a packet in the parking queue.
type waiting struct {
	pk     *network.Packet
	leaves event.Time
}

// turns is what a switch with promises or credits knows of a connection in addition.
type turns struct {
	has      [2]bool       // it sent data: sent is valid
	sent     [2]uint32     // sequence number behind the furthest data of each end
	una      [2]uint32     // the furthest acknowledgement of each end
	known    [2]bool       // una is valid
	released [2]uint32     // what an end remembers of its request: native.CreditReturns
	request  [2]uint32     // sequence number of the latest request of an end that waited
	live     [2]event.Time // when the promise of an end ends (native.CreditAnswer.LiveNs)
	until    [2]event.Time // the latest packet of an end waits until then
	turn     uint8         // native.CreditTurn.Turn
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
	buffer := uint32(0)
	if at.Hold && mode&native.CreditPaces != 0 {
		buffer = at.Buffer
	}
	q.credits = &credits{net: n}
	q.credits.leave.Init(leaver{q})
	q.credits.step.Init(leaver{q})
	if at.Repair.Bound > 0 && mode&native.CreditPaces != 0 {
		q.credits.repair = newRepairPort(n, q.port, at.Repair, at.Repair.Bound)
		q.credits.repair.config.FullBytes, q.credits.repair.line = uint32(at.Repair.Full), lineBytes
	}
	q.credits.state = q.sw.state.SetCredit(int(q.id)-1, &native.CreditConfig{
		ByteNsQ20: uint64(math.Round(8e9 * (1 << 20) / float64(q.port.Rate))), CapacityBytes: at.Pipe + at.Target, TargetBytes: at.Target,
		FirstBytes: firstMSS * mostMSS, WaitNs: uint32(at.Wait), HoldBytes: creditHold, LineBytes: lineBytes, Mode: mode,
		BufferBytes: buffer,
	})
}

// belongs reports whether a segment has numbers near those of its connection. The others, which somebody forged, begin no turn and
// get no credits. A SYN gives its own numbers.
func (s *fairQSwitch) belongs(c *connection, pk *network.Packet) bool {
	if pk.Flags()&network.SYN != 0 {
		return true
	}
	t, from := &s.turns[c.slot], side(pk)
	sent := func(of int, otherwise uint32) uint32 {
		switch e := &c.ends[of]; {
		case t.has[of]:
			return t.sent[of]
		case e.Flags&native.EndSYN != 0:
			return e.First + 1
		}
		return otherwise // its SYN took another path
	}
	return native.CreditFits(pk.Seq(), sent(from, pk.Seq()), pk.Ack(), sent(1-from, pk.Ack()))
}

// isAgain reports whether data comes again after its receiver has acknowledged it.
func (t *turns) isAgain(from int, pk *network.Packet) bool {
	return t.known[1-from] && native.CreditWasAcknowledged(pk.Seq()+uint32(pk.Payload()), t.una[1-from])
}

// took notes data that leaves by the port, and reports whether it begins a turn. e: the end that sent it.
func (t *turns) took(from int, pk *network.Packet, e *native.End) bool {
	if end := behind(pk); int32(end-t.sent[from]) > 0 || !t.has[from] {
		t.sent[from], t.has[from] = end, true
	}
	next := native.NextTurn(t.turn, uint8(from), uint32(pk.Payload()), 0, e.Longest)
	t.turn, e.Longest = next.Turn, next.Longest
	return next.Begins
}

// uses ends the promise of a segment's sender.
func (q *fairQPort) uses(c *connection, pk *network.Packet, now event.Time) {
	e := &c.ends[side(pk)]
	if e.Promise != 0 && q.credits != nil {
		left := q.sw.turns[c.slot].live[side(pk)] - now
		q.sw.state.CreditUsed(int(q.id)-1, uint64(now), uint32(e.Promise), uint32(pk.Payload()), int64(left), side(pk) == 0,
			q.sw.turns[c.slot].released[side(pk)])
		e.Promise = 0
		q.sw.turns[c.slot].released[side(pk)] = 0
	}
}

// asks returns what a packet opens and acknowledges. begins: it begins a turn; enters: it entered its connection in the table.
func (t *turns) asks(from int, pk *network.Packet, begins, enters bool) native.CreditSegment {
	s := native.CreditSegment{Ack: pk.Ack(), Sent: t.sent[1-from], Una: t.una[from], Turn: t.turn, Side: uint8(from)}
	if !t.has[1-from] {
		s.Sent = pk.Ack()
	}
	if !t.known[from] {
		s.Una = pk.Ack()
	}
	for _, f := range []struct {
		set *uint8
		is  bool
	}{{&s.SYN, pk.Flags()&network.SYN != 0}, {&s.Opener, from == 0}, {&s.Begins, begins}, {&s.Completes, enters && pk.Payload() == 0}} {
		if f.is {
			*f.set = 1
		}
	}
	s.Ask()
	if s.AdvanceBytes > 0 || !t.known[from] {
		t.una[from], t.known[from] = pk.Ack(), true
	}
	return s
}

// credited charges an acknowledgement of data that leaves by the port at, and returns what the port q does with it.
func (q *fairQPort) credited(c *connection, pk *network.Packet, at *fairQPort, begins, enters bool, now event.Time) network.Verdict {
	from := side(pk)
	e, sender, t := &c.ends[from], &c.ends[1-from], &q.sw.turns[c.slot]
	s := t.asks(from, pk, begins, enters)
	ask := native.CreditAck{
		NowNs: uint64(now), Promise: uint32(sender.Promise), LongestBytes: uint32(sender.Longest), AdvanceBytes: s.AdvanceBytes,
		LengthBytes: uint32(pk.Bytes()), Ack: s.Ack, Sent: s.Sent, Allowed: sender.Allowed, Opens: s.Opens, Answered: s.Answered,
	}
	if at.paces() {
		ask.Pacing = 1
	}
	if sender.Flags&native.EndFIN != 0 && native.CreditEndsAt(sender.Next, s.Sent) {
		ask.Ends = 1
	}
	if t.until[from] > now || t.released[1-from] == native.CreditHeld {
		ask.Behind = 1
	}
	if !ask.Concerned() {
		q.limit(c, pk, true, now)
		return network.Pass
	}
	ask.FloorBytes = q.sw.state.Floor(int(at.id)-1, e.MSS, 0)
	ask.BacklogBytes = at.creditBacklog()
	var answer native.CreditAnswer
	if ask.Shift = e.Shift; e.Flags&native.EndUnified != 0 {
		ask.Shift = e.Announced
	}
	if pk.Flags()&network.SYN != 0 {
		ask.Shift = 0
	}
	promise := q.sw.state.Acknowledges(int(at.id)-1, &ask, int64(t.live[1-from]-now), &answer)
	sender.Promise = uint16(q.sw.state.CreditRests(int(at.id)-1, &ask, promise, &answer))
	sender.Allowed = answer.Allowed
	if answer.Renewed != 0 {
		t.live[1-from] = event.Time(answer.LiveNs)
	}
	q.limit(c, pk, true, now)
	if s.Opens == native.CreditOpens {
		t.request[from], t.released[1-from] = pk.Seq(), native.CreditWaits
	}
	if answer.LengthBytes == 0 {
		if s.Opens == native.CreditOpens && at.holds(pk, now) {
			at.hold(pk, now)
			return network.Take
		}
		return network.Pass
	}
	t.until[from] = event.Time(answer.LeavesNs) + 1
	at.credits.wait(q.sw.queue, pk, event.Time(answer.LeavesNs))
	return network.Take
}

// paces starts or ends the pacing of the port, and reports whether it paces.
func (q *fairQPort) paces() bool {
	paces := q.sw.state.MustPace(int(q.id)-1, true)
	if paces != (q.state.Pacing != 0) {
		t := native.Turn{Event: native.Paces}
		if paces {
			t.Value = 1
		}
		q.sw.state.Turn(int(q.id)-1, &t)
	}
	return paces
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

// leaver is the event at which the first waiting packet leaves, or the first held request is looked at.
type leaver struct{ q *fairQPort }

func (l leaver) Happen(ev *event.Event, now event.Time) {
	w := l.q.credits
	if ev == &w.step {
		l.q.steps(now)
		return
	}
	for w.first < len(w.waiting) && w.waiting[w.first].leaves <= now {
		pk := w.waiting[w.first].pk
		w.waiting[w.first].pk = nil
		w.first++
		if l.q.holds(pk, now) {
			l.q.hold(pk, now)
		} else {
			w.net.Return(pk)
		}
	}
	if w.first < len(w.waiting) {
		l.q.sw.queue.Set(&w.leave, w.waiting[w.first].leaves)
	}
}

// hold adds a packet behind the held requests.
func (q *fairQPort) hold(pk *network.Packet, now event.Time) {
	w := q.credits
	if w.held = append(w.held, pk); len(w.held) == 1 {
		q.sw.queue.Set(&w.step, now+event.Time(q.sw.state.CreditStepNs(int(q.id)-1)))
	}
}

// steps looks at the first held request.
func (q *fairQPort) steps(now event.Time) {
	w := q.credits
	if pk := w.held[0]; !q.holds(pk, now) {
		w.held[0] = nil
		if w.held = w.held[1:]; len(w.held) == 0 {
			w.held = nil
		}
		w.net.Return(pk)
	}
	if len(w.held) > 0 {
		q.sw.queue.Set(&w.step, now+event.Time(q.sw.state.CreditStepNs(int(q.id)-1)))
	}
}

// holds reports whether a packet that may leave must wait further: a request that the buffer has no room for, or a packet
// behind it.
func (q *fairQPort) holds(pk *network.Packet, now event.Time) bool {
	c := q.sw.find(pk.Conn())
	if c == nil {
		return false
	}
	from := side(pk)
	t := &q.sw.turns[c.slot]
	mark := t.released[1-from]
	if mark != native.CreditWaits && mark != native.CreditHeld {
		return false
	}
	if pk.Seq() != t.request[from] || pk.Payload() == 0 {
		return mark == native.CreditHeld // it stays behind its request
	}
	backlog := q.creditBacklog()
	mark = q.sw.state.CreditReturns(int(q.id)-1, uint64(now), backlog, uint32(c.ends[1-from].Promise), int64(t.live[1-from]-now),
		mark == native.CreditHeld)
	if t.released[1-from] = mark; mark == native.CreditHeld {
		return true
	}
	t.live[1-from] = now + event.Time(q.sw.state.CreditLiveNs(int(q.id)-1))
	return false
}

// creditBacklog returns the bytes in the queue, and those that it had no room for.
func (q *fairQPort) creditBacklog() uint32 {
	bytes := q.port.Backlog()
	if r := q.credits.repair; r != nil {
		bytes += int64(r.bytes)
	}
	return uint32(min(bytes, math.MaxUint32))
}

// keeps keeps a segment that the queue has no room for. Any other segment passes.
func (q *fairQPort) keeps(pk *network.Packet, now event.Time) network.Verdict {
	if q.credits == nil || q.credits.repair == nil || q.credits.repair.Packet(q.port, pk, now) != network.Take {
		return network.Pass
	}
	return network.Take
}

// uncredited charges a packet that no credit released, while the port's clock runs.
func (q *fairQPort) uncredited(pk *network.Packet, now event.Time) {
	if q.credits != nil && q.sw.state.CreditCountsOther(int(q.id)-1, q.state.Pacing, uint64(now)) {
		q.sw.state.CreditOther(int(q.id)-1, uint64(now), uint32(pk.Bytes()))
	}
}

// promised reports whether promises and credits of the port may limit the sender's data. The port may be nil.
func (q *fairQPort) promised(sender *native.End) bool {
	return q != nil && q.credits != nil && (sender.Promise != 0 || q.state.Pacing != 0)
}
