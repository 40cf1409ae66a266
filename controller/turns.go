package controller

import (
	"sync"
	"time"

	"weir/law"
	"weir/law/fabric"
)

const (
	urgentPerSwitch = 1024                  // events that must not be lost; a switch that sends more is read more slowly
	framesPerSwitch = 1024                  // packets for the laws other than probes; further ones are dropped
	bytesPerSwitch  = 512 << 10             // of these packets
	probesPerSwitch = 1024                  // further ones are dropped
	probeBytes      = 256                   // of each; Weir's have about 80, and the rest of others is of no use
	freeMax         = 1024                  // packets whose memory is kept for further ones
	freeBytesMax    = 2048                  // of each of these
	turn            = 50 * time.Microsecond // of the laws' time, for each switch in turn
	debtMax         = time.Second           // a switch that used more than its turns is passed over for this time at most
)

// turns passes the messages of switches to the laws, one switch after the other, each for the same time. So a switch with many or
// expensive messages does not delay others. A switch that has sent nothing recently comes first, for one turn. It is the
// scheduler of FQ-CoDel (RFC 8290, 4.2), with time in place of bytes.
type turns struct {
	wake chan struct{} // buffered: something waits

	mu         sync.Mutex
	room       sync.Cond // for urgentPerSwitch
	ended      bool
	fresh, old queue[*session]
	free       []*fabric.PacketIn
}

// mailbox holds the messages of one switch that wait for the laws.
type mailbox struct {
	urgent queue[law.Event]
	probes queue[*fabric.PacketIn] // apart, so that a flood of frames does not take links down
	frames queue[*fabric.PacketIn]
	bytes  int // of frames
	listed bool
	credit time.Duration // of the laws' time
	debtAt time.Time     // when the credit was used up
}

func newTurns() *turns {
	t := &turns{wake: make(chan struct{}, 1)}
	t.room.L = &t.mu
	return t
}

// must queues an event that may not be lost. It waits while the switch has too many queued.
func (t *turns) must(s *session, e law.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s.box.urgent.len() >= urgentPerSwitch && !t.ended {
		t.room.Wait()
	}
	s.box.urgent.push(e)
	t.list(s)
}

// may queues a copy of a packet, unless the switch has too many there.
func (t *turns) may(s *session, in fabric.PacketIn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := &s.box
	switch {
	case in.Kind == fabric.Probe:
		if b.probes.len() >= probesPerSwitch {
			return false
		}
		in.Frame = in.Frame[:min(len(in.Frame), probeBytes)]
		b.probes.push(t.copied(in))
	case b.frames.len() >= framesPerSwitch || b.bytes+len(in.Frame) > bytesPerSwitch:
		return false
	default:
		b.bytes += len(in.Frame)
		b.frames.push(t.copied(in))
	}
	t.list(s)
	return true
}

// copied copies a packet, into the memory of an earlier one.
func (t *turns) copied(in fabric.PacketIn) *fabric.PacketIn {
	var e *fabric.PacketIn
	if last := len(t.free) - 1; last >= 0 {
		e, t.free = t.free[last], t.free[:last]
	} else {
		e = &fabric.PacketIn{}
	}
	in.Frame = append(e.Frame[:0], in.Frame...)
	*e = in
	return e
}

func (t *turns) list(s *session) {
	if !s.box.listed {
		s.box.listed, s.box.credit = true, turn
		t.fresh.push(s)
	}
	t.nudge()
}

// nudge wakes the laws' goroutine. It may be called by any goroutine.
func (t *turns) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// next returns the event whose turn it is; false: none. The caller must pass it to spent afterwards, with its cost.
func (t *turns) next() (*session, law.Event, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		from := &t.fresh
		if from.len() == 0 {
			from = &t.old
		}
		if from.len() == 0 {
			return nil, nil, false
		}
		s := from.items[from.head]
		b := &s.box
		if b.credit > 0 {
			if e, ok := t.pop(b); ok {
				return s, e, true
			}
		}
		from.pop()
		switch {
		case b.credit <= 0:
			b.refill()
			t.old.push(s)
		case from == &t.fresh && t.old.len() > 0:
			t.old.push(s) // first again only after the others had their turn
		default:
			b.listed = false
		}
	}
}

// refill gives a switch without credit its next turn. A debt lapses after debtMax: the cost of an event includes the time for which
// this process did not run. Then a round of all switches can take seconds, and a debt of ten turns would last ten rounds.
func (b *mailbox) refill() {
	b.credit += turn
	if b.credit <= 0 && time.Since(b.debtAt) >= debtMax {
		b.credit = turn
	}
}

func (t *turns) pop(b *mailbox) (law.Event, bool) {
	switch {
	case b.urgent.len() > 0:
		if b.urgent.len() == urgentPerSwitch {
			t.room.Broadcast()
		}
		return b.urgent.pop(), true
	case b.probes.len() > 0:
		return b.probes.pop(), true
	case b.frames.len() > 0:
		p := b.frames.pop()
		b.bytes -= len(p.Frame)
		return p, true
	}
	return nil, false
}

// spent subtracts the cost of an event from its switch's credit, at most ten turns: the cost is elapsed time, which includes
// other work of the processor. The laws no longer use the event, so a packet's memory is used again.
func (t *turns) spent(s *session, e law.Event, d time.Duration) {
	t.mu.Lock()
	if s.box.credit -= min(d, 10*turn); s.box.credit <= 0 {
		s.box.debtAt = time.Now()
	}
	if p, is := e.(*fabric.PacketIn); is && len(t.free) < freeMax && cap(p.Frame) <= freeBytesMax {
		t.free = append(t.free, p)
	}
	t.mu.Unlock()
}

// end wakes all waiters, and nobody waits after it.
func (t *turns) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.room.Broadcast()
}

// queue is first in, first out.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(v T) {
	if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *queue[T]) pop() T {
	var none T
	v := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}
