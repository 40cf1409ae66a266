package event

import "math"

// calendar is a calendar queue (Brown 1988): a day is a ring of events in order, of this year's and later years'. The
// number of days follows that of events, the length of a day the gaps between the next events.
type calendar struct {
	now   Time
	count int
	shift uint // a day is 1 << shift ns
	days  []*Event
	spare []*Event
	pulls int // days and events looked at since the last resize
	pops  int
}

func newCalendar() *calendar { return &calendar{days: make([]*Event, 2), shift: 10} }

func (c *calendar) Now() Time { return c.now }

func (c *calendar) Set(ev *Event, at Time) {
	c.Stop(ev)
	ev.at = at
	c.insert(ev)
	c.count++
	if c.count > 2*len(c.days) {
		c.resize(2 * len(c.days))
	}
}

func (c *calendar) insert(ev *Event) {
	ev.slot = 1
	day := int(ev.at>>c.shift) & (len(c.days) - 1)
	first := c.days[day]
	if first == nil {
		ev.next, ev.prev = ev, ev
		c.days[day] = ev
		return
	}
	before := first.prev
	for before.at > ev.at {
		c.pulls++
		if before == first {
			c.days[day] = ev
			before = first.prev
			break
		}
		before = before.prev
	}
	ev.prev, ev.next = before, before.next
	before.next.prev = ev
	before.next = ev
}

func (c *calendar) Stop(ev *Event) {
	if ev.slot == 0 {
		return
	}
	ev.slot = 0
	c.count--
	day := int(ev.at>>c.shift) & (len(c.days) - 1)
	if ev.next == ev {
		c.days[day] = nil
		return
	}
	ev.prev.next, ev.next.prev = ev.next, ev.prev
	if c.days[day] == ev {
		c.days[day] = ev.next
	}
}

func (c *calendar) first() *Event {
	if c.count == 0 {
		return nil
	}
	mask := len(c.days) - 1
	at := c.now >> c.shift
	for i := 0; i <= mask; i++ {
		if ev := c.days[int(at)&mask]; ev != nil && ev.at>>c.shift == at {
			return ev
		}
		at++
		c.pulls++
	}
	var best *Event
	for _, ev := range c.days { // nothing this year
		if ev != nil && (best == nil || ev.at < best.at) {
			best = ev
		}
	}
	return best
}

func (c *calendar) Run(until Time) {
	for {
		ev := c.first()
		if ev == nil || ev.at > until {
			break
		}
		c.Stop(ev)
		c.now = ev.at
		c.pops++
		if c.pops >= 4*len(c.days)+64 {
			if c.pulls > 4*c.pops { // days too long or too short
				c.resize(len(c.days))
			}
			c.pulls, c.pops = 0, 0
		}
		if c.count < len(c.days)/4 && len(c.days) > 2 {
			c.resize(len(c.days) / 2)
		}
		ev.handler.Happen(ev, ev.at)
	}
	c.now = until
}

// resize takes all out and puts them into n days of three times the mean gap of the next 25 events.
func (c *calendar) resize(n int) {
	now := c.now
	var begin, end Time
	taken := 0
	var next [25]*Event
	for taken < len(next) {
		ev := c.first()
		if ev == nil {
			break
		}
		if taken == 0 {
			begin = ev.at
		}
		end = ev.at
		c.Stop(ev)
		next[taken] = ev
		taken++
		c.now = ev.at
	}
	c.now = now
	old := c.days
	if cap(c.spare) < n {
		c.spare = make([]*Event, n)
	}
	c.days = c.spare[:n]
	clear(c.days)
	if taken > 1 {
		c.shift = uint(math.Log2(float64(max(1, 3*(end-begin)/Time(taken-1)))) + 0.5)
	}
	for _, ev := range next[:taken] {
		c.insert(ev)
	}
	c.count += taken
	for _, first := range old {
		if first == nil {
			continue
		}
		last := first.prev
		for ev := first; ; {
			after := ev.next
			c.insert(ev)
			if ev == last {
				break
			}
			ev = after
		}
	}
	c.spare = old
}
