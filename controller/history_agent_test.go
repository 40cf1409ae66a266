//go:build cgo

package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weir/agent/agentd"
	"weir/bus"
	leases "weir/bus/lease"
	"weir/bus/weirv1"
	hypervisor "weir/datapath/host"
	"weir/datapath/native"
	"weir/law"
	"weir/law/telemetry"
)

// modelAgent is an agent without its sockets, on a machine with a model of the kernel's tables.
type modelAgent struct {
	h      *history
	name   string
	sw     law.Switch
	host   law.Host
	origin time.Duration // of the machine's monotonic clock
	disk   leases.Seen
	kernel *kernel

	// Of the process.
	runs, gone  bool
	life        int
	stopped     bool
	mail        []func()
	incarnation uint64
	fence       *leases.Fence
	grants      *agentd.Grants
	totals      *weirv1.Totals
	sequences   [2]uint64 // of telemetry and events
	serial      uint64
	incast      time.Duration // until when a queue is full

	// For the checks.
	syns    uint64
	newest  uint64                   // the highest term of its bucket that ever arrived
	holders map[uint64]leases.Holder // whom it obeyed, by term
	lastSeq map[uint64]uint64        // of commands that it obeyed, by term
	last    time.Duration            // when it obeyed last
	pulse   bool                     // heartbeats were begun
}

func newModelAgent(h *history, name string, sw law.Switch, host law.Host) *modelAgent {
	a := &modelAgent{h: h, name: name, sw: sw, host: host, origin: h.drawn(time.Hour), holders: map[uint64]leases.Holder{}, lastSeq: map[uint64]uint64{}}
	a.kernel = &kernel{a: a, grants: map[granted]*inForce{}, vms: map[law.VM]bool{}}
	return a
}

func (a *modelAgent) clock() time.Duration { return a.h.now + a.origin + 1 }

// kill is kill -9. reboot: of the machine, whose kernel and clock begin anew.
func (a *modelAgent) kill(reboot bool) {
	a.runs, a.stopped, a.mail = false, false, nil
	a.life++
	if reboot {
		a.origin = -a.h.now
		a.kernel.grants, a.kernel.owners = map[granted]*inForce{}, [hypervisor.Owners]native.GrantOwner{}
	}
}

func (a *modelAgent) start() {
	if a.runs || a.gone {
		return
	}
	a.runs = true
	a.life++
	a.incarnation = a.h.random.Uint64() | 1
	a.fence = leases.NewFence(a.bucket(), a.incarnation, a.disk, func(s leases.Seen) error { a.disk = s; return nil })
	a.grants = agentd.NewGrants(silent, a.clock)
	// The real one begins with the time of day, which an operator may have set back.
	a.totals, a.sequences, a.serial = weirv1.NewTotals(), [2]uint64{}, 1+a.h.random.Uint64N(1000)
	a.report()
	a.inventory()
	if a.host != 0 && !a.pulse {
		a.pulse = true
		a.h.every(hypervisor.HeartbeatInterval, func() {
			if a.runs && !a.stopped {
				a.grants.Heartbeat(a.kernel)
			}
			a.kernel.check()
		})
	}
}

// stop is SIGSTOP for a time.
func (a *modelAgent) stop(d time.Duration) {
	a.stopped = true
	life := a.life
	a.h.after(d, func() {
		if a.life == life {
			a.resume()
		}
	})
}

func (a *modelAgent) resume() {
	mail := a.mail
	a.stopped, a.mail = false, nil
	for i, f := range mail {
		if a.stopped { // again
			a.mail = append(slices.Clone(mail[i:]), a.mail...)
			return
		}
		f()
	}
}

func (a *modelAgent) bucket() uint32 { return uint32(leases.Bucket(a.name, buckets)) }

func (a *modelAgent) next(of int) *weirv1.Origin {
	a.sequences[of]++
	return &weirv1.Origin{Incarnation: a.incarnation, Sequence: a.sequences[of], StampNs: uint64(a.clock())}
}

// send sends events to all controllers, through the encoder and the decoder.
func (a *modelAgent) send(e *weirv1.Events) {
	e.Origin = a.next(1)
	b, err := weirv1.Encode(e)
	if err == nil {
		e, err = weirv1.DecodeEvents(b)
	}
	if err != nil {
		a.h.fail("%s: %v", a.name, err)
		return
	}
	for _, c := range a.h.everybody() {
		a.h.report(a.name, c.name, func() { c.events(a.name, e) })
	}
}

func (a *modelAgent) empty() *weirv1.Events {
	return &weirv1.Events{Switch: uint64(a.sw), Host: uint32(a.host)}
}

