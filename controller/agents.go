package controller

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"weir/bus"
	"weir/bus/inband"
	leases "weir/bus/lease"
	"weir/bus/weirv1"
	"weir/law"
	"weir/law/flows"
	"weir/law/inventory"
	"weir/policy"
	"weir/policy/store"
)

const (
	// agentSilence is how long an agent may send nothing: it sends its state every 250 ms. Its grants end at about the same time.
	agentSilence = 1500 * time.Millisecond
	// inventoryEvery is the least time between two inventories of an agent's role: each is work for all laws and policies.
	inventoryEvery = time.Second
	linesBurst     = 10  // log lines of an agent's inventories at once; then one a minute
	eventsWaiting  = 256 // messages of one agent that wait for the laws; further ones are dropped
)

// agents passes the reports of agents to the laws, and remembers who has which switch, host and VM. All methods run on the laws'
// goroutine, except arrived.
type agents struct {
	core *Core
	log  *slog.Logger
	bus  commander
	link *busLink
	mail letters

	version string // of this build

	known     map[string]*agent
	switches  claims[law.Switch]
	hosts     claims[law.Host]
	vms       claims[law.VM]
	addresses claims[netip.Addr]
	looked    time.Duration // when silent agents were looked for, on the core's clock

	policies *policies // nil: none, in tests

	progress flows.Progress // memory of the event

	orders  map[*agent][]law.Grant // of the step that runs
	results map[string]uint64      // of grants, by what became of them
	refused map[string]uint64      // messages, by reason
}

// commander is the controller's end of the bus: a bus.Runner.
type commander interface {
	Command(agent string, cause *weirv1.Origin, grants []law.Grant) error
	Plan(agent string, cause *weirv1.Origin, ports *weirv1.PortPlan, host *weirv1.HostPlan) error
	Holds(agent string) (term uint64, ok bool)
	Ask(agent string)
	Control() *bus.Control
	Self() leases.Holder
	Buckets() (held int, term uint64)
}

// agent is one agent, by the name in its certificate.
type agent struct {
	name        string
	heard       time.Duration  // on the core's clock
	origin      *weirv1.Origin // of its last message
	delay       delay
	differences weirv1.Differences
	inventories [2]struct { // of the roles switch and host, which report apart
		parts  weirv1.Parts
		serial uint64
		next   *weirv1.Inventory // complete, and not applied yet
		whole  *weirv1.Inventory
	}
	version string
	node    policy.Node  // of its inventories
	own     *policy.Node // node with what it may have; nil: to be made

	laws     taken // of a switch's ports
	shares   taken // of a host's VMs
	refusals []*weirv1.RefusedGrant

	sw    law.Switch // 0: none
	host  law.Host
	ports []inventory.Port
	has   map[law.VM]inventory.VM // that it reports; claims has who may have them
	at    map[netip.Addr]law.VM   // addresses of its VMs; claims has who may have them

	numbered [2]uint64        // incarnations of the agent that said the numbers of its roles last
	left     [2]time.Duration // when a role got another number, on the core's clock; 0: never
	missed   bool             // a deadline of an unknown VM was refused since the host's last inventory

	applied [2]time.Duration // when the inventories of its roles were applied, on the core's clock; 0: never
	lines   *rate.Limiter    // of the log
}

func newAgents(core *Core, log *slog.Logger) *agents {
	return &agents{
		core: core, log: log, mail: letters{byAgent: map[string]*queue[*weirv1.Events]{}}, known: map[string]*agent{},
		switches: claims[law.Switch]{}, hosts: claims[law.Host]{}, vms: claims[law.VM]{}, addresses: claims[netip.Addr]{},
		orders: map[*agent][]law.Grant{}, results: map[string]uint64{}, refused: map[string]uint64{},
	}
}

// step takes one message of each kind, if there are any. It reports whether there were. Events of an agent come before its report: the report
// decides about the arrivals of its interval.
func (a *agents) step(now time.Duration) (busy bool) {
	if name, e, ok := a.mail.next(); ok {
		busy = true
		a.events(now, name, e)
	}
	inbox := a.bus.Control().Inbox()
	if name, t, ok := inbox.Next(); ok {
		busy = true
		for _, e := range a.mail.of(name) {
			a.events(now, name, e)
		}
		a.telemetry(now, inbox.Came().Sub(a.core.begun), name, t)
	}
	if now >= a.wake() {
		a.look(now)
	}
	return busy
}

