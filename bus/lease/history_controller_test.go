package lease

import (
	"slices"
	"time"
)

func (c *simController) start() {
	c.run = c.h.random.Uint64() | 1
	if c.h.f.losesFile && c.h.now > 0 && c.h.random.IntN(2) == 0 {
		c.file = 0
	}
	c.life++
	c.mail, c.seq = nil, map[string]uint64{}
	c.m = New(Config{Self: c.self(), Buckets: len(c.h.store), Term: c.file, Alone: c.h.f.alone}, c.h.now)
	if n := c.h.m.source; n > 0 {
		c.m.sources = slices.Delete(slices.Clone(c.m.sources), n-1, n)
	}
}

func (c *simController) self() Holder { return Holder{c.name, c.run} }

func (c *simController) resume() {
	mail := c.mail
	c.paused, c.mail = false, nil
	for _, f := range mail {
		f()
	}
}

// receive runs f now, or when the controller is not paused any more. Messages for an earlier run are lost.
func (c *simController) receive(f func()) {
	if c.paused {
		c.mail = append(c.mail, f)
	} else {
		f()
	}
}

func (c *simController) step(e Event) {
	if c.paused {
		return
	}
	switch e := e.(type) {
	case Heard:
		defer func() {
			if term, ok := c.m.Holds(e.Bucket); ok && e.Holder != c.self() && term < e.Term {
				c.h.fail("%v holds bucket %d with term %d after it heard %v with term %d", c.self(), e.Bucket, term, e.Holder, e.Term)
			}
		}()
		if _, ok := c.m.Holds(e.Bucket); ok && c.h.m.deafHeard {
			return
		}
	case Reported:
		if _, ok := c.m.Holds(e.Bucket); ok && c.h.m.noRaise {
			return
		}
	}
	for _, o := range slices.Clone(c.m.Step(c.h.now, e)) {
		c.carryOut(o)
	}
}

func (c *simController) carryOut(o Order) {
	h, life := c.h, c.life
	answer := func(e Event) func() {
		return func() {
			c.receive(func() {
				if c.life == life {
					c.step(e)
				}
			})
		}
	}
	switch o := o.(type) {
	case Beacon:
		for _, d := range h.controllers {
			for _, held := range append(o.Held, Held{Bucket: -1}) {
				e := Heard{held.Bucket, c.self(), held.Term}
				h.send(c.name, d.name, func() { d.receive(func() { d.step(e) }) })
			}
		}
	case Ask:
		h.send(c.name, "store", func() {
			if !h.storeDown {
				h.send("store", c.name, answer(Read{o.Bucket, h.store[o.Bucket]}))
			}
		})
	case Store:
		h.after(time.Duration(h.random.Int64N(int64(30*time.Millisecond))), func() {
			if c.life == life {
				c.file = max(c.file, o.Term)
				answer(Stored(o))()
			}
		})
	case Write:
		self := c.self()
		h.send(c.name, "store", func() {
			if h.storeDown {
				return
			}
			r := &h.store[o.Bucket]
			ok := r.Revision == o.Revision || h.m.blindCAS
			if ok {
				if o.Term <= r.Term && !h.f.wipes { // after a wipe an old write may match a new revision
					h.fail("the record of bucket %d goes from term %d to %d", o.Bucket, r.Term, o.Term)
				}
				*r = Record{self, o.Term, r.Revision + 1}
			}
			h.send("store", c.name, answer(Written{o.Bucket, o.Term, ok, r.Revision}))
		})
	case Began:
		// Without wipes compare-and-set makes owners of terms unique; alone, the file does.
		key := [2]uint64{uint64(o.Bucket), o.Term}
		if other, ok := h.owners[key]; ok && other != c.self() && !h.f.wipes {
			h.fail("%v and %v both command in bucket %d with term %d", other, c.self(), o.Bucket, o.Term)
		}
		h.owners[key] = c.self()
	case Announce:
		for _, a := range h.agents {
			if a.bucket == o.Bucket || h.random.IntN(4) == 0 { // some controllers have another number of buckets
				c.command(a, &Header{Bucket: uint32(o.Bucket), Term: o.Term, Announces: true}, 0)
			}
		}
		answer(Announced(o))()
	}
}

// command sends one to an agent. reported is the true time of the report that it answers.
func (c *simController) command(a *simAgent, o *Header, reported time.Duration) {
	c.seq[a.name]++
	o.Holder, o.Sequence = c.self(), c.seq[a.name]
	c.h.send(c.name, a.name, func() { a.take(o, reported) })
	if c.h.f.forges && !o.Announces && c.h.random.IntN(20) == 0 {
		forged := *o
		forged.Sequence += 1 << 20
		forged.Echo += time.Hour // so that the command would stay fresh for ever
		c.h.after(1500*time.Millisecond, func() { a.take(&forged, reported) })
	}
}