// report sends what the agent obeys.
func (a *modelAgent) report() {
	if !a.runs || a.stopped {
		return
	}
	e := a.empty()
	e.State = &weirv1.AgentState{Version: "model"}
	if s := a.fence.Seen(); s.Term > 0 {
		e.State.Terms = []*weirv1.SeenTerm{{Bucket: a.bucket(), Term: s.Term, Controller: &weirv1.Controller{Name: s.Holder.Name, Run: s.Holder.Run}}}
	}
	a.send(e)
}

// changed is a reload with other VMs.
func (a *modelAgent) changed() {
	a.serial++
	a.inventory()
}

func (a *modelAgent) inventory() {
	if !a.runs || a.stopped {
		return
	}
	var ports []*weirv1.SwitchPort
	var guests []*weirv1.Guest
	if a.sw != 0 {
		for n := range uint32(2) {
			ports = append(ports, &weirv1.SwitchPort{Port: n + 1, Name: fmt.Sprint("swp", n+1), BufferBytes: bufferBytes})
		}
	}
	for _, vm := range sortedKeys(a.kernel.vms) {
		guests = append(guests, &weirv1.Guest{Vm: uint32(vm), Addresses: []*weirv1.Range{weirv1.NewRange(netip.PrefixFrom(addressOf(vm), 32))}})
	}
	parts, err := (&weirv1.Inventory{Serial: a.serial, Ports: ports, Guests: guests}).Split()
	if err != nil {
		panic(err)
	}
	for _, p := range parts {
		e := a.empty()
		e.Inventory = p
		a.send(e)
	}
}

// read is a reading of a switch's ports. Now and then VMs open connections, and a queue fills for a while.
func (a *modelAgent) read() {
	h := a.h
	if a.sw == 0 || !a.runs || a.stopped {
		return
	}
	arrivals := &telemetry.Arrivals{At: a.sw, T: readEvery, Ports: []telemetry.PortArrivals{{N: 1}, {N: 2}}}
	reading := &telemetry.Telemetry{At: a.sw, T: readEvery, Ports: []telemetry.Port{{N: 1, Packets: 1, Bytes: 1500}, {N: 2, Packets: 1, Bytes: 1500}}}
	if h.now < faultsEnd && h.oneIn(6) {
		at := &arrivals.Ports[h.random.IntN(2)]
		for vm := range law.VM(6) {
			if h.oneIn(2) {
				at.Counts.SYN++
				a.syns++
				at.Pairs = append(at.Pairs, telemetry.Pair{Source: addressOf(vm + 1), Destination: peerOf(at.N), Kinds: telemetry.SYN})
			}
		}
		a.incast = h.now + h.drawn(time.Second)
	}
	if h.now < min(a.incast, faultsEnd) {
		reading.Ports[0].BacklogBytes, reading.Ports[1].BacklogBytes = bufferBytes, bufferBytes
	}
	if e := a.totals.Arrivals(arrivals); e != nil {
		a.send(e)
	}
	m := a.totals.Telemetry(reading)
	if m == nil {
		return
	}
	m.Origin = a.next(0)
	b, err := weirv1.Encode(m)
	if err == nil {
		m, err = new(weirv1.TelemetryDecoder).Decode(b)
	}
	if err != nil {
		h.fail("%s: %v", a.name, err)
		return
	}
	for _, c := range h.everybody() {
		h.report(a.name, c.name, func() { c.telemetry(a.name, m) })
	}
}

// take is the arrival of a command.
func (a *modelAgent) take(b []byte) {
	switch {
	case !a.runs:
		return
	case a.stopped:
		a.mail = append(a.mail, func() { a.take(b) })
		return
	}
	m, err := weirv1.DecodeCommand(b)
	if err != nil {
		a.h.fail("%s: %v", a.name, err)
		return
	}
	o := bus.HeaderOf(m)
	why := a.fence.Check(a.clock(), o)
	a.h.refused[why]++
	before := a.newest
	if o.Bucket == a.bucket() && o.Echo <= a.clock() {
		a.newest = max(a.newest, o.Term)
	}
	if why != leases.Obeyed {
		return
	}
	a.h.obeyed++
	a.checkObeyed(o, before)
	if o.Announces {
		a.report()
		a.inventory()
		return
	}
	a.last = a.h.now
	grants := make([]law.Grant, len(m.GetGrants()))
	for i, g := range m.GetGrants() {
		grants[i] = g.Law()
	}
	obey := func() {
		a.kernel.cause = o
		a.grants.Obey(a.kernel, o.Term, o.Echo, grants)
	}
	if a.host == 0 {
		return
	}
	if a.stall() { // between the fence and the kernel
		a.mail = append(a.mail, obey)
		return
	}
	obey()
}

// stall stops the process now and then, between two of its lines.
func (a *modelAgent) stall() bool {
	if a.h.now >= faultsEnd || !a.h.oneIn(60) {
		return false
	}
	a.stop(a.h.drawn(3 * time.Second))
	return true
}

