package laws

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weir/datapath/native"
	"weir/law"
	"weir/law/telemetry"
	"weir/sim/event"
	"weir/sim/network"
)

// TelemetryOptions are the telemetry of the switch ports of a network.
type TelemetryOptions struct {
	At    law.Switch
	Every law.Duration // T
	First law.Duration // from now to the first reading, above 0; 0: T
	Idle  law.Duration // a flow without data for so long is idle
	// Signals are what laws ask for: marks and arrivals are collected only then.
	Signals []law.Signal
	// VM returns the VM that a host is; 0: not known.
	VM func(network.NodeID) law.VM
	// Address returns a host's address, for pairs.
	Address func(network.NodeID) netip.Addr
	// To takes the events, every period: *telemetry.Arrivals if a law asks for arrivals, then *telemetry.Telemetry. They are
	// borrowed until it returns. It is a site's Event, or its Report to a controller.
	To func(law.Event)
}

// Telemetry counts what the ports of a switch pass to their buffers, as the kernel's telemetry program does at a port's egress
// (datapath/bpf/telemetry). One table of connections serves all of its ports.
type Telemetry struct {
	o       TelemetryOptions
	queue   *event.Queue
	timer   event.Event
	ports   []*telemetryPort
	flows   flowTable
	marks   bool
	arrives bool
	last    event.Time

	report telemetry.Telemetry
	begun  telemetry.Arrivals
}

// telemetryPort is one port, and what it counted since the last reading.
type telemetryPort struct {
	of       *Telemetry
	port     *network.Port
	counts   *telemetry.Port         // in the event
	arrivals *telemetry.PortArrivals // in the event
	before   network.Counters
	came     *network.Packet // the last packet that came to the laws, if it had CE then
}

// telemetryHead is in front of the port's laws. It notes packets that an earlier switch has marked.
type telemetryHead struct{ *telemetryPort }

// Packet notes a packet that came with CE. It changes nothing.
func (l telemetryHead) Packet(_ *network.Port, pk *network.Packet, _ event.Time) network.Verdict {
	l.came = nil
	if pk.ECN() == network.CE {
		l.came = pk
	}
	return network.Pass
}

// NewTelemetry puts telemetry behind the laws of these ports, which belong to one switch. A port's number is its ID in the network.
func NewTelemetry(q *event.Queue, ports []*network.Port, o TelemetryOptions) (*Telemetry, error) {
	if o.Every <= 0 {
		return nil, fmt.Errorf("telemetry: a period of %v: it must be above 0", o.Every)
	}
	if !native.Built {
		return nil, fmt.Errorf("telemetry is C (datapath/core) and this weir was built without cgo: build it with CGO_ENABLED=1 and a C compiler")
	}
	t := &Telemetry{
		o: o, queue: q, last: q.Now(),
		marks: slices.Contains(o.Signals, law.Marks), arrives: slices.Contains(o.Signals, law.Arrivals),
	}
	t.report = telemetry.Telemetry{At: o.At, Ports: make([]telemetry.Port, len(ports))}
	t.begun = telemetry.Arrivals{At: o.At, Ports: make([]telemetry.PortArrivals, len(ports))}
	for i, p := range ports {
		t.report.Ports[i].N, t.begun.Ports[i].N = uint32(p.ID), uint32(p.ID)
		l := &telemetryPort{of: t, port: p, counts: &t.report.Ports[i], arrivals: &t.begun.Ports[i], before: p.Counters()}
		t.ports = append(t.ports, l)
		if t.marks {
			p.SetLaws(append([]network.Law{telemetryHead{l}}, p.Laws()...)...)
		}
		add(p, l)
	}
	t.timer.Init(t)
	q.Set(&t.timer, t.last+event.Time(cmp.Or(o.First, o.Every)))
	return t, nil
}

// Close stops the readings.
func (t *Telemetry) Close() { t.queue.Stop(&t.timer) }

// Packet counts a packet that the port's laws have passed. It changes nothing.
func (l *telemetryPort) Packet(p *network.Port, pk *network.Packet, now event.Time) network.Verdict {
	c := l.counts
	c.PeakBytes = max(c.PeakBytes, uint64(p.Backlog()))
	c.Packets++
	c.Bytes += uint64(pk.Bytes())
	if l.of.marks && pk.ECN() == network.CE && l.came != pk {
		l.mark(pk)
	}
	if l.of.arrives && pk.Proto() == network.TCP && native.ArrivalMatters(uint32(pk.Payload()), uint8(pk.Flags())) {
		l.arrive(pk, now)
	}
	return network.Pass
}

