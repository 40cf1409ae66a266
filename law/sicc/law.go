package sicc

import (
	"net/netip"
	"slices"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// Limits of the tables. Further ports have no incasts. A port keeps the pairs that came last.
const (
	maxPorts = 1 << 16
	maxPairs = 1 << 12 // of a port
	maxPeers = 1 << 16 // addresses of a switch whose port is known

	maxSources   = 1 << 12 // VMs whose new flows are counted at a port
	maxPairsOfVM = 1 << 8  // of a port: a VM that has more loses its own oldest
)

// least is the value of a grant: hosts raise it to the flow's segment and one byte (a window of exactly one segment waits for
// delayed ACKs). So a host's own knowledge of MSS and scale replaces M and W of the paper (SI-8, SH-2).
const least = 1

// Law is Algorithm 1 at a controller. Make one with New.
type Law struct {
	p        Params
	ports    map[law.Port]*port
	switches map[law.Switch][]*port // in the order in which they were reported first
	limited  map[pair]int           // by how many ports
	guests   *inventory.Guests
	towards  map[law.Switch]map[netip.Addr]uint32 // the port by which data to an address leaves; ArrivalsRequest
	counts   Counts
	renewal  time.Duration // of grants
	why      why           // of the last actions
}

// Counts is what the law did.
type Counts struct {
	On, Off  uint64 // incasts that began, that ended
	Unknown  uint64 // pairs whose source is no known VM
	TooMany  uint64 // ports and addresses over the limit, and pairs that newer ones replaced
	Lost     uint64 // pairs that arrived and were not listed
	Over     uint64 // flows that do not count: their VM began more than its share
	Nowhere  uint64 // requests to whose sender no data has left yet
	Reported uint64 // readings of ports
}

// port is the state of a port of a switch.
type port struct {
	at     law.Port
	buffer uint64  // B, bytes; 0: not known, and there is no incast
	queue  uint64  // q, bytes
	mean   float64 // Q, bytes
	opened int64   // beta: flows that began minus flows that ended, in this interval
	read   uint64  // Counts.Reported at its last reading

	on      bool
	since   time.Duration // when on was set (SI-2)
	renewed time.Duration // when the grants were sent last
	pairs   []pair        // through the port, in the order in which they came first
	known   map[pair]bool
	ofVM    map[law.VM]int // pairs
	sources map[law.VM]*source
}

// pair is the VM that sends data through a port, and where to.
type pair struct {
	vm   law.VM
	peer netip.Addr
}

// New returns the law. The error says which parameter is wrong.
func New(p Params) (*Law, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	return &Law{
		p: p, ports: map[law.Port]*port{}, switches: map[law.Switch][]*port{}, limited: map[pair]int{},
		guests:  inventory.NewGuests(),
		towards: map[law.Switch]map[netip.Addr]uint32{}, renewal: law.Renewal(time.Duration(p.Lease)),
	}, nil
}

// Wake asks for no ticks: readings come every interval.
func (l *Law) Wake() time.Duration { return 0 }

// Counts returns what the law did so far.
func (l *Law) Counts() Counts { return l.counts }

// Step takes one event. Arrivals of an interval must come before its Telemetry, which decides.
func (l *Law) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	switch e := e.(type) {
	case *inventory.Switch:
		for _, p := range e.Ports {
			if at := l.port(law.Port{Switch: e.At, N: p.N}); at != nil {
				at.buffer = p.BufferBytes
			}
		}
	case *inventory.Host:
		l.guests.Set(e.At, e.VMs)
	case *inventory.HostLeft:
		l.guests.Set(e.At, nil)
	case *inventory.SwitchLeft:
		l.forget(e.At)
	case *telemetry.Arrivals:
		if l.p.Arrivals == ArrivalsRequest {
			l.learn(e)
		}
		for i := range e.Ports {
			out = l.arrive(now, law.Port{Switch: e.At, N: e.Ports[i].N}, &e.Ports[i], out)
		}
	case *telemetry.Telemetry:
		before, known := l.counts.Reported, l.switches[e.At]
		for i := range e.Ports {
			var at *port
			if n := e.Ports[i].N; i < len(known) && known[i].at.N == n { // readings mostly have the order in which ports became known
				at = known[i]
			} else if at = l.port(law.Port{Switch: e.At, N: n}); at == nil {
				continue
			}
			out = l.decide(now, at, &e.Ports[i], out)
		}
		out = l.quiet(now, e.At, before, out)
	}
	return out
}

