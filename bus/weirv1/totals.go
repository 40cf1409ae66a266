package weirv1

import (
	"net/netip"
	"slices"

	"weir/law"
	"weir/law/telemetry"
)

// Totals makes messages of a switch's readings. A reading has what was counted since the one before; a message has totals since
// the agent's start, so that a lost message loses no packet. Use NewTotals.
type Totals struct {
	ports    map[uint32]*portTotals
	sources  int // at all ports together
	readings uint64
	looked   uint64 // reading at which quiet sources were looked for
}

// portTotals is what was counted at a port, and in how many readings in a row nothing changed there.
type portTotals struct {
	report   PortReport
	quiet    int
	sources  []*sourceTotals // in the order in which they were seen first
	byVM     map[law.VM]*sourceTotals
	arrivals Arrivals
}

type sourceTotals struct {
	SourceMarks
	quiet int
}

const (
	// listed is in how many messages a total is listed after its last change. With two, one lost message does no harm.
	listed = 2
	// wholeEvery is after how many readings a message lists all totals, so that more lost messages do no harm for long.
	wholeEvery = 100
)

// NewTotals returns Totals of an agent that has counted nothing yet.
func NewTotals() *Totals { return &Totals{ports: map[uint32]*portTotals{}} }

func (t *Totals) port(n uint32) *portTotals {
	p := t.ports[n]
	if p == nil {
		p = &portTotals{quiet: listed, byVM: map[law.VM]*sourceTotals{}}
		p.report.Port, p.arrivals.Port = n, n
		t.ports[n] = p
	}
	return p
}

// Telemetry adds a reading, and returns its message without an origin; nil: nothing changed at any port in the last two
// readings. Every hundredth has all ports and VMs. The message is valid until the next call.
func (t *Totals) Telemetry(e *telemetry.Telemetry) *Telemetry {
	m := &Telemetry{Switch: uint64(e.At), IntervalNs: uint64(e.T)}
	t.readings++
	whole := t.readings%wholeEvery == 0
	for i := range e.Ports {
		at := &e.Ports[i]
		p := t.port(at.N)
		changed := !at.Quiet() || p.report.BacklogBytes != 0 || p.report.PeakBytes != 0
		r := &p.report
		r.BacklogBytes, r.PeakBytes = at.BacklogBytes, at.PeakBytes
		r.OfferedBytes += at.Bytes
		r.OfferedPackets += at.Packets
		r.SentBytes += at.SentBytes
		r.DroppedPackets += at.Drops
		r.MarkedPackets += at.Marks.Packets
		r.UnknownMarks += at.Marks.Unknown
		r.FurtherMarks += at.Marks.Rest
		t.marks(p, at.Marks.ByVM)
		if p.quiet++; changed {
			p.quiet = 0
		}
		if p.quiet >= listed && !whole || len(m.Ports) == MaxPorts {
			continue
		}
		r.Sources = r.Sources[:0]
		for _, s := range p.sources {
			if s.quiet < listed || whole {
				r.Sources = append(r.Sources, &s.SourceMarks)
			}
		}
		m.Ports = append(m.Ports, r)
	}
	if len(m.Ports) == 0 {
		return nil
	}
	return m
}

// marks adds a reading's marks by source.
func (t *Totals) marks(p *portTotals, by []telemetry.VMMarks) {
	for _, s := range p.sources {
		s.quiet++
	}
	for _, v := range by {
		s := p.byVM[v.VM]
		switch {
		case s != nil:
		case v.VM == 0 || t.sources >= MaxSources && !t.forgetsQuiet(): // they stay without a name
			p.report.FurtherMarks += v.Packets
			continue
		default:
			s = &sourceTotals{SourceMarks: SourceMarks{Vm: uint32(v.VM)}}
			p.byVM[v.VM] = s
			p.sources = append(p.sources, s)
			t.sources++
		}
		s.MarkedPackets += v.Packets
		if v.Packets > 0 {
			s.quiet = 0
		}
	}
}

// forgetsQuiet removes the sources that a whole message has listed since their last mark, and reports whether there is room then. Their
// counts begin at 0 again. It looks once in wholeEvery readings.
func (t *Totals) forgetsQuiet() bool {
	if t.looked != 0 && t.readings-t.looked < wholeEvery {
		return false
	}
	t.looked = t.readings
	for _, p := range t.ports {
		p.sources = slices.DeleteFunc(p.sources, func(s *sourceTotals) bool {
			if s.quiet <= wholeEvery {
				return false
			}
			delete(p.byVM, law.VM(s.Vm))
			t.sources--
			return true
		})
	}
	return t.sources < MaxSources
}

// Arrivals adds a reading, and returns its message without an origin; nil: nothing began or ended. The message is valid until
// the next call.
func (t *Totals) Arrivals(e *telemetry.Arrivals) *Events {
	m := &Events{Switch: uint64(e.At)}
	for i := range e.Ports {
		at := &e.Ports[i]
		if at.Counts == (telemetry.Counts{}) && len(at.Pairs) == 0 && at.Rest == 0 {
			continue
		}
		a := &t.port(at.N).arrivals
		a.Syn += at.Counts.SYN
		a.SynAck += at.Counts.SYNACK
		a.Fin += at.Counts.FIN
		a.Rst += at.Counts.RST
		a.Resumed += at.Counts.Resume
		a.Found += at.Counts.Found
		a.Requests += at.Counts.Request
		a.Further += at.Rest
		a.Pairs = a.Pairs[:0]
		for i, p := range at.Pairs {
			if i >= MaxPairs || !usable(p.Source) || !usable(p.Destination) {
				a.Further++
				continue
			}
			a.Pairs = append(a.Pairs, &NewPair{Source: p.Source.AsSlice(), Destination: p.Destination.AsSlice(), Kinds: uint32(p.Kinds),
				Opened: p.Opened, Resumed: p.Resumed, Requested: p.Requested})
		}
		if len(m.Arrivals) < MaxPorts {
			m.Arrivals = append(m.Arrivals, a)
		}
	}
	if len(m.Arrivals) == 0 {
		return nil
	}
	return m
}

// usable reports whether a decoder takes the address. A guest can send from any other, too.
func usable(a netip.Addr) bool { return a.IsValid() && !a.Is4In6() && !a.IsUnspecified() }

// Forget removes the totals of a port that was removed. If its number is used again, the port begins at 0.
func (t *Totals) Forget(n uint32) {
	if p := t.ports[n]; p != nil {
		t.sources -= len(p.sources)
		delete(t.ports, n)
	}
}

// Ports lists the numbers of the ports with totals, sorted.
func (t *Totals) Ports() []uint32 {
	var out []uint32
	for n := range t.ports {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
