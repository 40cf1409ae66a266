//go:build cgo

package laws

import (
	"fmt"
	"net/netip"
	"slices"

	"weir/experiment"
	"weir/law"
	"weir/law/flows"
	"weir/law/sed"
	"weir/sim/control"
	"weir/sim/event"
	"weir/sim/network"
)

// SED returns the law `sed`: law/sed at a controller. Switches report the state of their ports and the flows that leave by them, and
// hosts report deadlines and carry out windows and pauses.
func SED() Law {
	return sedLaw(sed.Spec(), func(p any) *sed.RepairParams { return &sed.RepairParams{Params: *p.(*sed.Params)} })
}

// RSED returns the law `rsed`: SED, and switches that report what they drop, or keep it for a time.
func RSED() Law {
	return sedLaw(sed.RepairSpec(), func(p any) *sed.RepairParams { return p.(*sed.RepairParams) })
}

func sedLaw(spec law.Spec, params func(any) *sed.RepairParams) Law {
	interval := spec.Interval
	spec.Interval = nil // the ports below report in its place
	l := Controlled(spec)
	put := l.Put
	l.Put = func(n *network.Network, r *experiment.Run, name string) (Attached, error) {
		a, err := put(n, r, name)
		if err != nil {
			return nil, err
		}
		all := law.Pointer(r.Params[name])
		s := &sedNetwork{controlled: a.(*controlled)}
		return s, s.put(r, params(all), event.Time(interval(all)))
	}
	return l
}

// sedNetwork is the law in a network.
type sedNetwork struct {
	*controlled
	switches []*sedSwitch
}

// lookEvery is how often a port looks whether its queue has drained.
const lookEvery = 20 * event.Microsecond

func (s *sedNetwork) put(r *experiment.Run, p *sed.RepairParams, every event.Time) error {
	switch p.Pause {
	case sed.PauseHold:
		s.hosts.hold = event.Time(p.Hold)
	case sed.PauseZero:
		s.hosts.zero = true
	}
	if p.First == sed.FirstBase {
		s.hosts.first = event.Time(p.Lease)
	}
	s.controlled.switches = map[law.Switch]*control.Site{}
	for i, at := range r.At {
		sw := &sedSwitch{of: s, number: law.Switch(i + 1), p: p, every: every, acks: map[dataKey]*ackSeen{}}
		site, err := s.messenger.Add(control.SiteOptions{Name: at + " ports", Enforcer: sw})
		if err != nil {
			return err
		}
		sw.site, s.controlled.switches[sw.number] = site, site
		for _, port := range s.net.SwitchPorts([]string{at}) {
			q := &sedPort{sw: sw, port: port, at: law.Port{Switch: sw.number, N: uint32(port.ID)}, state: sed.NewPort(&p.Params), flows: map[dataKey]*sedFlow{}}
			q.look.Init(q)
			if p.Repair == sed.RepairReinject {
				at, err := law.RepairAt(port.Rate, port.Buffer.Bytes(), p.Park)
				if err != nil {
					return fmt.Errorf("port %s: %w", port.Name, err)
				}
				q.repair = newRepairPort(s.net, port, at, at.Bound)
			}
			sw.ports = append(sw.ports, q)
			add(port, q)
		}
		sw.report.Init(sw)
		s.net.Queue.Set(&sw.report, s.net.Queue.Now()+every)
		s.switches = append(s.switches, sw)
	}
	return nil
}

// Tally adds what the law did to the counts of messages and hosts.
func (s *sedNetwork) Tally() law.Tally {
	t, c := s.controlled.Tally(), s.law.(*sed.Law).Counts()
	t["triggers"], t["window_grants"], t["pauses"], t["held_acks"] = c.Triggers, c.Granted, c.Paused, s.hosts.Counts().Held
	t["repairs"] = c.Repairs
	for _, sw := range s.switches {
		for _, q := range sw.ports {
			if q.repair != nil {
				q.repair.count(t)
			}
		}
	}
	return t
}

// Close stops reports and timers. Kept packets stay with the ports, which the network frees.
func (s *sedNetwork) Close() {
	for _, sw := range s.switches {
		s.net.Queue.Stop(&sw.report)
		for _, q := range sw.ports {
			s.net.Queue.Stop(&q.look)
			if q.repair != nil {
				s.net.Queue.Stop(&q.repair.back)
			}
		}
	}
	s.controlled.Close()
}

