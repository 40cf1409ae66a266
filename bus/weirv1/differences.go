package weirv1

import (
	"time"

	"weir/law"
	"weir/law/telemetry"
)

// Differences makes a controller's events of one agent's messages, which have totals. Lost messages lengthen the interval of the
// next event and lose no packet. The zero value has seen nothing.
type Differences struct {
	incarnation uint64
	telemetry   lastReport
	events      lastReport
	ports       map[uint32]*portBefore
	order       []*portBefore // as the last report listed them: the next one mostly has the same order
	sources     int
	messages    uint64 // of telemetry
	looked      uint64 // message at which unlisted sources were looked for

	readings []telemetry.Port // memory of the events
	arrivals []telemetry.PortArrivals
}

// lastReport is the last message of one subject.
type lastReport struct {
	sequence, stamp uint64
	whole           bool // all messages since the agent's start came: a port that was not seen yet has counted from 0
}

// portBefore is what a port had counted. seen, arrived: there was a report, or a list of arrivals.
type portBefore struct {
	n             uint32
	counted       telemetry.Port // its counters alone
	byVM          map[uint32]sourceBefore
	seen, arrived bool
	arrivals      *Arrivals
}

// sourceBefore is what a source had, and the message that listed it last.
type sourceBefore struct{ marks, listed uint64 }

// unlisted is after how many messages a source that none has listed is forgotten: two messages with all sources came in this time.
const unlisted = 3 * wholeEvery

// knownSources is how many sources are known: those that the agent lists, and as many that it has forgotten since.
const knownSources = 2 * MaxSources

// begin notes a message. It returns the time since the message before, on the agent's clock, and false for a message that is
// older than one before.
func (d *Differences) begin(o *Origin, last *lastReport) (time.Duration, bool) {
	if o.GetIncarnation() != d.incarnation || d.ports == nil {
		*d = Differences{incarnation: o.GetIncarnation(), ports: map[uint32]*portBefore{}}
	}
	switch {
	case last.sequence == 0:
		last.whole = o.GetSequence() == 1
	case o.GetSequence() <= last.sequence:
		return 0, false
	}
	since := uint64(0)
	if last.sequence > 0 && o.GetStampNs() > last.stamp {
		since = o.GetStampNs() - last.stamp
	}
	last.sequence, last.stamp = o.GetSequence(), o.GetStampNs()
	return time.Duration(since), true
}

// port returns what is known of a port. at is its place in the last report, if it had one.
func (d *Differences) port(n uint32, at *portBefore, whole bool, seen func(*portBefore) *bool) (p *portBefore, known bool) {
	if p = at; p == nil || p.n != n {
		p = d.ports[n]
	}
	if p == nil {
		if len(d.ports) >= 2*MaxPorts { // ports that come and go
			d.ports, d.sources = map[uint32]*portBefore{}, 0
			clear(d.order)
			d.telemetry.whole, d.events.whole, whole = false, false, false
		}
		p = &portBefore{n: n, arrivals: &Arrivals{}, byVM: map[uint32]sourceBefore{}}
		d.ports[n] = p
	}
	known = *seen(p) || whole
	*seen(p) = true
	return p, known
}

