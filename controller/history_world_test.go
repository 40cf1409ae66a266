//go:build cgo

package controller

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	leases "weir/bus/lease"
	"weir/law"
)

// A history is a run of controllers, agents and a store on virtual time, with faults that are drawn from a seed. All that decides is
// the real code: leases and fences (bus/lease), which commands are sent (bus.Commands), who has what and where grants go (agents),
// the laws, how long grants are valid (agentd.Grants, core/grant.h). Network, clocks, store and tables of the kernel are models.
// bus/lease has histories of leases alone, with more faults of the store.

const (
	faultsEnd   = 6 * time.Second
	quietEnd    = faultsEnd + 4*time.Second
	readEvery   = 100 * time.Millisecond
	stepEvery   = 50 * time.Millisecond
	buckets     = 2
	grantsEnd   = 1500 * time.Millisecond // after the report that they answer
	bufferBytes = 125_000
)

type pending struct {
	at  time.Duration
	n   int
	run func()
}

type timeline []pending

func (q timeline) Len() int { return len(q) }
func (q timeline) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q timeline) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *timeline) Push(x any)   { *q = append(*q, x.(pending)) }
func (q *timeline) Pop() any     { old := *q; x := old[len(old)-1]; *q = old[:len(old)-1]; return x }

type link struct{ from, to string }

type history struct {
	random *rand.Rand
	now    time.Duration
	q      timeline
	n      int
	errs   []string

	store       [buckets]leases.Record
	storeDown   bool
	controllers []*modelController
	fresh       *modelController // started when the faults have ended; it only listens
	agents      []*modelAgent
	cut         map[link]bool // one-way: everything is lost
	loss        float64
	moving      law.VM // that moves between two hosts; 0: none

	obeyed, applied, limited int
	refused                  map[leases.Reason]int
}

func newHistory(seed uint64) *history {
	h := &history{random: rand.New(rand.NewPCG(seed, 19)), cut: map[link]bool{}, refused: map[leases.Reason]int{}}
	for i := range 2 {
		h.agents = append(h.agents, newModelAgent(h, fmt.Sprint("sw", i), law.Switch(i+1), 0))
	}
	for i := range 3 {
		a := newModelAgent(h, fmt.Sprint("h", i), 0, law.Host(i+1))
		a.kernel.vms[law.VM(2*i+1)], a.kernel.vms[law.VM(2*i+2)] = true, true
		h.agents = append(h.agents, a)
	}
	for i := range 2 + h.random.IntN(2) {
		c := &modelController{h: h, name: fmt.Sprint("c", i)}
		c.start()
		h.controllers = append(h.controllers, c)
		h.every(stepEvery, c.tick)
	}
	for _, a := range h.agents {
		a.start()
		h.every(readEvery, a.read)
		h.every(250*time.Millisecond, a.report)
		h.every(5*time.Second, a.inventory)
	}
	h.after(h.drawn(time.Second), h.fault)
	h.after(faultsEnd, h.heal)
	return h
}

func (h *history) drawn(below time.Duration) time.Duration {
	return time.Duration(h.random.Int64N(int64(below)))
}
func (h *history) oneIn(n int) bool { return h.random.IntN(n) == 0 }

func (h *history) after(d time.Duration, run func()) {
	h.n++
	heap.Push(&h.q, pending{h.now + d, h.n, run})
}

func (h *history) every(d time.Duration, run func()) {
	var again func()
	again = func() { run(); h.after(d, again) }
	h.after(h.drawn(d), again)
}

func (h *history) fail(format string, a ...any) {
	h.errs = append(h.errs, fmt.Sprintf("%v: ", h.now)+fmt.Sprintf(format, a...))
}

// play runs the history and returns what went wrong.
func (h *history) play() []string {
	for len(h.q) > 0 && len(h.errs) == 0 {
		e := heap.Pop(&h.q).(pending)
		if e.at > quietEnd {
			break
		}
		h.now = e.at
		e.run()
	}
	if len(h.errs) == 0 {
		h.settled()
	}
	return h.errs
}

// report delivers a report after a random delay, some late, some never. Core NATS delivers no message twice, and keeps the order
// of a connection: so a report is never late by the time after which an agent counts as silent.
func (h *history) report(from, to string, deliver func()) {
	sent, arrived := h.now, false
	h.send(from, to, func() {
		if !arrived && h.now-sent < agentSilence/2 {
			deliver()
		}
		arrived = true
	})
}

// send delivers after a random delay, some twice, some late, some never.
func (h *history) send(from, to string, deliver func()) {
	faulty := h.now < faultsEnd
	copies := 1
	if faulty && h.oneIn(20) {
		copies = 2
	}
	for range copies {
		delay := h.drawn(20 * time.Millisecond)
		if faulty && h.oneIn(30) {
			delay = min(h.drawn(4*time.Second), faultsEnd-h.now)
		}
		if h.cut[link{from, to}] || h.random.Float64() < h.loss {
			continue
		}
		h.after(delay, deliver)
	}
}