// wake returns when silent agents are looked for next.
func (a *agents) wake() time.Duration { return a.looked + agentSilence/6 }

func (a *agents) heard(now time.Duration, name string, o *weirv1.Origin) *agent {
	ag := a.known[name]
	if ag == nil {
		ag = &agent{name: name, has: map[law.VM]inventory.VM{}, lines: rate.NewLimiter(rate.Every(time.Minute), linesBurst)}
		a.known[name] = ag
		a.log.Info("an agent reports", "agent", name)
		a.bus.Ask(name) // it may have been silent for a time, and send its inventory only in a few seconds
	}
	if ag.origin.GetIncarnation() != o.GetIncarnation() {
		ag.inventories, ag.laws.sent, ag.shares.sent = agent{}.inventories, 0, 0 // it restarted: serial numbers begin anew
		ag.delay = delay{}                                                       // its machine may have, too
	}
	ag.delay.see(now, time.Duration(o.GetStampNs()))
	ag.heard, ag.origin = now, o
	return ag
}

// telemetry passes a report to the laws, if the agent has the switch that it names. came is when the report arrived.
func (a *agents) telemetry(now, came time.Duration, name string, m *weirv1.Telemetry) {
	ag := a.heard(now, name, m.GetOrigin())
	if !a.hasSwitch(ag, law.Switch(m.GetSwitch())) {
		return
	}
	if e := ag.differences.Telemetry(m); e != nil {
		a.core.tracer.report(name, m.GetOrigin(), came)
		a.core.step(e)
		a.core.tracer.idle()
	}
}

func (a *agents) events(now time.Duration, name string, m *weirv1.Events) {
	ag := a.heard(now, name, m.GetOrigin())
	if v := m.GetState().GetVersion(); v != "" {
		ag.version = v
	}
	if m.GetSwitch() != 0 && !a.hasSwitch(ag, law.Switch(m.GetSwitch())) || m.GetHost() != 0 && !a.hasHost(ag, law.Host(m.GetHost())) {
		return
	}
	if part := m.GetInventory(); part != nil {
		a.inventory(now, ag, part, m.GetHost() != 0)
	}
	a.apply(now, ag, 0)
	a.apply(now, ag, 1)
	if s := m.GetState(); s != nil {
		if m.GetHost() != 0 {
			ag.refusals, ag.shares.state = s.GetRefused(), s.GetHostPlan()
		} else {
			ag.laws.state = s.GetPlan()
		}
		a.policies.offer(ag)
	}
	a.deadlines(ag, m)
	a.flows(name, m)
	if m.GetSwitch() != 0 {
		if e := ag.differences.Arrivals(m); e != nil {
			a.core.tracer.report(name, m.GetOrigin(), 0)
			a.core.step(e)
			a.core.tracer.idle()
		}
	}
}

// hasSwitch reports whether an agent has a switch, and claims it for the agent.
func (a *agents) hasSwitch(ag *agent, n law.Switch) bool {
	return has(a, ag, a.switches, &ag.sw, n, 0)
}

// hasHost reports whether an agent has a host, and claims it for the agent.
func (a *agents) hasHost(ag *agent, n law.Host) bool { return has(a, ag, a.hosts, &ag.host, n, 1) }

// has reports whether an agent has number n of a role. own is the agent's number: it keeps its first one until it restarts.
func has[N comparable](a *agents, ag *agent, all claims[N], own *N, n N, role int) bool {
	var none N
	kind := [...]string{"switch", "host"}[role]
	if n != none && *own != none && *own != n && a.mayChange(ag, role) {
		a.log.Info("an agent restarted with another number", "agent", ag.name, kind, n, "was", *own)
		a.leaveRole(ag, role)
	}
	if n == none || *own != none && *own != n {
		a.refuse(ag, kind, fmt.Sprintf("it reports as %s %v and was %v", kind, n, *own))
		return false
	}
	if *own == none {
		*own = n
		all.add(n, ag)
	}
	ag.numbered[role] = ag.origin.GetIncarnation()
	if of := all.of(n); of != ag {
		a.refuse(ag, "claimed", fmt.Sprintf("agent %s has %s %v", of.name, kind, n))
		return false
	}
	return true
}

