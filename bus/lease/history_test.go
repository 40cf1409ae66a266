package lease

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
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

type pending struct {
	at  time.Duration
	n   int
	run func()
}

type queue []pending

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(pending)) }
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

	newest  uint64            // highest term that ever arrived for its bucket
	holders map[uint64]Holder // term -> whom it obeyed
	done    map[string]bool   // commands that it obeyed
	last    time.Duration     // when it obeyed last
	lastSeq map[uint64]uint64
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
	heap.Push(&h.q, pending{h.now + d, h.n, run})
}

func (h *history) every(d time.Duration, run func()) {
	var again func()
	again = func() { run(); h.after(d, again) }
	h.after(time.Duration(h.random.Int64N(int64(d))), again)
}

// play runs the history and returns what went wrong.
func (h *history) play() []string {
	for len(h.q) > 0 && len(h.errs) == 0 {
		e := heap.Pop(&h.q).(pending)
		if e.at > historyEnd || h.f.mistake && e.at > 6*time.Second { // two that are alone send many messages
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
