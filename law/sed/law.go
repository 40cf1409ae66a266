package sed

import (
	"slices"
	"time"

	"weir/law"
	"weir/law/flows"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// noLimit is a window that limits nothing (core/lease.h, RELEASED_Q8).
const noLimit = 1 << 26

// defaultRTT is used if neither the parameter nor the network gives one: the paper's.
const defaultRTT = 200 * time.Microsecond

// Law is Algorithms 1 and 2 at a controller. Make one with New.
type Law struct {
	p        Params
	repair   string
	rtt      float64 // seconds, with empty queues
	margin   float64 // seconds
	idle     time.Duration
	renewal  time.Duration
	ports    map[law.Port]*port
	switches map[law.Switch][]*port // in the order in which they were reported first
	flows    map[law.Flow]*flow
	ofVM     map[law.VM]int      // flows
	windows  map[law.Flow]uint32 // sequence numbers behind the newest window of which a loss was answered: RS-4
	guests   *inventory.Guests
	swept    time.Duration
	counts   Counts
	scratch  scratch
	why      why
}

// Counts is what the law did.
type Counts struct {
	Triggers    uint64 // NOR to CNG
	Allocations uint64
	Granted     uint64 // windows
	Paused      uint64 // times that a flow was paused
	Declared    uint64
	Late        uint64 // demands that could not be met, at an allocation
	Unknown     uint64 // grants for flows of no known VM
	TooMany     uint64 // ports and flows over the limit
	Repairs     uint64 // losses that were answered
	Unrepaired  uint64 // further losses of a window (RS-4)
}

// New returns the law. repair: of rsed; "": none. rtt: the network's. The error says which parameter is wrong.
func New(p Params, repair string, rtt law.Duration) (*Law, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	trip := time.Duration(p.RTT)
	if trip == 0 {
		trip = time.Duration(rtt)
	}
	if trip == 0 {
		trip = defaultRTT
	}
	return &Law{
		p: p, repair: repair, rtt: trip.Seconds(), margin: time.Duration(p.Margin).Seconds(), idle: max(leastIdle, 4*time.Duration(p.Interval()), 4*trip),
		renewal: law.Renewal(time.Duration(p.Lease)),
		ports:   map[law.Port]*port{}, switches: map[law.Switch][]*port{}, flows: map[law.Flow]*flow{}, ofVM: map[law.VM]int{},
		windows: map[law.Flow]uint32{}, guests: inventory.NewGuests(),
	}, nil
}

// Wake asks for no ticks: reports come every period.
func (l *Law) Wake() time.Duration { return 0 }

// Counts returns what the law did so far.
func (l *Law) Counts() Counts { return l.counts }

// Step takes one event. Algorithm 1 is here: windows are allocated when a port becomes congested, and at each event of a congested
// port.
func (l *Law) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	l.why.what = nothing
	switch e := e.(type) {
	case *inventory.Switch:
		return l.rates(now, e, out)
	case *inventory.Host:
		l.guests.Set(e.At, e.VMs)
	case *inventory.HostLeft:
		l.guests.Set(e.At, nil)
	case *inventory.SwitchLeft:
		return l.forget(now, e.At, out)
	case *flows.Declared:
		if f := l.declare(now, e); f != nil {
			return l.change(now, f, declared, out)
		}
	case *flows.Began:
		if f := l.flowOf(now, e.Flow); f != nil {
			f.counted = true
			at := l.portOf(e.At)
			l.place(f, at)
			return l.began(now, f, at, out)
		}
	case *flows.Ended:
		return l.ended(now, e, out)
	case *flows.Congested:
		if at := l.portOf(e.At); at != nil {
			return l.state(now, at, e.Now, out)
		}
	case *telemetry.Telemetry:
		return l.queues(now, e, out)
	case *flows.Progress:
		return l.progress(now, e, out)
	case *flows.Dropped:
		return l.dropped(e, out)
	}
	return out
}

