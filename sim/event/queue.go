package event

import (
	"fmt"
	"math/bits"
)

// The wheel has a digit of the time, of digitBits bits, on every level, and so many levels that every Time has its
// place: there is no overflow list. The digit is as wide as two words of bitmap, one of words and one of slots, can tell:
// what is due within 4 us lies on the lowest level, what is due within 17 ms is dealt once.
const (
	digitBits = 12
	slots     = 1 << digitBits
	levels    = (63 + digitBits - 1) / digitBits
)

// Queue is the clock and all that will happen, a hierarchical timing wheel (Varghese and Lauck 1987, scheme 7) whose
// lowest level turns by a nanosecond.
//
// An event lies on the level of the highest digit in which its time differs from base, in the slot of its own digit
// there. base is at most Now and at most the time of every event. Therefore
//   - every event of a level is due before every event of the levels above it, and a slot before the slots behind it:
//     the lowest bit of the lowest level is where the next event is;
//   - events of the same time lie in the same slot. A slot is a ring that is added to at its end and is dealt to lower
//     levels from its beginning, so that ties stay in the order in which they were Set, without a number for it.
//
// base moves to the time of the event that happens (not to the slot's beginning, as clocks do): no other event then
// has to change its place but those of the same slot, which get lower levels. An event is therefore moved at most once
// a level, and one that is alone in its slot, as in a small network nearly all are, never.
type Queue struct {
	base     Time
	now      Time
	happened uint64
	running  bool
	halted   bool
	used     uint32                      // by level: has events
	words    [levels]uint64              // by level and word of busy: is not 0
	busy     [levels * slots / 64]uint64 // by level and slot: has events
	rings    [levels * slots]*Event
}

// NewQueue returns a clock at 0 with nothing to happen.
func NewQueue() *Queue { return new(Queue) }

// Now is the time of the event that is happening, or up to which Run has come.
func (q *Queue) Now() Time { return q.now }

// Happened is the number of events so far.
func (q *Queue) Happened() uint64 { return q.happened }

// Halt makes Run return after the event that is happening.
func (q *Queue) Halt() { q.halted = true }

// Set schedules ev for at, behind all that is set for the same time already; a pending one is moved. A time before Now
// is a mistake of the caller and panics.
func (q *Queue) Set(ev *Event, at Time) {
	if at < q.now || ev.slot != 0 {
		q.setAgain(ev, at)
	}
	ev.at = at
	// At the end of the ring of the slot where the time belongs.
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

// setAgain is what Set seldom has to do: the event is pending, or its time is over.
func (q *Queue) setAgain(ev *Event, at Time) {
	if at < q.now {
		panic(fmt.Sprintf("event: set for %d ns, which is %d ns ago", at, q.now-at))
	}
	q.remove(ev)
}

// Stop takes ev out. One that is not pending stays so.
func (q *Queue) Stop(ev *Event) {
	if ev.slot != 0 {
		q.remove(ev)
	}
}

// Run lets all events up to and at until happen, in the order of their times and those of one time in the order in
// which they were Set; those set meanwhile too. Now is until afterwards, or the time of the event that called Halt.
// until before Now, and Run within an event, are mistakes of the caller and panic.
func (q *Queue) Run(until Time) {
	if until < q.now {
		panic(fmt.Sprintf("event: run until %d ns, which is %d ns ago", until, q.now-until))
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

// take removes the next event if it is due at until or before, and moves base to it.
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

// deal does as take does where the next event is one of several of different times: it moves base to it, or to until
// when that comes first, and the others to the lower levels where they now belong.
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

// remove takes ev out of its ring.
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
