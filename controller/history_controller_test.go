//go:build cgo

package controller

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"weir/bus"
	leases "weir/bus/lease"
	"weir/bus/weirv1"
	"weir/law"
	"weir/law/inventory"
	"weir/law/sicc"
	"weir/law/telemetry"
)

var (
	epoch  = time.Unix(1e9, 0)
	silent = slog.New(slog.DiscardHandler)
)

// modelController is a controller without its sockets.
type modelController struct {
	h       *history
	name    string
	listens bool // it takes part in nothing
	run     uint64
	file    uint64 // the highest term on its disk
	paused  bool
	mail    []letter // arrived while it was paused
	life    int

	m        *leases.Machine
	commands *bus.Commands
	knows    map[string]bool // agents that it notifies of new terms
	core     *Core
	counted  *countingLaw
}

// letter is what arrived. newest: of telemetry, whose newer report replaces it.
type letter struct {
	newest string
	run    func()
}

func (c *modelController) start() {
	h := c.h
	c.run = h.random.Uint64() | 1
	c.life++
	c.paused, c.mail, c.knows = false, nil, map[string]bool{}
	c.m = leases.New(leases.Config{Self: c.Self(), Buckets: buckets, Term: c.file}, h.now)
	c.commands = bus.NewCommands(c.Self(), buckets)
	p := sicc.Default()
	p.OffRule, p.QueueWeight = sicc.OffQueue, 1
	incast, err := sicc.New(*p)
	if err != nil {
		panic(err)
	}
	c.counted = &countingLaw{Law: incast, h: h}
	c.core = newCore(newFence(nil, 1, silent), silent, namedLaw{"sicc", 0, c.counted}, namedLaw{"steady", 1, &steadyLaw{hosts: map[law.Host][]inventory.VM{}}})
	begun := h.now
	c.core.clock, c.core.begun = func() time.Time { return epoch.Add(h.now) }, epoch.Add(begun)
	c.core.agents = newAgents(c.core, silent)
	c.core.agents.bus, c.core.agents.link = c, &busLink{nodes: newNodes(nil, 1, silent)}
}

func (c *modelController) Self() leases.Holder { return leases.Holder{Name: c.name, Run: c.run} }

// Command, Ask, Holds, Control, Self and Buckets make it a commander.
func (c *modelController) Command(agent string, cause *weirv1.Origin, grants []law.Grant) error {
	m, err := c.commands.Answer(agent, cause, grants)
	if err == nil {
		c.post(agent, m)
	}
	return err
}

// Ask announces the term again.
func (c *modelController) Ask(agent string) {
	if term, ok := c.commands.Holds(agent); ok {
		c.post(agent, c.commands.Announce(leases.Bucket(agent, buckets), term))
	}
}

func (c *modelController) Holds(agent string) (uint64, bool) { return c.commands.Holds(agent) }

func (c *modelController) Control() *bus.Control { return nil }

// Plan does nothing: no policy chooses laws of ports here.
func (c *modelController) Plan(string, *weirv1.Origin, *weirv1.PortPlan, *weirv1.HostPlan) error {
	return nil
}

func (c *modelController) Buckets() (held int, term uint64) { return c.commands.Buckets() }

// post sends a command. Sometimes somebody with a controller's rights sends it again much later, with a stamp of the future, or in
// another name.
func (c *modelController) post(agent string, m *weirv1.Command) {
	h := c.h
	b, err := weirv1.Encode(m)
	if err != nil {
		h.fail("%s: %v", c.name, err)
		return
	}
	for _, a := range h.agents {
		if a.name != agent {
			continue
		}
		h.send(c.name, a.name, func() { a.take(b) })
		if h.now < faultsEnd && h.oneIn(40) {
			h.after(h.drawn(5*time.Second), func() { a.take(b) })
		}
		if h.now < faultsEnd && len(m.GetGrants()) > 0 && h.oneIn(40) {
			m.Sequence += 1 << 20
			if h.oneIn(2) {
				m.EchoNs += uint64(time.Hour)
			} else {
				m.Controller.Run++
			}
			if forged, err := weirv1.Encode(m); err == nil {
				h.after(h.drawn(3*time.Second), func() { a.take(forged) })
			}
		}
	}
}