// rates takes the rates of a switch's ports. A port that is not in the list is removed. One without a rate limits nothing: its windows
// cannot be allocated, and no later event would release those that it has.
func (l *Law) rates(now time.Duration, e *inventory.Switch, out []law.Action) []law.Action {
	listed := map[uint32]bool{}
	for i := range e.Ports {
		at := l.portOf(law.Port{Switch: e.At, N: e.Ports[i].N})
		if at == nil {
			continue
		}
		listed[at.at.N] = true
		if at.rate = float64(e.Ports[i].Rate) / 8; at.rate == 0 {
			out = l.release(now, at, out)
		}
	}
	for _, at := range l.switches[e.At] {
		if !listed[at.at.N] {
			out = l.remove(now, at, out)
		}
	}
	if l.switches[e.At] = slices.DeleteFunc(l.switches[e.At], func(at *port) bool { return !listed[at.at.N] }); len(listed) == 0 {
		delete(l.switches, e.At)
	}
	return out
}

// release releases the windows of a port, whatever its state.
func (l *Law) release(now time.Duration, at *port, out []law.Action) []law.Action {
	was := at.limits()
	at.congested, at.crowded = false, false
	return l.changed(now, at, was, recovered, out)
}

// remove removes a port. Its flows stay in the table.
func (l *Law) remove(now time.Duration, at *port, out []law.Action) []law.Action {
	out = l.release(now, at, out)
	for _, f := range at.flows {
		f.places = slices.DeleteFunc(f.places, func(p place) bool { return p.at == at })
	}
	delete(l.ports, at.at)
	return out
}

// began gives a new flow a window. Where hosts wait for that, one without a limit is granted, too.
func (l *Law) began(now time.Duration, f *flow, at *port, out []law.Action) []law.Action {
	before := len(out)
	if at != nil {
		out = l.crowd(now, at, out)
	}
	if out = l.change(now, f, began, out); len(out) == before && l.p.First == FirstBase && f.granted == noLimit {
		l.explain(began, at)
		out = l.send(now, f, noLimit, out)
	}
	return out
}

// crowd looks whether the first windows of the flows of a port could be more than T_win. Its windows are allocated then, before the
// queue shows the flows. As printed, only the queue counts, and first windows overflow the buffer before any message about it.
func (l *Law) crowd(now time.Duration, at *port, out []law.Action) []law.Action {
	if l.p.First != FirstBase || at.rate == 0 {
		return out
	}
	sum, room, was, idle := 0.0, l.sizes(at).room, at.limits(), l.idleAfter(at)
	for _, f := range at.flows {
		if f.idle(now, idle) || f.done() {
			continue
		}
		first := float64(l.p.Initial * segmentBytes)
		if f.message.bytes > 0 {
			first = min(first, f.left())
		}
		sum += first
	}
	at.crowded = sum > room
	return l.changed(now, at, was, crowded, out)
}

// state is NOR and CNG of a port, lines 1 to 10 of Algorithm 1.
func (l *Law) state(now time.Duration, at *port, congested bool, out []law.Action) []law.Action {
	was := at.limits()
	if congested && !at.congested {
		l.counts.Triggers++
	}
	at.congested = congested
	return l.changed(now, at, was, triggered, out)
}

// queues takes the queues of a switch whose agent does not decide which ports are congested. The largest queue since the report before
// counts.
func (l *Law) queues(now time.Duration, e *telemetry.Telemetry, out []law.Action) []law.Action {
	for i := range e.Ports {
		at := l.portOf(law.Port{Switch: e.At, N: e.Ports[i].N})
		if at != nil && at.queue.See(int64(e.Ports[i].PeakBytes)) {
			out = l.state(now, at, at.queue.Congested(), out)
		}
	}
	return out
}

// changed allocates or releases the windows of a port that began or ceased to limit its flows.
func (l *Law) changed(now time.Duration, at *port, was bool, what reason, out []law.Action) []law.Action {
	switch {
	case at.limits() == was:
		return out
	case at.limits():
		l.explain(what, at)
		return l.apply(now, at, out)
	}
	l.explain(recovered, at)
	for _, f := range at.flows {
		*f.window(at) = free
		out = l.grant(now, f, out)
	}
	return out
}

// change allocates the windows of the congested ports of a flow, lines 11 to 17 of Algorithm 1.
func (l *Law) change(now time.Duration, f *flow, what reason, out []law.Action) []law.Action {
	for i := range f.places {
		if at := f.places[i].at; at.limits() {
			l.explain(what, at)
			out = l.apply(now, at, out)
		}
	}
	return out
}