// decide is the part of Algorithm 1 that runs each interval for each port (SPEC 1.4).
func (l *Law) decide(now time.Duration, at *port, r *telemetry.Port, out []law.Action) []law.Action {
	l.counts.Reported++
	at.read = l.counts.Reported
	at.queue = r.BacklogBytes
	at.mean += l.p.QueueWeight * (float64(at.queue) - at.mean) // SI-1
	opened := at.opened
	at.opened = 0
	predicted := float64(opened)*float64(l.p.InitialWindow)*segmentBytes + at.mean // gamma, SI-5
	switch {
	case at.on && l.ends(now, at):
		l.why = why{port: at, what: ended, queue: at.queue, lasted: now - at.since}
		at.on = false
		l.counts.Off++
		for _, k := range at.pairs {
			out = l.release(k, out)
		}
	case at.on && now-at.renewed >= l.renewal: // SH-5: a limit is a lease
		l.why = why{port: at, what: renewed, queue: at.queue, lasted: now - at.since}
		out = l.grantAll(now, at, out)
	}
	// SI-4: once per incast. SI-7: the mean queue begins an incast, and the queue ends it.
	if !at.on && opened > 0 && at.buffer > 0 && predicted >= l.p.OnFraction*float64(at.buffer) {
		at.on, at.since = true, now
		l.why = why{port: at, what: began, opened: opened, queue: uint64(predicted)}
		l.counts.On++
		for _, k := range at.pairs {
			l.limited[k]++
		}
		out = l.grantAll(now, at, out)
	}
	return out
}

// segmentBytes is the segment that the prediction assumes: hosts know the MSS of a connection, the controller does not.
const segmentBytes = 1460

// ends reports whether an incast is over: SI-3, after the least hold.
func (l *Law) ends(now time.Duration, at *port) bool {
	lasted := now - at.since
	old, low := lasted >= time.Duration(l.p.MouseDuration), float64(at.queue) <= l.p.OffFraction*float64(at.buffer)
	switch {
	case lasted < time.Duration(l.p.MinHold):
		return false
	case l.p.OffRule == OffAnd:
		return old && low
	case l.p.OffRule == OffQueue:
		return low
	}
	return old || low
}

// arrive counts the flows that began and ended at a port, and remembers who sends through it. A pair that begins during an
// incast is limited at once.
//
// With ArrivalsRequest a flow also begins when it is asked for, before its data comes. The data itself is then no arrival: it
// would count twice.
func (l *Law) arrive(now time.Duration, where law.Port, a *telemetry.PortArrivals, out []law.Action) []law.Action {
	at := l.port(where)
	if at == nil {
		return out
	}
	kinds := telemetry.SYN | telemetry.SYNACK
	if l.p.Arrivals == ArrivalsActive {
		kinds |= telemetry.Resume | telemetry.Found
	}
	at.opened = max(0, at.opened+l.began(now, at, a)-int64(min(a.Counts.FIN, 1<<32))) // SI-9
	l.counts.Lost += a.Rest
	for _, p := range a.Pairs {
		if p.Kinds&kinds != 0 {
			out = l.join(at, p.Source, p.Destination, out)
		}
	}
	if l.p.Arrivals == ArrivalsRequest {
		out = l.announce(now, where.Switch, a, out)
	}
	return out
}

// announce counts the answers to requests that pass a port, at the ports by which the answers will leave. Each listed pair stands
// for an equal part of the requests that the list leaves out. An answer counts for the share of the VM that sends it.
func (l *Law) announce(now time.Duration, s law.Switch, a *telemetry.PortArrivals, out []law.Action) []law.Action {
	var listed, known int64
	for _, p := range a.Pairs {
		if p.Kinds&telemetry.Request != 0 {
			listed++
			known += max(int64(p.Requested), 1)
		}
	}
	left := max(int64(min(a.Counts.Request, 1<<32))-known, 0)
	for _, p := range a.Pairs {
		if p.Kinds&telemetry.Request == 0 {
			continue
		}
		part := (left + listed - 1) / listed // rounded up: the parts add up to all
		left, listed = left-part, listed-1
		n := max(int64(p.Requested), 1) + part
		port, ok := l.towards[s][p.Source]
		if !ok {
			l.counts.Nowhere++
			continue
		}
		if at := l.port(law.Port{Switch: s, N: port}); at != nil {
			at.opened += l.share(now, at, l.guests.Of(p.Destination).VM, n)
			out = l.join(at, p.Destination, p.Source, out)
		}
	}
	return out
}