func (c *modelController) resume() {
	mail := c.mail
	c.paused, c.mail = false, nil
	for i, l := range mail {
		if l.newest != "" && slices.ContainsFunc(mail[i+1:], func(later letter) bool { return later.newest == l.newest }) {
			continue
		}
		l.run()
	}
}

func (c *modelController) receive(newest string, run func()) {
	if c.paused {
		c.mail = append(c.mail, letter{newest, run})
		return
	}
	run()
}

// tick is what the real one does when nothing arrives.
func (c *modelController) tick() {
	if c.paused {
		return
	}
	c.step(leases.Tick{})
	if now := c.core.now(); now >= c.core.agents.wake() {
		c.core.agents.look(now)
	}
	c.core.overdue()
}

func (c *modelController) telemetry(agent string, t *weirv1.Telemetry) {
	c.receive(agent, func() {
		c.core.agents.telemetry(c.core.now(), c.core.now(), agent, t)
		c.core.overdue()
	})
}

func (c *modelController) events(agent string, e *weirv1.Events) {
	c.receive("", func() {
		c.saw(agent)
		for _, t := range e.GetState().GetTerms() {
			if int(t.GetBucket()) == leases.Bucket(agent, buckets) {
				c.step(leases.Reported{Bucket: int(t.GetBucket()), Term: t.GetTerm(), Holder: leases.Holder{Name: t.GetController().GetName(), Run: t.GetController().GetRun()}})
			}
		}
		c.core.agents.events(c.core.now(), agent, e)
		c.core.overdue()
	})
}

func (c *modelController) saw(agent string) {
	if c.knows[agent] {
		return
	}
	c.knows[agent] = true
	if term, ok := c.commands.Holds(agent); ok {
		c.post(agent, c.commands.Announce(leases.Bucket(agent, buckets), term))
	}
}

func (c *modelController) step(e leases.Event) {
	if c.paused || c.listens {
		return
	}
	for _, o := range slices.Clone(c.m.Step(c.h.now, e)) {
		c.carryOut(o)
	}
}

func (c *modelController) carryOut(o leases.Order) {
	h, life := c.h, c.life
	answer := func(e leases.Event) func() {
		return func() {
			c.receive("", func() {
				if c.life == life {
					c.step(e)
				}
			})
		}
	}
	switch o := o.(type) {
	case leases.Beacon:
		for _, d := range h.controllers {
			for _, held := range append(o.Held, leases.Held{Bucket: -1}) {
				e := leases.Heard{Bucket: held.Bucket, Holder: c.Self(), Term: held.Term}
				h.send(c.name, d.name, func() { d.receive("", func() { d.step(e) }) })
			}
		}
	case leases.Ask:
		h.send(c.name, "store", func() {
			if !h.storeDown {
				h.send("store", c.name, answer(leases.Read{Bucket: o.Bucket, Record: h.store[o.Bucket]}))
			}
		})
	case leases.Store:
		c.file = max(c.file, o.Term)
		answer(leases.Stored(o))()
	case leases.Write:
		self := c.Self()
		h.send(c.name, "store", func() {
			if h.storeDown {
				return
			}
			r := &h.store[o.Bucket]
			ok := r.Revision == o.Revision
			if ok {
				*r = leases.Record{Holder: self, Term: o.Term, Revision: r.Revision + 1}
			}
			h.send("store", c.name, answer(leases.Written{Bucket: o.Bucket, Term: o.Term, OK: ok, Revision: r.Revision}))
		})
	case leases.Announce:
		for _, agent := range sortedKeys(c.knows) {
			if leases.Bucket(agent, buckets) == o.Bucket || h.now < faultsEnd && h.oneIn(4) { // a controller with another number of buckets
				c.post(agent, c.commands.Announce(o.Bucket, o.Term))
			}
		}
		answer(leases.Announced(o))()
	case leases.Began:
		c.commands.Set(o.Bucket, o.Term)
	case leases.Ended:
		c.commands.Set(o.Bucket, 0)
	}
}