// sedSwitch is a switch: its ports see data of flows, and it sees the acknowledgements.
type sedSwitch struct {
	of     *sedNetwork
	number law.Switch
	p      *sed.RepairParams
	site   *control.Site
	ports  []*sedPort
	every  event.Time
	report event.Event
	said   bool // the last report had a congested port
	out    flows.Progress
	acks   map[dataKey]*ackSeen // with repair by ACKs: the last one of each flow
}

// sedPort is one port.
type sedPort struct {
	sw     *sedSwitch
	port   *network.Port
	at     law.Port
	state  sed.Port
	look   event.Event // the queue is looked at
	flows  map[dataKey]*sedFlow
	order  []*sedFlow  // as they began
	repair *repairPort // with repair: reinject; else nil

	answers    []sedAnswer // with repair: dupacks_drained
	nextAnswer event.Time
}

func (k dataKey) reverse() dataKey { return dataKey{k.dst, k.src, k.dstPort, k.srcPort} }

func (k dataKey) flow() law.Flow {
	return law.Flow{Src: netip.AddrPortFrom(HostAddress(k.src), k.srcPort), Dst: netip.AddrPortFrom(HostAddress(k.dst), k.dstPort), Proto: network.TCP}
}

// sedFlow is a flow at a port.
type sedFlow struct {
	key      dataKey
	end      uint32 // sequence number behind its furthest data
	bytes    uint64 // to there
	reported uint64
}

// sedFlows bounds the flows of a port. Further ones are not reported.
const sedFlows = 1 << 15

// ackSeen is the last acknowledgement of a flow, the port by which it left, and the answers to losses that wait for a later one.
type ackSeen struct {
	port       *network.Port
	conn       int32
	toAcceptor bool
	priority   uint8
	window     uint16
	bytes      int32
	tag        uint64 // timestamps
	seq, ack   uint32
	waiting    []flows.Acks
}

// timestampBytes is the option of RFC 7323 in a header.
const timestampBytes = 12

// sedAnswers bounds the answers of a flow that wait.
const sedAnswers = 8

// Packet sees a packet before it is queued: it changes the state of the port, and is noted if it begins, continues or ends a flow.
func (q *sedPort) Packet(p *network.Port, pk *network.Packet, now event.Time) network.Verdict {
	q.see(p.Backlog()+int64(pk.Bytes()), now)
	if pk.Proto() != network.TCP {
		return q.repaired(p, pk, now)
	}
	if q.sw.answers() && pk.Flags()&(network.ACK|network.RST) == network.ACK {
		q.sw.noteACK(p, pk)
	}
	const ends = network.SYN | network.FIN | network.RST
	if pk.Payload() > 0 || pk.Flags()&ends != 0 {
		q.note(pk)
	}
	return q.repaired(p, pk, now)
}

// repaired passes, keeps or drops a packet.
func (q *sedPort) repaired(p *network.Port, pk *network.Packet, now event.Time) network.Verdict {
	if q.repair == nil {
		return network.Pass
	}
	return q.repair.Packet(p, pk, now)
}

// see takes the queue, and reports a change of the state.
func (q *sedPort) see(queue int64, now event.Time) {
	if q.state.See(queue) {
		q.sw.site.Report(q.sw.of.controller, packetInBytes, 0, &flows.Congested{At: q.at, Now: q.state.Congested()})
	}
	if (q.state.Congested() || len(q.answers) > 0) && !q.look.Pending() {
		q.sw.of.net.Queue.Set(&q.look, now+lookEvery)
	}
}

// Happen looks at the queue while the port is congested or answers to losses wait.
func (q *sedPort) Happen(_ *event.Event, now event.Time) {
	q.retransmissions(now)
	q.see(q.port.Backlog(), now)
}

// note notes a packet that belongs to the data of a flow.
func (q *sedPort) note(pk *network.Packet) {
	k := keyOfData(pk)
	f := q.flows[k]
	if pk.Flags()&network.RST != 0 {
		q.end(f)
		q.end(q.flows[k.reverse()])
		return
	}
	if f == nil {
		if len(q.flows) >= sedFlows {
			return
		}
		f = &sedFlow{key: k, end: pk.Seq()}
		if pk.Flags()&network.SYN != 0 {
			f.end++
		}
		q.flows[k], q.order = f, append(q.order, f)
		q.sw.site.Report(q.sw.of.controller, packetInBytes, 0, &flows.Began{At: q.at, Flow: k.flow()})
	}
	if end := pk.Seq() + uint32(pk.Payload()); pk.Payload() > 0 && int32(end-f.end) > 0 {
		f.bytes += uint64(end - f.end)
		f.end = end
	}
	if pk.Flags()&network.FIN != 0 {
		q.end(f)
	}
}

