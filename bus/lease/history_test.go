package lease

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A history is a run of controllers, agents and a store on virtual time, with faults that are drawn from a seed. It checks what
// the agents obey, and that control returns once the faults end.

const (
	faultsEnd  = 15 * time.Second
	historyEnd = faultsEnd + 10*time.Second
	reportGap  = 100 * time.Millisecond
)

// faults selects what a history may do.
type faults struct {
	alone     bool // one controller, without a store
	mistake   bool // two such controllers on two machines: then control may not settle
	wipes     bool // the store loses its records
	losesFile bool // a restart loses the generation file
	forges    bool // commands come with stamps of the future
}

// mutant takes a check out.
type mutant struct {
	name      string
	fence     string // without this check
	forgets   bool   // agents do not store terms
	source    int    // 1-based: without this source of a new term
	blindCAS  bool   // the store writes whatever the revision is
	deafHeard bool   // controllers ignore heartbeats with a higher term while they hold
	noRaise   bool   // controllers ignore what agents report while they hold
}

type event2 struct {
	at  time.Duration
	n   int
	run func()
}

type queue []event2

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event2)) }
func (q *queue) Pop() any     { old := *q; x := old[len(old)-1]; *q = old[:len(old)-1]; return x }

type history struct {
	f      faults
	m      mutant
	random *rand.Rand
	now    time.Duration
	q      queue
	n      int

	store       []Record // by bucket
	storeDown   bool
	controllers []*simController
	agents      []*simAgent
	cut         map[[2]string]bool // one-way links that lose everything
	loss        float64
	owners      map[[2]uint64]Holder // bucket, term -> who began to command with it
	errs        []string
	obeyed      int
	refused     map[Reason]int
}

type simController struct {
	h      *history
	name   string
	run    uint64
	m      *Machine
	file   uint64
	paused bool
	mail   []func() // arrived while it was paused
	seq    map[string]uint64
	life   int
}

type simAgent struct {
	h           *history
	name        string
	bucket      int
	origin      time.Duration // of its clock
	incarnation uint64
	fence       *Fence
	disk        Seen

	newest    uint64            // highest term that ever arrived for its bucket
	holders   map[uint64]Holder // term -> whom it obeyed
	done      map[string]bool   // commands that it obeyed
	last      time.Duration     // when it obeyed last
	lastSeq   map[uint64]uint64
	lastOwner Holder
	reports   map[uint64]time.Duration // true time of its reports, by stamp of this incarnation
}

func newHistory(seed uint64, f faults, m mutant) *history {
	h := &history{
		f: f, m: m, random: rand.New(rand.NewPCG(seed, 19)), cut: map[[2]string]bool{}, owners: map[[2]uint64]Holder{}, refused: map[Reason]int{},
	}
	buckets := 1 + h.random.IntN(2)
	h.store = make([]Record, buckets)
	baseTerm := uint64(h.random.IntN(2)) * 1000 // half of the histories begin with the first terms
	controllers := 2 + h.random.IntN(2)
	if f.alone && !f.mistake {
		controllers = 1
	}
	for b := range h.store {
		if baseTerm > 0 {
			h.store[b] = Record{Holder{"c-old", 1}, baseTerm + uint64(h.random.IntN(10)), 1}
		}
	}
	for i := range 2 + h.random.IntN(3) {
		a := &simAgent{
			h: h, name: fmt.Sprint("a", i), bucket: i % buckets, origin: time.Duration(h.random.Int64N(int64(time.Hour))),
			holders: map[uint64]Holder{}, done: map[string]bool{}, lastSeq: map[uint64]uint64{},
		}
		if baseTerm > 0 && h.random.IntN(2) == 0 { // it has seen the last controller of before
			a.disk = Seen{h.store[a.bucket].Term, h.store[a.bucket].Holder}
			a.newest, a.holders[a.disk.Term] = a.disk.Term, a.disk.Holder
		}
		a.start()
		h.agents = append(h.agents, a)
		h.every(reportGap, func() { a.report() })
	}
	for i := range controllers {
		c := &simController{h: h, name: fmt.Sprint("c", i), file: baseTerm}
		if f.alone && baseTerm > 0 {
			c.file = baseTerm + 10
		}
		c.start()
		h.controllers = append(h.controllers, c)
		h.every(50*time.Millisecond, func() { c.step(Tick{}) })
	}
	h.after(time.Duration(h.random.Int64N(int64(time.Second))), h.fault)
	return h
}