// state is what the controller knows of agents.
func (c *modelController) state() string {
	var b strings.Builder
	a := c.core.agents
	for _, name := range sortedKeys(a.known) {
		ag := a.known[name]
		fmt.Fprintf(&b, "%s: switch %d with %v, host %d with %v, inventories", name, ag.sw, ag.ports, ag.host, ag.has)
		for _, i := range ag.inventories {
			fmt.Fprintf(&b, " %d", i.serial)
		}
		b.WriteByte('\n')
	}
	for _, vm := range sortedKeys(a.vms) {
		fmt.Fprintf(&b, "VM %d of", vm)
		for _, ag := range a.vms[vm] {
			fmt.Fprintf(&b, " %s", ag.name)
		}
		b.WriteByte('\n')
	}
	addresses := map[string]law.VM{}
	for ip := range a.addresses {
		addresses[ip.String()] = a.vmAt(ip)
	}
	fmt.Fprintf(&b, "%d switches, %d hosts, addresses %v\n", len(a.switches), len(a.hosts), addresses)
	return b.String()
}

// decides returns the grants that are sent after the same events.
func (c *modelController) decides() string {
	var said []string
	for i, l := range c.core.laws {
		for phase, backlog := range []uint64{bufferBytes, 0} {
			at := c.core.now() + time.Duration(phase+1)*time.Second
			var out []law.Action
			for sw := range law.Switch(2) {
				all := &telemetry.Arrivals{At: sw + 1, T: readEvery, Ports: []telemetry.PortArrivals{{N: 1}, {N: 2}}}
				readings := &telemetry.Telemetry{At: sw + 1, T: readEvery}
				for p := range all.Ports {
					at := &all.Ports[p]
					for vm := range law.VM(6) {
						at.Counts.SYN++
						at.Pairs = append(at.Pairs, telemetry.Pair{Source: addressOf(vm + 1), Destination: peerOf(at.N), Kinds: telemetry.SYN})
					}
					readings.Ports = append(readings.Ports, telemetry.Port{N: at.N, BacklogBytes: backlog})
				}
				if phase == 0 {
					out = l.Step(at, all, out)
				}
				out = l.Step(at, readings, out)
			}
			for _, a := range l.Step(at, law.Tick{}, out) {
				g := a.(law.Grant)
				if c.core.agents.vms.of(g.Key.VM) == nil {
					continue // sent nowhere
				}
				said = append(said, fmt.Sprintf("law %d, phase %d: VM %d to %v: %d for %v\n", i, phase, g.Key.VM, g.Key.Peer, g.Value, g.Lease))
			}
		}
	}
	slices.Sort(said)
	return strings.Join(slices.Compact(said), "")
}

// countingLaw checks that its law learns about no connection that did not begin.
type countingLaw struct {
	law.Law
	h    *history
	syns uint64
}

func (l *countingLaw) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	if a, is := e.(*telemetry.Arrivals); is {
		for i := range a.Ports {
			l.syns += a.Ports[i].Counts.SYN
		}
		// A report may be on its way when the controller starts.
		if sent := l.h.sent(); l.h.fresh == nil && l.syns > sent {
			l.h.fail("a law has seen %d connections begin, of %d", l.syns, sent)
		}
	}
	return l.Law.Step(now, e, out)
}

// sent returns how many connections began.
func (h *history) sent() (n uint64) {
	for _, a := range h.agents {
		n += a.syns
	}
	return n
}

// steadyLaw grants each VM a rate again and again, whatever happens.
type steadyLaw struct {
	hosts map[law.Host][]inventory.VM
	next  time.Duration
}

const (
	steadyEvery = 400 * time.Millisecond
	steadyLease = 5 * time.Second // agents shorten it
)

func (l *steadyLaw) Wake() time.Duration { return max(l.next, 1) }

func (l *steadyLaw) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	switch e := e.(type) {
	case *inventory.Host:
		l.hosts[e.At] = slices.Clone(e.VMs)
	case *inventory.HostLeft:
		delete(l.hosts, e.At)
	}
	if now < l.next {
		return out
	}
	l.next = now + steadyEvery
	for _, h := range sortedKeys(l.hosts) {
		for _, vm := range l.hosts[h] {
			out = append(out, law.Grant{Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: vm.Number}}, Value: 1e8, Lease: steadyLease})
		}
	}
	return out
}
