// Package event is the simulator's clock and all that is still to happen: a hierarchical timing wheel of
// nanoseconds, and sources of randomness that are the same on every machine. One Queue belongs to one goroutine.
package event

// Time is nanoseconds of the simulated clock, from 0.
type Time int64

// Lengths of time.
const (
	Nanosecond  Time = 1
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// Handler is what an event happens to.
type Handler interface {
	// Happen is called at the event's time. The event is pending no more: it may be Set again, at once as well.
	Happen(ev *Event, now Time)
}

// Event is something that will happen. It is embedded by value in what it happens to, and must not be copied or moved
// in memory once Init was called: while it is pending the Queue points at it.
type Event struct {
	next, prev *Event // the ring of those in the same slot, in the order in which they were Set
	at         Time
	handler    Handler
	slot       int32 // level*slots + slot, + 1; 0: not pending
}

// Init says what the event happens to. It must be called once, before the first Set.
func (ev *Event) Init(h Handler) { ev.handler = h }

// Pending says whether the event is still to happen.
func (ev *Event) Pending() bool { return ev.slot != 0 }

// At is when the event will happen; meaningful while it is pending.
func (ev *Event) At() Time { return ev.at }