// fault begins one, and draws the time of the next.
func (h *history) fault() {
	if h.now >= faultsEnd {
		return
	}
	h.after(h.drawn(700*time.Millisecond), h.fault)
	c, a := h.controllers[h.random.IntN(len(h.controllers))], h.agents[h.random.IntN(len(h.agents))]
	lasting := func(end func()) { h.after(h.drawn(3*time.Second), end) }
	switch h.random.IntN(10) {
	case 0:
		c.paused = true
		lasting(c.resume)
	case 1:
		c.start() // kill -9 and a restart
	case 2, 3:
		x, y := h.end(), h.end()
		h.cut[link{x, y}] = true
		lasting(func() { delete(h.cut, link{x, y}) })
	case 4:
		h.loss = h.random.Float64() * 0.5
	case 5:
		a.kill(h.oneIn(4))
		lasting(a.start)
	case 6:
		a.stop(h.drawn(3 * time.Second))
	case 7:
		h.storeDown = true
		lasting(func() { h.storeDown = false })
	case 8:
		h.move()
	case 9:
		if h.oneIn(2) { // an operator begins anew, with an empty store and without the controllers' files
			h.store = [buckets]leases.Record{}
			for _, c := range h.controllers {
				c.file = 0
				c.start()
			}
		}
	}
}

// end draws the end of a link.
func (h *history) end() string {
	ends := []string{"store"}
	for _, c := range h.controllers {
		ends = append(ends, c.name)
	}
	for _, a := range h.agents {
		ends = append(ends, a.name)
	}
	return ends[h.random.IntN(len(ends))]
}

// move moves a VM to another host, with a time in which both report it, or none does.
func (h *history) move() {
	from, to := h.agents[2+h.random.IntN(3)], h.agents[2+h.random.IntN(3)]
	vms := sortedKeys(from.kernel.vms)
	if from == to || len(vms) == 0 || h.moving != 0 {
		return
	}
	vm := vms[h.random.IntN(len(vms))]
	h.moving = vm
	leave := func() { from.kernel.removeVM(vm); from.changed() }
	arrive := func() { to.kernel.vms[vm] = true; to.changed() }
	first, second := leave, arrive
	if h.oneIn(2) {
		first, second = arrive, leave
	}
	first()
	h.after(h.drawn(time.Second), func() { second(); h.moving = 0 })
}

func (h *history) heal() {
	clear(h.cut)
	h.loss, h.storeDown = 0, false
	for _, c := range h.controllers {
		c.resume()
	}
	if h.oneIn(4) { // a machine is gone for good
		a := h.agents[h.random.IntN(len(h.agents))]
		a.kill(false)
		a.gone = true
	}
	for _, a := range h.agents {
		a.resume()
		a.start()
	}
	h.fresh = &modelController{h: h, name: "fresh", listens: true}
	h.fresh.start()
	for _, a := range h.agents { // every 5 s; this one is the first with the fresh controller
		h.after(100*time.Millisecond+h.drawn(time.Second), a.inventory)
	}
}

// everybody lists the controllers that get reports.
func (h *history) everybody() []*modelController {
	if h.fresh == nil {
		return h.controllers
	}
	return append(slices.Clip(h.controllers), h.fresh)
}

// settled checks that control has returned, and that each controller's state is that of one which started after the faults.
func (h *history) settled() {
	for b := range buckets {
		holders := 0
		for _, c := range h.controllers {
			if _, ok := c.m.Holds(b); ok {
				holders++
			}
		}
		if holders != 1 {
			h.fail("bucket %d has %d holders %v after the last fault", b, holders, quietEnd-faultsEnd)
		}
	}
	for _, a := range h.agents {
		if a.host == 0 || a.gone {
			continue
		}
		if len(a.kernel.vms) > 0 && h.now-a.last > time.Second {
			h.fail("%s last obeyed at %v, has seen %v; all refused %v", a.name, a.last, a.fence.Seen(), h.refused)
			for _, c := range h.controllers {
				term, ok := c.Holds(a.name)
				h.fail("%s holds it: %v, with term %d; it sent grants: %v\n%s", c.name, ok, term, c.core.agents.results, c.state())
			}
		}
		for vm := range a.kernel.vms {
			if windows, rates := a.kernel.live(vm); windows != 0 || rates != 1 {
				h.fail("VM %d at %s has %d windows and %d rates, want none and one", vm, a.name, windows, rates)
			}
		}
	}
	want := h.fresh.state() + h.fresh.decides()
	for _, c := range h.controllers {
		if got := c.state() + c.decides(); got != want {
			h.fail("%s differs from a controller that started after the faults:\n%s", c.name, cmp.Diff(want, got))
		}
	}
}

// addressOf is the address of a VM, the same at all hosts.
func addressOf(vm law.VM) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(vm)}) }

// peerOf is who VMs send to through a port.
func peerOf(port uint32) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 9, byte(port)}) }
