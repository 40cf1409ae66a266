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
	sources     int

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
	report        *PortReport
	byVM          map[uint32]uint64
	seen, arrived bool
	arrivals      *Arrivals
}

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

func (d *Differences) port(n uint32, whole bool, seen func(*portBefore) *bool) (p *portBefore, known bool) {
	p = d.ports[n]
	if p == nil {
		if len(d.ports) >= 2*MaxPorts { // ports that come and go
			d.ports, d.sources = map[uint32]*portBefore{}, 0
			d.telemetry.whole, d.events.whole, whole = false, false, false
		}
		p = &portBefore{report: &PortReport{}, arrivals: &Arrivals{}, byVM: map[uint32]uint64{}}
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

// Telemetry returns the event of a message, which must come from a decoder and is kept. The first report of a port that had
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
	d.readings = sized(d.readings, len(m.GetPorts()))
	for i, r := range m.GetPorts() {
		p, known := d.port(r.GetPort(), d.telemetry.whole, func(p *portBefore) *bool { return &p.seen })
		e := &d.readings[i]
		by := d.marks(p, r, known, e.Marks.ByVM[:0])
		*e = telemetry.Port{N: r.GetPort(), BacklogBytes: r.GetBacklogBytes(), PeakBytes: r.GetPeakBytes()}
		if was := p.report; known {
			e.Packets = less(r.GetOfferedPackets(), was.GetOfferedPackets())
			e.Bytes = less(r.GetOfferedBytes(), was.GetOfferedBytes())
			e.SentBytes = less(r.GetSentBytes(), was.GetSentBytes())
			e.Drops = less(r.GetDroppedPackets(), was.GetDroppedPackets())
			e.Marks = telemetry.Marks{
				Packets: less(r.GetMarkedPackets(), was.GetMarkedPackets()),
				Unknown: less(r.GetUnknownMarks(), was.GetUnknownMarks()), Rest: less(r.GetFurtherMarks(), was.GetFurtherMarks()),
			}
		}
		e.Marks.ByVM = by
		p.report = r
	}
	return &telemetry.Telemetry{At: law.Switch(m.GetSwitch()), T: since, Ports: d.readings}
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
			if d.sources == MaxSources { // of an agent that lists more than it may: they stay in the port's sum
				continue
			}
			d.sources++
		}
		p.byVM[s.GetVm()] = s.GetMarkedPackets()
		if n := less(s.GetMarkedPackets(), before); n > 0 && (had || known) {
			out = append(out, telemetry.VMMarks{VM: law.VM(s.GetVm()), Packets: n})
		}
	}
	return out
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
		p, known := d.port(a.GetPort(), d.events.whole, func(p *portBefore) *bool { return &p.arrived })
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
