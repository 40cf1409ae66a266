package event

import (
	"fmt"
	"math/bits"
)

// Each level of the wheel has a digit of the time, of digitBits bits. There are enough levels for every Time, so there
// is no overflow list. The digit is as wide as two words of bitmap can index, one of words and one of slots. Events due
// within 4 us are on the lowest level, and events due within 17 ms change their level once.
const (
	digitBits = 12
	slots     = 1 << digitBits
	levels    = (63 + digitBits - 1) / digitBits
)

// Queue is the clock and the pending events: a hierarchical timing wheel (Varghese and Lauck 1987, scheme 7) whose
// lowest level turns once per nanosecond.
//
// An event is on the level of the highest digit in which its time differs from base, in the slot of its own digit
// there. base is at most Now, and at most the time of every event. Therefore:
//   - Every event of a level is due before every event of the levels above it, and a slot before the slots after it.
//     The lowest bit of the lowest level is where the next event is.
//   - Events of the same time are in the same slot. A slot is a ring: events are added at its end, and are moved to lower
//     levels from its beginning. So events of the same time keep the order in which they were Set.
//
// base moves to the time of the event that happens, not to the beginning of its slot as in other wheels. Then only the
// other events of that slot have to move, to lower levels. So an event moves at most once per level. An event that is
// alone in its slot never moves, and in a small network nearly all are alone.
type Queue struct {
	base     Time
	now      Time
	happened uint64
	running  bool
	halted   bool
	used     uint32                      // by level: it has events
	words    [levels]uint64              // by level and word of busy: the word is not 0
	busy     [levels * slots / 64]uint64 // by level and slot: it has events
	rings    [levels * slots]*Event
}

// NewQueue returns a clock at 0 without pending events.
func NewQueue() *Queue { return new(Queue) }

// Now returns the time of the event that is happening, or the time that Run has reached.
func (q *Queue) Now() Time { return q.now }

// Happened returns the number of events that have happened.
func (q *Queue) Happened() uint64 { return q.happened }

// Halt makes Run return after the event that is happening.
func (q *Queue) Halt() { q.halted = true }

// Set schedules ev for the time at, after all events already set for that time. A pending event is moved. It panics if
// at is before Now.
func (q *Queue) Set(ev *Event, at Time) {
	if at < q.now || ev.slot != 0 {
		q.setAgain(ev, at)
	}
	ev.at = at
	// Append it to the ring of the slot of its time.
	level := uint(bits.Len64(uint64(at^q.base)|1)-1) / digitBits
	digit := uint(at>>(level*digitBits&63)) % slots
	slot := level*slots + digit
	ev.slot = int32(slot) + 1
	first := q.rings[slot]
	if first == nil {
		ev.next, ev.prev = ev, ev
		q.rings[slot] = ev
		q.busy[slot/64] |= 1 << (slot % 64)
		q.words[level] |= 1 << (digit / 64)
		q.used |= 1 << level
		return
	}
	last := first.prev
	ev.next, ev.prev = first, last
	last.next, first.prev = ev, ev
}

// setAgain is the rare part of Set: the event is pending, or its time is over.
func (q *Queue) setAgain(ev *Event, at Time) {
	if at < q.now {
		panic(fmt.Sprintf("event: set for %d ns, which is %d ns in the past", at, q.now-at))
	}
	q.remove(ev)
}

// Stop removes ev. It does nothing if ev is not pending.
func (q *Queue) Stop(ev *Event) {
	if ev.slot != 0 {
		q.remove(ev)
	}
}

// Run has all events up to and at until happen, in the order of their times. Events of one time happen in the order in
// which they were Set. Events that are set meanwhile count too. Now is until afterwards, or the time of the event that
// called Halt. It panics if until is before Now, or if it is called within an event.
func (q *Queue) Run(until Time) {
	if until < q.now {
		panic(fmt.Sprintf("event: run until %d ns, which is %d ns in the past", until, q.now-until))
	}
	if q.running {
		panic("event: run within an event")
	}
	q.running, q.halted = true, false
	for !q.halted {
		ev := q.take(until)
		if ev == nil {
			q.now = until
			break
		}
		q.now = ev.at
		q.happened++
		ev.handler.Happen(ev, ev.at)
	}
	q.running = false
}

// take removes the next event if it is due at until or before, and moves base to its time.
func (q *Queue) take(until Time) *Event {
	if q.used == 0 {
		return nil
	}
	level := bits.TrailingZeros32(q.used)
	word := level*(slots/64) + bits.TrailingZeros64(q.words[level])
	slot := word*64 + bits.TrailingZeros64(q.busy[word])
	first := q.rings[slot]
	if level > 0 && first.next != first {
		return q.deal(level, slot, until)
	}
	if first.at > until {
		return nil
	}
	q.base = first.at
	first.slot = 0
	if first.next == first {
		q.clear(slot)
		return first
	}
	first.prev.next, first.next.prev = first.next, first.prev
	q.rings[slot] = first.next
	return first
}

// deal is take for a slot with events of different times. It moves base to the time of the next event, or to until if
// that comes first. The slot's other events move to the lower levels where they now belong.
func (q *Queue) deal(level, slot int, until Time) *Event {
	shift := level * digitBits
	begin := (q.base>>shift&^(slots-1) | Time(slot&(slots-1))) << shift
	if begin > until {
		return nil
	}
	ring := q.rings[slot]
	next := ring
	for ev := ring.next; ev != ring; ev = ev.next {
		if ev.at < next.at {
			next = ev
		}
	}
	q.clear(slot)
	q.base = min(next.at, until)
	last := ring.prev
	for ev := ring; ; {
		after := ev.next // before Set changes it
		if ev != next || next.at > until {
			ev.slot = 0
			q.Set(ev, ev.at)
		}
		if ev == last {
			break
		}
		ev = after
	}
	if next.at > until {
		return nil
	}
	next.slot = 0
	return next
}

// remove removes ev from its ring.
func (q *Queue) remove(ev *Event) {
	slot := int(ev.slot - 1)
	ev.slot = 0
	if ev.next == ev {
		q.clear(slot)
		return
	}
	ev.prev.next, ev.next.prev = ev.next, ev.prev
	if q.rings[slot] == ev {
		q.rings[slot] = ev.next
	}
}

// clear empties a slot.
func (q *Queue) clear(slot int) {
	q.rings[slot] = nil
	q.busy[slot/64] &^= 1 << (slot % 64)
	if q.busy[slot/64] != 0 {
		return
	}
	level := slot / slots
	q.words[level] &^= 1 << (slot % slots / 64)
	if q.words[level] == 0 {
		q.used &^= 1 << level
	}
}
