// Package event is the simulator's clock and its pending events: a hierarchical timing wheel of nanoseconds. It also
// has sources of randomness that are the same on every machine. One Queue belongs to one goroutine.
package event

// Time is nanoseconds of the simulated clock, from 0.
type Time int64

// Durations.
const (
	Nanosecond  Time = 1
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// Handler gets called when an event happens.
type Handler interface {
	// Happen is called at the event's time. The event is no longer pending: it may be Set again, even at once.
	Happen(ev *Event, now Time)
}

// Event is something that will happen. Embed it by value in its handler. After Init it must not be copied or moved in
// memory, because the Queue points at it while it is pending.
type Event struct {
	next, prev *Event // the ring of events in the same slot, in the order in which they were Set
	at         Time
	handler    Handler
	slot       int32 // level*slots + slot, + 1; 0: not pending
}

// Init sets the event's handler. Call it once, before the first Set.
func (ev *Event) Init(h Handler) { ev.handler = h }

// Pending reports whether the event is set and has not happened yet.
func (ev *Event) Pending() bool { return ev.slot != 0 }

// At returns when the event will happen. It is meaningful while the event is pending.
func (ev *Event) At() Time { return ev.at }
