//go:build cgo

package laws

import (
	"fmt"

	"weir/datapath/native"
	"weir/experiment"
	"weir/law"
	"weir/law/siccns2"
	"weir/law/telemetry"
	"weir/sim/event"
	"weir/sim/network"
)

// SICCNS2 returns the law `siccns2`: law/siccns2 decides at each port of the switches. ACKs that came in by the link of a port
// are limited as that port's queue says; ns-2 calls it the other queue.
//
// Two differences from ns-2 follow from the simulator. A queue counts the packet on the line, too. ACKs are limited when they
// join the queue towards the sender, not when they leave the one before it.
func SICCNS2() Law { return inC(Law{Check: checkSICCNS2, Put: putSICCNS2}) }

func checkSICCNS2(r *experiment.Run, name string) error {
	p, err := law.Params[siccns2.Params](r.Params, name)
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		return fmt.Errorf("law %s: %w", name, err)
	}
	return nil
}

// ns2Switches is the law at all ports. A connection is known by what its SYNs announced.
type ns2Switches struct {
	Quiet
	queue *event.Queue
	p     siccns2.Params
	ports []*ns2Port
	of    map[*network.Port]*ns2Port
	conns map[int32]*hostConn
	flows flowTable // with Persist
	tick  event.Event

	limited, smaller, unknown uint64 // ACKs in an incast
}

// ns2Port is the law at one port.
type ns2Port struct {
	sw   *ns2Switches
	port *network.Port
	law  *siccns2.Queue
	sent int64 // bytes that had left when the law last heard of it
}

func putSICCNS2(n *network.Network, r *experiment.Run, name string) (Attached, error) {
	if err := checkSICCNS2(r, name); err != nil {
		return nil, err
	}
	p, _ := law.Params[siccns2.Params](r.Params, name)
	s := &ns2Switches{queue: n.Queue, p: p, of: map[*network.Port]*ns2Port{}, conns: map[int32]*hostConn{}}
	for _, at := range n.SwitchPorts(r.At) {
		l := &ns2Port{sw: s, port: at, law: siccns2.NewQueue(p, int64(at.Buffer.Bytes()))}
		s.ports, s.of[at] = append(s.ports, l), l
		add(at, l)
	}
	s.tick.Init(s)
	s.queue.Set(&s.tick, s.queue.Now()+event.Time(p.Interval))
	return s, nil
}

// Happen is the end of an interval.
func (s *ns2Switches) Happen(_ *event.Event, now event.Time) {
	for _, l := range s.ports {
		l.law.Tick(l.backlog())
	}
	s.queue.Set(&s.tick, now+event.Time(s.p.Interval))
}

// Close stops the timer.
func (s *ns2Switches) Close() { s.queue.Stop(&s.tick) }

// Tally counts incasts, and what became of ACKs and data.
func (s *ns2Switches) Tally() law.Tally {
	var c siccns2.Counts
	for _, l := range s.ports {
		c.Incasts += l.law.Counts().Incasts
		c.Refused += l.law.Counts().Refused
	}
	return law.Tally{"incasts": c.Incasts, "refused": c.Refused, "acks_limited": s.limited, "acks_smaller": s.smaller, "acks_unknown": s.unknown}
}

// backlog returns the queue, after the law has heard of the packets that left. Between arrivals a queue only gets shorter, so it
// is enough to report the last one.
func (l *ns2Port) backlog() int64 {
	backlog, sent, _ := l.port.Gauge()
	if sent != l.sent {
		l.sent = sent
		l.law.Leave(backlog)
	}
	return backlog
}

// Packet counts and may refuse a packet, and limits an ACK.
func (l *ns2Port) Packet(p *network.Port, pk *network.Packet, now event.Time) network.Verdict {
	queue, kind := l.backlog(), siccns2.Kind(0)
	if pk.Proto() == network.TCP {
		kind = l.sw.kind(pk, now)
	}
	if !l.law.Arrive(queue, kind) {
		return network.Drop
	}
	if kind == siccns2.ACK || kind == siccns2.SYN && l.sw.p.SYNACK && pk.Flags()&network.ACK != 0 {
		if other := l.sw.of[p.CameInBy(pk)]; other != nil {
			other.limit(pk)
		}
	}
	return network.Pass
}

// kind returns what a segment is, and notes what SYNs announce.
func (s *ns2Switches) kind(pk *network.Packet, now event.Time) (k siccns2.Kind) {
	flags := pk.Flags()
	if flags&network.SYN != 0 {
		k |= siccns2.SYN
		s.learn(pk)
	}
	if flags&network.FIN != 0 {
		k |= siccns2.FIN
	}
	if flags&network.RST != 0 {
		delete(s.conns, pk.Conn())
	}
	if k == 0 && pk.Payload() == 0 {
		k = siccns2.ACK
	}
	if s.p.Persist && native.ArrivalMatters(uint32(pk.Payload()), uint8(flags)) && s.flows.see(pk, idleAfter, now)&telemetry.Resume != 0 {
		k |= siccns2.Resume
	}
	return k
}

func (s *ns2Switches) learn(pk *network.Packet) {
	c := s.conns[pk.Conn()]
	if c == nil {
		if len(s.conns) >= hostConns {
			return
		}
		c = &hostConn{}
		s.conns[pk.Conn()] = c
	}
	c.syn[side(pk)] = synOf(pk)
}

// limit limits the window of an ACK of a flow whose data leaves by this port. As in every law here the window is never below a
// segment and a byte, rounded up to the scale of the ACK's sender, and never raised (FQ-12, FQ-13, FQ-16). The ns-2 code
// writes it over any window, and has no scales.
func (l *ns2Port) limit(pk *network.Packet) {
	s := l.sw
	l.backlog()
	bytes := l.law.Window()
	if bytes == 0 {
		return
	}
	c := s.conns[pk.Conn()]
	if c == nil || !c.syn[side(pk)].seen {
		s.unknown++
		return
	}
	ack := native.WindowAck{
		WindowQ8: uint64(bytes) << 8, FloorBytes: native.WindowFloor(uint32(c.syn[side(pk)].mss), 0),
		Ack: pk.Ack(), Field: pk.Window(), Shift: c.shift(side(pk)),
	}
	if pk.Flags()&network.SYN != 0 {
		ack.SYN = 1
	}
	field := native.WindowRewrite(&ack, &native.WindowEdge{})
	if field == pk.Window() {
		s.smaller++
		return
	}
	pk.SetWindow(field)
	s.limited++
}