func (h *history) after(d time.Duration, run func()) {
	h.n++
	heap.Push(&h.q, event2{h.now + d, h.n, run})
}

func (h *history) every(d time.Duration, run func()) {
	var again func()
	again = func() { run(); h.after(d, again) }
	h.after(time.Duration(h.random.Int64N(int64(d))), again)
}

// play runs the history and returns what went wrong.
func (h *history) play() []string {
	for len(h.q) > 0 && len(h.errs) == 0 {
		e := heap.Pop(&h.q).(event2)
		if e.at > historyEnd {
			break
		}
		h.now = e.at
		e.run()
	}
	if len(h.errs) == 0 && !h.f.mistake {
		h.settled()
	}
	return h.errs
}

func (h *history) fail(format string, a ...any) {
	h.errs = append(h.errs, fmt.Sprintf("%v: ", h.now)+fmt.Sprintf(format, a...))
}

// settled checks that each bucket has one controller whom all its agents obey.
func (h *history) settled() {
	for b := range h.store {
		holders := 0
		for _, c := range h.controllers {
			if _, ok := c.m.Holds(b); ok {
				holders++
			}
		}
		if holders != 1 {
			h.fail("bucket %d has %d holders 10 s after the last fault", b, holders)
		}
	}
	for _, a := range h.agents {
		if h.now-a.last > time.Second {
			h.fail("%s last obeyed at %v; it refused %v", a.name, a.last, h.refused)
		}
	}
}

// fault begins or ends one, and draws the next.
func (h *history) fault() {
	if h.now >= faultsEnd {
		h.heal()
		return
	}
	h.after(time.Duration(h.random.Int64N(int64(1500*time.Millisecond))), h.fault)
	c, a := h.controllers[h.random.IntN(len(h.controllers))], h.agents[h.random.IntN(len(h.agents))]
	for2 := func(end func()) { h.after(time.Duration(h.random.Int64N(int64(5*time.Second))), end) }
	switch h.random.IntN(11) {
	case 0, 1:
		c.paused = true
		for2(c.resume)
	case 2:
		c.start()
	case 3, 4:
		ends := []string{"store"}
		for _, c := range h.controllers {
			ends = append(ends, c.name)
		}
		for _, a := range h.agents {
			ends = append(ends, a.name)
		}
		x, y := ends[h.random.IntN(len(ends))], ends[h.random.IntN(len(ends))]
		h.cut[[2]string{x, y}] = true
		for2(func() { delete(h.cut, [2]string{x, y}) })
	case 5:
		h.loss = h.random.Float64() * 0.5
	case 6, 7:
		a.start()
	case 8:
		h.storeDown = true
		for2(func() { h.storeDown = false })
	case 9:
		if h.f.wipes {
			clear(h.store)
			for _, c := range h.controllers { // an operator begins anew
				c.file = 0
				c.start()
			}
		}
	case 10:
		for _, d := range h.controllers { // all of them see nothing of each other
			for _, e := range h.controllers {
				h.cut[[2]string{d.name, e.name}] = true
			}
		}
		for2(func() { clear(h.cut) })
	}
}

func (h *history) heal() {
	clear(h.cut)
	h.loss, h.storeDown = 0, false
	for _, c := range h.controllers {
		c.resume()
	}
}

// send delivers after a random delay, some twice, some late, some never.
func (h *history) send(from, to string, deliver func()) {
	faulty := h.now < faultsEnd
	copies := 1
	if faulty && h.random.IntN(20) == 0 {
		copies = 2
	}
	for range copies {
		delay := time.Duration(h.random.Int64N(int64(20 * time.Millisecond)))
		if faulty && h.random.IntN(30) == 0 {
			delay = time.Duration(h.random.Int64N(int64(4 * time.Second)))
		}
		if h.cut[[2]string{from, to}] || h.random.Float64() < h.loss {
			continue
		}
		h.after(delay, deliver)
	}
}

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
				answer(Stored{o.Bucket, o.Term})()
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
		answer(Announced{o.Bucket, o.Term})()
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