// ended removes a flow. Its share goes to others at once.
func (l *Law) ended(now time.Duration, e *flows.Ended, out []law.Action) []law.Action {
	f := l.flows[e.Flow]
	if f == nil {
		return out
	}
	places := f.places
	l.end(f)
	for i := range places {
		at := places[i].at
		if out = l.crowd(now, at, out); at.limits() {
			l.explain(ended, at)
			out = l.apply(now, at, out)
		}
	}
	return out
}

// progress takes how far flows have come (RSize), and allocates windows again (SE-8).
func (l *Law) progress(now time.Duration, e *flows.Progress, out []law.Action) []law.Action {
	for i := range e.Sent {
		s := &e.Sent[i]
		f := l.flowOf(now, s.Flow)
		if f == nil {
			continue
		}
		l.place(f, l.portOf(law.Port{Switch: e.At, N: s.Port}))
		if !f.counted { // of an earlier row, or of before the law began: no part of the message
			f.counted, f.message.from, f.sent, f.sentAt = true, s.Bytes, s.Bytes, now
		}
		if s.Bytes > f.sent {
			f.pace = float64(s.Bytes-f.sent) / max(now-f.sentAt, time.Microsecond).Seconds()
			f.sent, f.sentAt = s.Bytes, now
		}
	}
	l.sweep(now)
	for _, at := range l.switches[e.At] {
		// A message may be lost: each report has the ports' states.
		out = l.state(now, at, at.queue.Congested() || slices.Contains(e.Congested, at.at.N), out)
		if out = l.crowd(now, at, out); at.limits() {
			l.explain(again, at)
			if l.p.Period > 0 {
				out = l.apply(now, at, out)
			} else {
				out = l.renew(now, at, out)
			}
		}
	}
	return out
}

// apply allocates the windows of a port and grants them.
func (l *Law) apply(now time.Duration, at *port, out []law.Action) []law.Action {
	l.allocate(now, at)
	return l.renew(now, at, out)
}

// renew grants the windows of a port's flows that changed, and those whose lease needs it.
func (l *Law) renew(now time.Duration, at *port, out []law.Action) []law.Action {
	for _, f := range at.flows {
		out = l.grant(now, f, out)
	}
	return out
}

// grant grants a flow the smallest window of the congested ports that it passes, if that changed or is due again.
func (l *Law) grant(now time.Duration, f *flow, out []law.Action) []law.Action {
	window := int64(noLimit)
	for i := range f.places {
		if p := &f.places[i]; p.at.limits() && p.window != free {
			window = min(window, p.window)
		}
	}
	same := uint64(window) == f.granted
	if same && (window == noLimit || now-f.grantedAt < l.renewal) {
		return out
	}
	return l.send(now, f, window, out)
}

// send appends a grant.
func (l *Law) send(now time.Duration, f *flow, window int64, out []law.Action) []law.Action {
	if f.vm == 0 {
		if f.vm = l.guests.Of(f.key.Src.Addr()).VM; f.vm == 0 {
			l.counts.Unknown++
			return out
		}
		l.leave(0)
		l.ofVM[f.vm]++
	}
	paused := window == 0
	if paused && !f.paused {
		l.counts.Paused++
	}
	if paused != f.paused {
		f.sentAt = now // a flow that was paused until now is not idle
	}
	f.granted, f.grantedAt, f.paused = uint64(window), now, paused
	l.counts.Granted++
	g := law.Grant{
		Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: f.vm}, Flow: f.key}, Value: uint64(window), Lease: time.Duration(l.p.Lease),
	}
	if paused {
		g.Kind = law.PauseGrant
	}
	return append(out, g)
}

// forget removes the ports of a switch. The windows of their flows are the others' then. A flow without another port is removed, unless
// its deadline is ahead: no program declares that again.
func (l *Law) forget(now time.Duration, s law.Switch, out []law.Action) []law.Action {
	for _, at := range l.switches[s] {
		out = l.remove(now, at, out)
		for _, f := range at.flows {
			switch {
			case len(f.places) > 0:
			case f.urgent(now):
				f.unseen()
			default:
				l.end(f)
			}
		}
	}
	delete(l.switches, s)
	return out
}