// mayChange reports whether the number of a role may become another one: the agent restarted, and the last change is as long ago as an
// agent is silent before its number is forgotten.
func (a *agents) mayChange(ag *agent, role int) bool {
	return ag.numbered[role] != ag.origin.GetIncarnation() && (ag.left[role] == 0 || ag.heard-ag.left[role] >= agentSilence)
}

// refuse counts a message that has no effect, and logs the first of its reason, the second, the fourth, and so on.
func (a *agents) refuse(ag *agent, reason, why string) {
	a.refused[reason]++
	if n := a.refused[reason]; n&(n-1) == 0 {
		a.log.Warn("a message of an agent has no effect", "agent", ag.name, "reason", reason, "why", why, "times", n)
	}
}

// inventory takes a part of what an agent has. When the last part of a new inventory has come, the laws learn about it.
func (a *agents) inventory(now time.Duration, ag *agent, part *weirv1.Inventory, host bool) {
	role := 0
	if host {
		role = 1
	}
	of := &ag.inventories[role]
	if part.GetSerial() <= of.serial { // the same again, or a late one
		return
	}
	whole, err := of.parts.Add(part)
	switch {
	case err != nil:
		a.refuse(ag, "inventory", err.Error())
		return
	case whole == nil:
		return
	}
	of.serial, of.next = whole.GetSerial(), whole
	a.apply(now, ag, role)
}

// apply has the newest inventory of a role take effect, if the last one did so long enough ago. look calls it again.
func (a *agents) apply(now time.Duration, ag *agent, role int) {
	of, last := &ag.inventories[role], ag.applied[role]
	if of.next == nil || last != 0 && now-last < inventoryEvery {
		return
	}
	of.whole, of.next, ag.applied[role] = of.next, nil, max(now, 1)
	a.describe(ag)
	if role == 0 {
		a.setPorts(ag, of.whole)
	} else {
		a.setGuests(ag, of.whole)
	}
}

// describe passes what an agent has to policies, the store and the messengers.
func (a *agents) describe(ag *agent) {
	sw, vms := ag.inventories[0].whole, ag.inventories[1].whole
	both := &weirv1.Inventory{Ports: sw.GetPorts(), Laws: sw.GetLaws(), Guests: vms.GetGuests(), Hypervisor: vms.GetHypervisor()}
	ag.node, ag.own = store.Agent(ag.name, ag.sw, ag.host, both), nil
	if a.policies != nil {
		ag.node.Laws = a.policies.runs(ag.node.Laws)
	}
	a.link.nodes.put(ag.node)
	a.link.frames.Set(ag.name, bus.FramesOf(both))
	a.policies.nudge()
}

func (a *agents) setPorts(ag *agent, whole *weirv1.Inventory) {
	ag.ports = nil
	for _, p := range whole.GetPorts() {
		ag.ports = append(ag.ports, inventory.Port{N: p.GetPort(), Name: p.GetName(), Rate: law.Rate(p.GetRate()), BufferBytes: p.GetBufferBytes()})
	}
	if ag.lines.Allow() {
		a.log.Info("an agent reports its ports", "agent", ag.name, "switch", ag.sw, "ports", len(ag.ports))
	}
	a.core.step(&inventory.Switch{At: ag.sw, Ports: ag.ports})
}

func (a *agents) setGuests(ag *agent, whole *weirv1.Inventory) {
	has := map[law.VM]inventory.VM{}
	for _, g := range whole.GetGuests() {
		vm := inventory.VM{Number: law.VM(g.GetVm())}
		for _, r := range g.GetAddresses() {
			vm.Addresses = append(vm.Addresses, r.Law())
		}
		has[vm.Number] = vm
	}
	if ag.lines.Allow() {
		a.log.Info("an agent reports its VMs", "agent", ag.name, "host", ag.host, "vms", len(has))
	}
	a.setVMs(ag, has)
	if ag.missed {
		ag.missed = false
		a.bus.Ask(ag.name) // it sends its deadlines again
	}
}