// mark counts a packet that a law of this port marked, by its VM.
func (l *telemetryPort) mark(pk *network.Packet) {
	m := &l.counts.Marks
	m.Packets++
	vm := law.VM(0)
	if l.of.o.VM != nil {
		vm = l.of.o.VM(pk.Src())
	}
	if vm == 0 {
		m.Unknown++
		return
	}
	for i := range m.ByVM {
		if m.ByVM[i].VM == vm {
			m.ByVM[i].Packets++
			return
		}
	}
	if len(m.ByVM) == telemetry.MaxVMs {
		m.Rest++
		return
	}
	m.ByVM = append(m.ByVM, telemetry.VMMarks{VM: vm, Packets: 1})
}

// flowKey is the ends of a connection, the dialler first. (Packet.Conn is used again at once. The last packets of the connection
// that had it before may still be on the way.)
type flowKey struct {
	dialler, acceptor         network.NodeID
	diallerPort, acceptorPort uint16
}

// tableHalf is half the size of the kernel's table of connections (datapath/bpf/telemetry/telemetry.h).
const tableHalf = 1 << 15

// flowTable evicts connections that were not used recently: those of the older half, when the younger one is full.
type flowTable struct {
	young, old map[flowKey]*native.ArrivalsFlow
}

// of returns the state of a connection, which is zero if the table does not have it.
func (t *flowTable) of(k flowKey) *native.ArrivalsFlow {
	f := t.young[k]
	if f != nil {
		return f
	}
	if f = t.old[k]; f == nil {
		f = &native.ArrivalsFlow{}
	}
	if t.young == nil || len(t.young) == tableHalf {
		t.young, t.old = map[flowKey]*native.ArrivalsFlow{}, t.young
	}
	t.young[k] = f
	return f
}

// listed are the kinds whose pairs are listed.
const listed = telemetry.SYN | telemetry.SYNACK | telemetry.Resume | telemetry.Found | telemetry.Request

// see asks arrivals.h what a TCP packet is for which native.ArrivalMatters. A flow without data for idle is idle.
func (t *flowTable) see(pk *network.Packet, idle law.Duration, now event.Time) telemetry.Kind {
	p := native.ArrivalsPacket{NowNs: uint64(now), Seq: pk.Seq(), Ack: pk.Ack(), Payload: uint32(pk.Payload()), Flags: uint8(pk.Flags())}
	key := flowKey{pk.Src(), pk.Dst(), pk.SrcPort(), pk.DstPort()}
	if !pk.ToAcceptor() {
		p.Side = 1
		key = flowKey{pk.Dst(), pk.Src(), pk.DstPort(), pk.SrcPort()}
	}
	return telemetry.Kind(native.SeeArrival(uint64(idle), t.of(key), &p))
}

// arrive counts what a packet is.
func (l *telemetryPort) arrive(pk *network.Packet, now event.Time) {
	t := l.of
	kinds := t.flows.see(pk, t.o.Idle, now)
	l.arrivals.Counts.Add(kinds, 1)
	if kinds&listed != 0 && t.o.Address != nil {
		l.pair(t.o.Address(pk.Src()), t.o.Address(pk.Dst()), kinds&listed)
	}
}

func (l *telemetryPort) pair(source, destination netip.Addr, kinds telemetry.Kind) {
	a := l.arrivals
	ofSource := 0
	for i := range a.Pairs {
		p := &a.Pairs[i]
		if p.Source != source {
			continue
		}
		if ofSource++; p.Destination == destination || ofSource == telemetry.MaxSourcePairs {
			p.Add(kinds)
			return
		}
	}
	if len(a.Pairs) == telemetry.MaxPairs {
		a.Rest++
		return
	}
	p := telemetry.Pair{Source: source, Destination: destination}
	p.Add(kinds)
	a.Pairs = append(a.Pairs, p)
}

// Happen is the time for a reading.
func (t *Telemetry) Happen(_ *event.Event, now event.Time) {
	t.Read(now)
	t.queue.Set(&t.timer, now+event.Time(t.o.Every))
}

// Read sends the events of a reading, and begins the next period.
func (t *Telemetry) Read(now event.Time) {
	t.report.T = time.Duration(now - t.last)
	t.begun.T, t.last = t.report.T, now
	for _, l := range t.ports {
		c, after := l.counts, l.port.Counters()
		c.BacklogBytes = uint64(after.Queued.Bytes)
		c.PeakBytes = max(c.PeakBytes, c.BacklogBytes)
		c.SentBytes = uint64(after.Sent.Bytes - l.before.Sent.Bytes)
		c.Drops = uint64(after.Tail.Packets - l.before.Tail.Packets)
		l.before = after
	}
	if t.arrives {
		t.o.To(&t.begun)
	}
	t.o.To(&t.report)
	for _, l := range t.ports {
		*l.counts = telemetry.Port{N: l.counts.N, Marks: telemetry.Marks{ByVM: l.counts.Marks.ByVM[:0]}}
		*l.arrivals = telemetry.PortArrivals{N: l.arrivals.N, Pairs: l.arrivals.Pairs[:0]}
	}
}
