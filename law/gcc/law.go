package gcc

import (
	"slices"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// Limits of the tables. Marks of further ports are divided among nobody. A port keeps the VMs that came first.
const (
	maxPorts   = 1 << 16
	maxSources = 1 << 12 // VMs of a port
)

// one is a mark in the unit of messages: fractions of marks are passed on (GC-4).
const one = telemetry.OneMark

// Law is Algorithm 2 at a controller. Make one with New.
//
// The paper learns from packets which sources send to which destinations, and by which port data to these leaves. Here
// switches report whose packets were marked at a port: those VMs use it (GC-3).
type Law struct {
	p      Config
	ports  map[law.Port]*port
	ofVM   map[law.VM]uint64 // marks of this step
	vms    []law.VM          // keys of ofVM
	counts Counts
	why    why
}

// Counts is what the law did.
type Counts struct {
	Marks   uint64 // reported
	Nobody  uint64 // of Marks: at ports whose sources are not known
	Unknown uint64 // of Marks, with by_vm: of addresses of no known VM, or beyond the report's list
	Sent    uint64 // messages
	TooMany uint64 // ports and sources over the limit
}

// port is the state of a port of a switch.
type port struct {
	sources map[law.VM]time.Duration // when each had a marked packet last
	list    []law.VM                 // keys of sources, ascending
	rest    uint64                   // that could not be divided (GC-4), below the number of sources
}

// why is the reason of the last messages, for people.
type why struct {
	ports int
	marks uint64
	vms   int
}

// New returns the law. The error says which parameter is wrong.
func New(p Config) (*Law, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	return &Law{p: p, ports: map[law.Port]*port{}, ofVM: map[law.VM]uint64{}}, nil
}

// Wake asks for no ticks: readings come every interval.
func (l *Law) Wake() time.Duration { return 0 }

// Counts returns what the law did so far.
func (l *Law) Counts() Counts { return l.counts }

// Step takes one event.
func (l *Law) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	switch e := e.(type) {
	case *telemetry.Telemetry:
		return l.divide(now, e, out)
	case *inventory.SwitchLeft:
		for at := range l.ports {
			if at.Switch == e.At {
				delete(l.ports, at)
			}
		}
	}
	return out
}

// divide divides the new marks of each port of a switch, and sends each VM one message.
func (l *Law) divide(now time.Duration, e *telemetry.Telemetry, out []law.Action) []law.Action {
	clear(l.ofVM)
	l.vms = l.vms[:0]
	l.why = why{}
	for i := range e.Ports {
		m := &e.Ports[i].Marks
		if m.Packets == 0 { // GC-1: switches report what is new
			continue
		}
		l.counts.Marks += m.Packets
		at := l.port(law.Port{Switch: e.At, N: e.Ports[i].N})
		if at == nil {
			l.counts.Nobody += m.Packets
			continue
		}
		l.why.ports++
		l.why.marks += m.Packets
		if l.p.Divide == ByVM {
			l.byVM(m)
			continue
		}
		l.learn(now, at, m.ByVM)
		l.equally(at, m.Packets)
	}
	slices.Sort(l.vms)
	l.why.vms = len(l.vms)
	for _, vm := range l.vms {
		l.counts.Sent++
		out = append(out, law.Grant{
			Kind: law.MarksGrant, Key: law.Key{Pair: law.Pair{VM: vm}}, Value: min(l.ofVM[vm], telemetry.MaxMarks*one), Lease: messageLease,
		})
	}
	return out
}

// messageLease is how old a message may get: its marks are about the past.
const messageLease = time.Second

// learn notes the VMs whose packets were marked at a port, and forgets those that had none for a time.
func (l *Law) learn(now time.Duration, at *port, by []telemetry.VMMarks) {
	for _, m := range by {
		if m.VM == 0 || m.Packets == 0 {
			continue
		}
		if _, known := at.sources[m.VM]; !known {
			if len(at.list) >= maxSources {
				l.counts.TooMany++
				continue
			}
			i, _ := slices.BinarySearch(at.list, m.VM)
			at.list = slices.Insert(at.list, i, m.VM)
		}
		at.sources[m.VM] = now
	}
	at.list = slices.DeleteFunc(at.list, func(vm law.VM) bool {
		old := now-at.sources[vm] >= time.Duration(l.p.Inactivity)
		if old {
			delete(at.sources, vm)
		}
		return old
	})
}

// equally divides marks among the sources of a port. Their number is this port's own (GC-2), and what is left over counts
// the next time (GC-4).
func (l *Law) equally(at *port, marks uint64) {
	n := uint64(len(at.list))
	if n == 0 {
		l.counts.Nobody += marks
		return
	}
	all := min(marks, telemetry.MaxMarks)*one + at.rest
	at.rest = all % n
	for _, vm := range at.list {
		l.add(vm, all/n)
	}
}

// byVM gives each VM the marks of its own packets.
func (l *Law) byVM(m *telemetry.Marks) {
	l.counts.Unknown += m.Unknown + m.Rest
	for _, v := range m.ByVM {
		if v.VM != 0 {
			l.add(v.VM, min(v.Packets, telemetry.MaxMarks)*one)
		}
	}
}

func (l *Law) add(vm law.VM, marks uint64) {
	if marks == 0 { // GS-3
		return
	}
	if _, known := l.ofVM[vm]; !known {
		l.vms = append(l.vms, vm)
	}
	l.ofVM[vm] += marks
}

// port returns a port's state; nil: there are too many.
func (l *Law) port(at law.Port) *port {
	p := l.ports[at]
	if p == nil {
		if len(l.ports) >= maxPorts {
			l.counts.TooMany++
			return nil
		}
		p = &port{sources: map[law.VM]time.Duration{}}
		l.ports[at] = p
	}
	return p
}