// learn notes by which ports data to addresses leaves.
func (l *Law) learn(e *telemetry.Arrivals) {
	known := l.towards[e.At]
	if known == nil {
		known = map[netip.Addr]uint32{}
		l.towards[e.At] = known
	}
	for i := range e.Ports {
		for _, p := range e.Ports[i].Pairs {
			if _, ok := known[p.Destination]; ok || len(known) < maxPeers {
				known[p.Destination] = e.Ports[i].N
			} else {
				l.counts.TooMany++
			}
		}
	}
}

// join remembers that an address sends through a port to another.
func (l *Law) join(at *port, source, destination netip.Addr, out []law.Action) []law.Action {
	vm := l.guests.Of(source).VM
	if vm == 0 {
		l.counts.Unknown++
		return out
	}
	k := pair{vm, destination}
	if at.known[k] || at.floods(vm) {
		return out
	}
	switch {
	case at.ofVM[vm] == maxPairsOfVM:
		out = l.drop(at, slices.IndexFunc(at.pairs, func(k pair) bool { return k.vm == vm }), out)
	case len(at.pairs) == maxPairs:
		out = l.drop(at, 0, out)
	}
	at.known[k] = true
	at.ofVM[vm]++
	at.pairs = append(at.pairs, k)
	if at.on {
		l.why = why{port: at, what: joined}
		l.limited[k]++
		out = append(out, limit(k, l.p.Lease))
	}
	return out
}

// drop forgets the pair at place i, which a newer one replaces.
func (l *Law) drop(at *port, i int, out []law.Action) []law.Action {
	l.counts.TooMany++
	k := at.pairs[i]
	at.pairs = slices.Delete(at.pairs, i, i+1)
	delete(at.known, k)
	if at.ofVM[k.vm]--; at.ofVM[k.vm] == 0 {
		delete(at.ofVM, k.vm)
	}
	if at.on {
		out = l.release(k, out)
	}
	return out
}

// quiet decides about ports with an incast that a reading leaves out: nothing waits there. before is Counts.Reported at its begin.
func (l *Law) quiet(now time.Duration, s law.Switch, before uint64, out []law.Action) []law.Action {
	for _, at := range l.switches[s] {
		if at.read <= before && (at.on || at.opened != 0 || at.mean >= 1) {
			out = l.decide(now, at, &telemetry.Port{N: at.at.N}, out)
		}
	}
	return out
}

// grantAll limits every pair through a port until the lease ends.
func (l *Law) grantAll(now time.Duration, at *port, out []law.Action) []law.Action {
	at.renewed = now
	for _, k := range at.pairs {
		out = append(out, limit(k, l.p.Lease))
	}
	return out
}

// release ends a port's limit of a pair. The pair keeps it while another port limits it.
func (l *Law) release(k pair, out []law.Action) []law.Action {
	if l.limited[k]--; l.limited[k] > 0 {
		return out
	}
	delete(l.limited, k)
	return append(out, limit(k, 0))
}

// limit is the grant of a pair; a lease of 0 releases it.
func limit(k pair, lease law.Duration) law.Grant {
	return law.Grant{Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: k.vm, Peer: k.peer}}, Value: least, Lease: time.Duration(lease)}
}

// port returns a port's state; nil: there are too many.
func (l *Law) port(where law.Port) *port {
	at := l.ports[where]
	if at == nil {
		if len(l.ports) >= maxPorts {
			l.counts.TooMany++
			return nil
		}
		at = &port{at: where, known: map[pair]bool{}, ofVM: map[law.VM]int{}, sources: map[law.VM]*source{}}
		l.ports[where] = at
		l.switches[where.Switch] = append(l.switches[where.Switch], at)
	}
	return at
}

// forget removes the ports of a switch. Limits that they set end with their leases.
func (l *Law) forget(s law.Switch) {
	for _, at := range l.switches[s] {
		delete(l.ports, at.at)
		for _, k := range at.pairs {
			if !at.on {
				continue
			}
			if l.limited[k]--; l.limited[k] == 0 {
				delete(l.limited, k)
			}
		}
	}
	delete(l.switches, s)
	delete(l.towards, s)
}