// end reports the end of a flow.
func (q *sedPort) end(f *sedFlow) {
	if f == nil {
		return
	}
	delete(q.flows, f.key)
	delete(q.sw.acks, f.key)
	q.order = slices.DeleteFunc(q.order, func(o *sedFlow) bool { return o == f })
	q.sw.site.Report(q.sw.of.controller, packetInBytes, 0, &flows.Ended{At: q.at, Flow: f.key.flow()})
}

// Happen is the time for a report.
func (s *sedSwitch) Happen(_ *event.Event, now event.Time) {
	s.of.net.Queue.Set(&s.report, now+s.every)
	s.out = flows.Progress{At: s.number, Congested: s.out.Congested[:0], Sent: s.out.Sent[:0]}
	for _, q := range s.ports {
		if q.state.Congested() {
			s.out.Congested = append(s.out.Congested, q.at.N)
		}
		for _, f := range q.order {
			if f.bytes > f.reported && len(s.out.Sent) < flows.MaxSent {
				f.reported = f.bytes
				s.out.Sent = append(s.out.Sent, flows.Sent{Port: q.at.N, Flow: f.key.flow(), Bytes: f.bytes})
			}
		}
	}
	if congested := len(s.out.Congested) > 0; congested || s.said || len(s.out.Sent) > 0 {
		s.said = congested
		s.site.Report(s.of.controller, reportBytes+portBytes*len(s.ports)+sentBytes*len(s.out.Sent), 0, &s.out)
	}
}

// sentBytes is the size of a flow in a report.
const sentBytes = 24

// noteACK remembers the last acknowledgement of a flow, and sends the answers that waited for it, directly behind it.
func (s *sedSwitch) noteACK(p *network.Port, pk *network.Packet) {
	k := keyOfData(pk).reverse()
	a := s.acks[k]
	if a == nil {
		if len(s.acks) >= sedFlows {
			return
		}
		a = &ackSeen{port: p, conn: pk.Conn(), toAcceptor: pk.ToAcceptor(), priority: pk.Priority(), ack: pk.Ack()}
		s.acks[k] = a
	}
	if int32(pk.Ack()-a.ack) < 0 {
		return
	}
	a.ack, a.window, a.seq, a.tag, a.bytes = pk.Ack(), pk.Window(), pk.Seq()+uint32(pk.Payload()), pk.Tag(), network.HeaderBytes
	if a.tag != 0 {
		a.bytes += timestampBytes
	}
	if pk.Flags()&network.SYN != 0 { // its window has no scale, and it takes a sequence number
		a.seq++
		a.window >>= max(pk.Scale(), 0)
	}
	waiting := a.waiting[:0]
	for _, o := range a.waiting {
		switch at := int32(a.ack - o.Ack); {
		case at == 0:
			s.due(k, a, &o)
		case at < 0:
			waiting = append(waiting, o)
		}
	}
	a.waiting = waiting
}

// Full is asked before the port drops a packet: its loss is reported.
func (q *sedPort) Full(_ *network.Port, pk *network.Packet, _ event.Time) network.Verdict {
	if pk.Proto() != network.TCP || !q.sw.answers() {
		return network.Pass
	}
	k := keyOfData(pk)
	if f := q.flows[k]; f != nil {
		d := flows.Dropped{At: q.at, Flow: k.flow(), Seq: pk.Seq(), Bytes: uint32(pk.Payload()), End: f.end}
		q.sw.site.Report(q.sw.of.controller, packetInBytes+int(pk.Payload()), 0, &d) // the message carries the packet
	}
	return network.Pass
}

// Enforce answers a loss as soon as the receiver has acknowledged everything before it (RS-1).
func (s *sedSwitch) Enforce(_ event.Time, action law.Action) error {
	o, ok := action.(flows.Acks)
	if !ok {
		return fmt.Errorf("%T at a switch", action)
	}
	k := dataKey{hostOf(o.Flow.Src.Addr()), hostOf(o.Flow.Dst.Addr()), o.Flow.Src.Port(), o.Flow.Dst.Port()}
	a := s.acks[k]
	if a == nil { // the connection ended meanwhile
		return nil
	}
	switch at := int32(a.ack - o.Ack); {
	case at == 0:
		s.due(k, a, &o)
	case at < 0 && len(a.waiting) < sedAnswers:
		a.waiting = append(a.waiting, o)
	}
	return nil
}