// less returns how much a counter grew. A smaller one is that of a port that began anew.
func less(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// Telemetry returns the event of a message, which must come from a decoder. The first report of a port that had
// counted before has its queue, and counts of 0. The event and its memory are valid until the next call. nil: a message that
// came late.
func (d *Differences) Telemetry(m *Telemetry) *telemetry.Telemetry {
	since, ok := d.begin(m.GetOrigin(), &d.telemetry)
	if !ok {
		return nil
	}
	if since == 0 {
		since = time.Duration(m.GetIntervalNs())
	}
	d.messages++
	d.readings = sized(d.readings, len(m.GetPorts()))
	d.order = sized(d.order, len(m.GetPorts()))
	for i, r := range m.GetPorts() {
		p, known := d.port(r.GetPort(), d.order[i], d.telemetry.whole, func(p *portBefore) *bool { return &p.seen })
		d.readings[i] = p.reading(r, known, d.marks(p, r, known, d.readings[i].Marks.ByVM[:0]))
		d.order[i] = p
	}
	return &telemetry.Telemetry{At: law.Switch(m.GetSwitch()), T: since, Ports: d.readings}
}

// reading returns what a port counted since its report before, and keeps what the new one has. by: the marks by source.
func (p *portBefore) reading(r *PortReport, known bool, by []telemetry.VMMarks) telemetry.Port {
	was := p.counted
	p.counted = telemetry.Port{
		Packets: r.GetOfferedPackets(), Bytes: r.GetOfferedBytes(), SentBytes: r.GetSentBytes(), Drops: r.GetDroppedPackets(),
		Marks: telemetry.Marks{Packets: r.GetMarkedPackets(), Unknown: r.GetUnknownMarks(), Rest: r.GetFurtherMarks()},
	}
	e := telemetry.Port{N: r.GetPort(), BacklogBytes: r.GetBacklogBytes(), PeakBytes: r.GetPeakBytes()}
	if now := &p.counted; known {
		e.Packets = less(now.Packets, was.Packets)
		e.Bytes = less(now.Bytes, was.Bytes)
		e.SentBytes = less(now.SentBytes, was.SentBytes)
		e.Drops = less(now.Drops, was.Drops)
		e.Marks = telemetry.Marks{
			Packets: less(now.Marks.Packets, was.Marks.Packets), Unknown: less(now.Marks.Unknown, was.Marks.Unknown), Rest: less(now.Marks.Rest, was.Marks.Rest),
		}
	}
	e.Marks.ByVM = by
	return e
}

// sized returns a slice of that length, with the memory of list.
func sized[T any](list []T, n int) []T {
	list = list[:cap(list)]
	for len(list) < n {
		var none T
		list = append(list, none)
	}
	return list[:n]
}

// marks appends how many marks the sources of a port have got.
func (d *Differences) marks(p *portBefore, r *PortReport, known bool, out []telemetry.VMMarks) []telemetry.VMMarks {
	for _, s := range r.GetSources() {
		before, had := p.byVM[s.GetVm()]
		if !had {
			if d.sources >= knownSources && !d.forgetsUnlisted() { // of an agent that lists more than it may: they stay in the port's sum
				continue
			}
			d.sources++
		}
		p.byVM[s.GetVm()] = sourceBefore{s.GetMarkedPackets(), d.messages}
		if n := less(s.GetMarkedPackets(), before.marks); n > 0 && (had || known) {
			out = append(out, telemetry.VMMarks{VM: law.VM(s.GetVm()), Packets: n})
		}
	}
	return out
}

// forgetsUnlisted removes the sources that the agent has forgotten, and reports whether there is room then. It looks once in wholeEvery
// messages.
func (d *Differences) forgetsUnlisted() bool {
	if d.looked != 0 && d.messages-d.looked < wholeEvery {
		return false
	}
	d.looked = d.messages
	for _, p := range d.ports {
		for vm, s := range p.byVM {
			if d.messages-s.listed > unlisted {
				delete(p.byVM, vm)
				d.sources--
			}
		}
	}
	return d.sources < knownSources
}

// Arrivals returns the event of a message, which must come from a decoder and is kept. The event and its memory are valid until
// the next call. nil: a message that came late, or without arrivals.
func (d *Differences) Arrivals(m *Events) *telemetry.Arrivals {
	since, ok := d.begin(m.GetOrigin(), &d.events)
	if !ok || len(m.GetArrivals()) == 0 {
		return nil
	}
	d.arrivals = sized(d.arrivals, len(m.GetArrivals()))
	for i, a := range m.GetArrivals() {
		p, known := d.port(a.GetPort(), nil, d.events.whole, func(p *portBefore) *bool { return &p.arrived })
		e := &d.arrivals[i]
		*e = telemetry.PortArrivals{N: a.GetPort(), Pairs: e.Pairs[:0]}
		if was := p.arrivals; known {
			e.Counts = telemetry.Counts{
				SYN: less(a.GetSyn(), was.GetSyn()), SYNACK: less(a.GetSynAck(), was.GetSynAck()), FIN: less(a.GetFin(), was.GetFin()),
				RST: less(a.GetRst(), was.GetRst()), Resume: less(a.GetResumed(), was.GetResumed()), Found: less(a.GetFound(), was.GetFound()),
				Request: less(a.GetRequests(), was.GetRequests()),
			}
			e.Rest = less(a.GetFurther(), was.GetFurther())
		}
		for _, pair := range a.GetPairs() {
			e.Pairs = append(e.Pairs, telemetry.Pair{Source: addrOf(pair.GetSource()), Destination: addrOf(pair.GetDestination()), Kinds: telemetry.Kind(pair.GetKinds()),
				Opened: pair.GetOpened(), Resumed: pair.GetResumed(), Requested: pair.GetRequested()})
		}
		p.arrivals = a
	}
	return &telemetry.Arrivals{At: law.Switch(m.GetSwitch()), T: since, Ports: d.arrivals}
}