// setVMs makes has what an agent reports. The laws learn about each host whose VMs change.
func (a *agents) setVMs(ag *agent, has map[law.VM]inventory.VM) {
	changed := map[*agent]bool{ag: true}
	for n := range ag.has {
		if _, still := has[n]; !still {
			if next := a.vms.remove(n, ag); next != nil {
				changed[next] = true
			}
		}
	}
	ag.has = has
	for n := range has {
		if a.vms.add(n, ag); a.vms.of(n) != ag {
			a.refuse(ag, "vm", fmt.Sprintf("agent %s has VM %d; this agent has it as soon as the other does not", a.vms.of(n).name, n))
		}
	}
	a.setAddresses(changed)
	a.policies.nudge()
	for _, of := range a.inOrder(changed) {
		of.own = nil
		if of.host != 0 {
			a.core.step(a.hostOf(of))
		}
	}
}

// hostOf returns the event about a host and the VMs that it may have, sorted.
func (a *agents) hostOf(ag *agent) *inventory.Host {
	h := &inventory.Host{At: ag.host, Rate: law.Rate(ag.inventories[1].whole.GetHypervisor().GetRate())}
	for _, n := range sortedKeys(ag.has) {
		if a.vms.of(n) == ag {
			vm := ag.has[n]
			vm.Addresses = a.heldBy(&vm)
			vm.Guarantee = a.policies.guarantee(n)
			h.VMs = append(h.VMs, vm)
		}
	}
	return h
}

// look ends agents that are silent, and applies the inventories that waited. An agent whose messages wait for the laws is not silent.
func (a *agents) look(now time.Duration) {
	a.looked = now
	silent, waiting := map[*agent]bool{}, map[*agent]bool{}
	for _, ag := range a.known {
		if now-ag.heard > agentSilence && !a.mail.waits(ag.name) {
			silent[ag] = true
		} else if ag.inventories[0].next != nil || ag.inventories[1].next != nil {
			waiting[ag] = true
		}
	}
	for _, ag := range a.inOrder(waiting) {
		a.apply(now, ag, 0)
		a.apply(now, ag, 1)
	}
	for _, ag := range a.inOrder(silent) {
		a.log.Warn("an agent is silent: its switch, host and VMs are forgotten until it reports again", "agent", ag.name, "silent", now-ag.heard)
		a.leave(ag)
	}
}

func (a *agents) leave(ag *agent) {
	a.policies.nudge()
	delete(a.known, ag.name)
	delete(a.orders, ag)
	a.link.frames.Set(ag.name, inband.Target{})
	a.leaveHost(ag)
	a.leaveSwitch(ag)
}

// leaveRole forgets what an agent has in a role. Its next inventory says what it has under its new number.
func (a *agents) leaveRole(ag *agent, role int) {
	ag.inventories[role], ag.left[role] = agent{}.inventories[role], max(ag.heard, 1)
	if role == 0 {
		a.leaveSwitch(ag)
		ag.laws = taken{}
	} else {
		a.leaveHost(ag)
		ag.shares, ag.refusals = taken{}, nil
	}
	a.describe(ag)
}

func (a *agents) leaveHost(ag *agent) {
	if ag.host == 0 {
		return
	}
	mine := a.hosts.of(ag.host) == ag
	a.hosts.remove(ag.host, ag)
	host := ag.host
	ag.host = 0 // no event about its VMs
	a.setVMs(ag, map[law.VM]inventory.VM{})
	if mine {
		a.core.step(&inventory.HostLeft{At: host})
	}
}

func (a *agents) leaveSwitch(ag *agent) {
	if ag.sw == 0 {
		return
	}
	mine := a.switches.of(ag.sw) == ag
	a.switches.remove(ag.sw, ag)
	if mine {
		a.core.step(&inventory.SwitchLeft{At: ag.sw})
	}
	ag.sw, ag.ports, ag.differences = 0, nil, weirv1.Differences{}
}