// checkObeyed checks a command that the fence accepts. before: the highest term that had arrived.
func (a *modelAgent) checkObeyed(o *leases.Header, before uint64) {
	h := a.h
	if o.Bucket != a.bucket() {
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
	if o.Sequence <= a.lastSeq[o.Term] {
		h.fail("%s obeyed command %d of term %d after %d", a.name, o.Sequence, o.Term, a.lastSeq[o.Term])
	}
	a.lastSeq[o.Term] = o.Sequence
	if age := a.clock() - o.Echo; age > leases.MaxAge || age < 0 || o.Incarnation != a.incarnation {
		h.fail("%s obeyed a command that answers a report of %v ago, incarnation %x in %x", a.name, age, o.Incarnation, a.incarnation)
	}
}

// granted is the key of a grant in the tables.
type granted struct {
	vm    law.VM
	peer  netip.Addr
	owner law.Owner
	kind  law.Kind
}

// inForce is a grant in the tables. reported: when the report was sent that its command answers.
type inForce struct {
	native.Grant
	reported time.Duration
}

// kernel has the tables of one host. Validity is that of core/grant.h.
type kernel struct {
	a      *modelAgent
	vms    map[law.VM]bool
	owners [hypervisor.Owners]native.GrantOwner
	grants map[granted]*inForce
	cause  *leases.Header // of the command that is carried out
}

func (k *kernel) removeVM(vm law.VM) {
	delete(k.vms, vm)
	for key := range k.grants {
		if key.vm == vm {
			delete(k.grants, key)
		}
	}
}

func (k *kernel) alive(o law.Owner, now uint64) bool {
	at := k.owners[o].HeartbeatNs
	return at != 0 && int64(now-at) < int64(hypervisor.OwnerLease)
}

// SetGrantsAt sets grants. Now and then the process is stopped just before the system call.
func (k *kernel) SetGrantsAt(now uint64, list []law.Grant) error {
	list, cause := slices.Clone(list), k.cause
	if k.a.stall() {
		k.a.mail = append(k.a.mail, func() { k.set(now, list, cause) })
		return nil
	}
	k.set(now, list, cause)
	return nil
}

func (k *kernel) set(now uint64, list []law.Grant, cause *leases.Header) {
	for _, g := range list {
		if !k.vms[g.Key.VM] || !k.alive(g.Owner, now) {
			continue
		}
		k.a.h.applied++
		k.grants[granted{g.Key.VM, g.Key.Peer, g.Owner, g.Kind}] = &inForce{
			native.Grant{Value: g.Value, ExpiresNs: now + uint64(g.Lease), Owner: uint32(g.Owner), Flags: native.GrantSet}, cause.Echo,
		}
	}
	k.check()
}

// Heartbeat is that of host.Host.
func (k *kernel) Heartbeat(o law.Owner) error {
	now := uint64(k.a.clock())
	if !k.alive(o, now) {
		for key := range k.grants {
			if key.owner == o {
				delete(k.grants, key)
			}
		}
	}
	k.owners[o] = native.GrantOwner{HeartbeatNs: now}
	return nil
}

// Sweep removes grants that have ended.
func (k *kernel) Sweep() error {
	for key, g := range k.grants {
		if int64(uint64(k.a.clock())-g.ExpiresNs) > int64(500*time.Millisecond) {
			delete(k.grants, key)
		}
	}
	return nil
}

// Leave is not used here.
func (k *kernel) Leave(law.Owner) error { return nil }

// limits reports whether a packet is limited by a grant now.
func (k *kernel) limits(key granted, g *inForce) bool {
	now, owner := uint64(k.a.clock()), &k.owners[key.owner]
	if key.kind == law.RateGrant {
		return native.GrantRate(0, &g.Grant, owner, now) != 0
	}
	var least native.GrantLeast
	least.Add(&g.Grant, owner, now)
	return least.WindowQ8 != 0
}

// check checks that no packet is limited by a grant whose report is too old: its owner was alive then, and may be dead since.
func (k *kernel) check() {
	for key, g := range k.grants {
		if !k.limits(key, g) {
			continue
		}
		k.a.h.limited++
		if age := k.a.clock() - g.reported; age > grantsEnd || age < 0 {
			k.a.h.fail("VM %d at %s is limited by a grant %v after the report that it answers", key.vm, k.a.name, age)
		}
	}
}

// live counts the grants of a VM that limit packets now.
func (k *kernel) live(vm law.VM) (windows, rates int) {
	for key, g := range k.grants {
		switch {
		case key.vm != vm || !k.limits(key, g):
		case key.kind == law.RateGrant:
			rates++
		default:
			windows++
		}
	}
	return windows, rates
}
