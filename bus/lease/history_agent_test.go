package lease

import (
	"fmt"
	"slices"
	"time"
)

func (a *simAgent) clock() time.Duration { return a.h.now + a.origin }

func (a *simAgent) start() {
	a.incarnation = a.h.random.Uint64() | 1
	a.fence = NewFence(uint32(a.bucket), a.incarnation, a.disk, func(s Seen) error {
		if !a.h.m.forgets {
			a.disk = s
		}
		return nil
	})
	if a.h.random.IntN(2) == 0 && a.h.now > 0 { // the machine restarted, and its clock with it
		a.origin = -a.h.now
	}
	a.fence.checks = slices.DeleteFunc(a.fence.checks, func(c check) bool { return c.name == a.h.m.fence })
}

// report sends the agent's state to all controllers. Those that hold its bucket answer with a command.
func (a *simAgent) report() {
	at, stamp, incarnation, seen := a.h.now, a.clock(), a.incarnation, a.fence.Seen()
	for _, c := range a.h.controllers {
		a.h.send(a.name, c.name, func() {
			c.receive(func() {
				if seen.Term > 0 {
					c.step(Reported{a.bucket, seen.Holder, seen.Term})
				}
				if term, ok := c.m.Holds(a.bucket); ok {
					c.command(a, &Header{Bucket: uint32(a.bucket), Term: term, Incarnation: incarnation, Echo: stamp}, at)
				}
			})
		})
	}
}

// take is the arrival of a command at an agent, with the checks of the history.
func (a *simAgent) take(o *Header, reported time.Duration) {
	h := a.h
	why := a.fence.Check(a.clock(), o)
	h.refused[why]++
	before := a.newest
	if int(o.Bucket) == a.bucket && o.Echo <= a.clock() {
		a.newest = max(a.newest, o.Term)
	}
	if why != Obeyed {
		return
	}
	h.obeyed++
	if int(o.Bucket) != a.bucket {
		h.fail("%s obeyed a command for bucket %d", a.name, o.Bucket)
	}
	if o.Term < before {
		h.fail("%s obeyed term %d of %v after it had met term %d", a.name, o.Term, o.Holder, before)
	}
	if other, ok := a.holders[o.Term]; ok && other != o.Holder {
		h.fail("%s obeyed %v and %v in term %d", a.name, other, o.Holder, o.Term)
	}
	a.holders[o.Term] = o.Holder
	if o.Announces {
		return
	}
	id := fmt.Sprint(o.Holder, o.Term, o.Sequence)
	if a.done[id] {
		h.fail("%s obeyed command %s twice", a.name, id)
	}
	a.done[id] = true
	if o.Sequence < a.lastSeq[o.Term] {
		h.fail("%s obeyed command %d of term %d after %d", a.name, o.Sequence, o.Term, a.lastSeq[o.Term])
	}
	a.lastSeq[o.Term] = o.Sequence
	if age := h.now - reported; age > MaxAge {
		h.fail("%s obeyed a command that answers a report of %v ago", a.name, age)
	}
	a.last = h.now
}
