// Package modelnet is a slow, simple network for tests. Its switches follow their flows and groups, and carry out one order at
// a time, in any order that a test chooses. Links can be cut and hosts can send. It forwards real frames, so that tests
// can follow them.
package modelnet

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/law"
	"weir/law/fabric"
)

// Net is a network under a law. Nothing happens by itself: Deliver carries out an order, Hear passes an event to the law.
type Net struct {
	Law      law.Law
	Now      time.Duration
	Switches map[law.Switch]*Switch
	Hosts    map[fabric.MAC]law.Port
	Received map[fabric.MAC][][]byte // frames that arrived at hosts
	Events   []law.Event             // not passed to the law yet
	Choose   func(n int) int         // the port of a group
	OnAction func(law.Action)        // is called with each action of the law
	Lossy    map[law.Port]bool       // ports that are up and lose all frames they send

	links map[law.Port]law.Port
}

// Switch is one switch.
type Switch struct {
	ID        law.Switch
	Connected bool
	Ports     map[fabric.PortNo]bool // up
	Flows     map[fabric.FlowKey]fabric.Flow
	Groups    map[uint32][]fabric.PortNo
	Meters    map[uint32]fabric.Meter
	Orders    []law.Action // not carried out yet

	// The law may learn of a connection after the next one has begun. Its orders for the old one are lost.
	connections, heard int
}

// New makes an empty network.
func New(l law.Law) *Net {
	return &Net{
		Law: l, Switches: map[law.Switch]*Switch{}, Hosts: map[fabric.MAC]law.Port{},
		Received: map[fabric.MAC][][]byte{}, links: map[law.Port]law.Port{}, Choose: func(int) int { return 0 },
		Lossy: map[law.Port]bool{},
	}
}

// AddSwitch adds a switch with ports 1 to n, up, not connected.
func (n *Net) AddSwitch(id law.Switch, ports int) {
	s := &Switch{ID: id, Ports: map[fabric.PortNo]bool{}}
	s.clear()
	for p := range ports {
		s.Ports[fabric.PortNo(p+1)] = true
	}
	n.Switches[id] = s
}

func (s *Switch) clear() {
	s.Flows, s.Groups, s.Meters = map[fabric.FlowKey]fabric.Flow{}, map[uint32][]fabric.PortNo{}, map[uint32]fabric.Meter{}
}

// Link joins two ports.
func (n *Net) Link(a, b law.Port) { n.links[a], n.links[b] = b, a }

// Far returns the other end of a port's link.
func (n *Net) Far(p law.Port) (law.Port, bool) {
	q, ok := n.links[p]
	return q, ok
}

// SetLink cuts a link or restores it; both switches see it.
func (n *Net) SetLink(a law.Port, up bool) {
	for _, p := range []law.Port{a, n.links[a]} {
		s := n.Switches[p.Switch]
		s.Ports[p.N] = up
		if s.Connected {
			n.Events = append(n.Events, &fabric.PortChanged{Switch: p.Switch, Port: n.info(s, p.N)})
		}
	}
}

func (n *Net) info(s *Switch, p fabric.PortNo) fabric.PortInfo {
	return fabric.PortInfo{Port: p, Name: fmt.Sprintf("p%d", p), MAC: fabric.MAC{2, 0, 0, byte(s.ID), 0, byte(p)}, Up: s.Ports[p]}
}

// Connect connects a switch to the controller.
func (n *Net) Connect(id law.Switch) {
	s := n.Switches[id]
	s.Connected, s.Orders = true, nil
	s.connections++
	e := &fabric.Joined{Switch: id}
	for _, p := range slices.Sorted(maps.Keys(s.Ports)) {
		e.Ports = append(e.Ports, n.info(s, p))
	}
	for _, f := range s.Flows {
		e.Found.Flows = append(e.Found.Flows, f)
	}
	for g, ports := range s.Groups {
		e.Found.Groups = append(e.Found.Groups, fabric.Group{ID: g, Ports: ports})
	}
	for _, m := range s.Meters {
		e.Found.Meters = append(e.Found.Meters, m)
	}
	n.Events = append(n.Events, e)
}

// Disconnect ends the connection; the switch continues with its flows.
func (n *Net) Disconnect(id law.Switch) {
	s := n.Switches[id]
	if s.Connected {
		s.Connected, s.Orders = false, nil
		n.Events = append(n.Events, &fabric.Left{Switch: id})
	}
}

// Restart disconnects a switch and empties it.
func (n *Net) Restart(id law.Switch) {
	n.Disconnect(id)
	n.Switches[id].clear()
}

// BeginAgain replaces the law. No switch is connected to the new one; each continues with its flows.
func (n *Net) BeginAgain(l law.Law) {
	n.Law, n.Events = l, nil
	for _, s := range n.Switches {
		s.Connected, s.Orders, s.heard = false, nil, s.connections
	}
}

// Hear passes the next event to the law.
func (n *Net) Hear() {
	e := n.Events[0]
	n.Events = n.Events[1:]
	if j, is := e.(*fabric.Joined); is {
		n.Switches[j.Switch].heard++
	}
	n.step(e)
}

func (n *Net) step(e law.Event) {
	for _, a := range n.Law.Step(n.Now, e, nil) {
		if n.OnAction != nil {
			n.OnAction(a)
		}
		if id, ok := fabric.Target(a); ok {
			if s := n.Switches[id]; s.Connected && s.heard == s.connections {
				s.Orders = append(s.Orders, law.Own(a)) // it is borrowed until the next step
			}
		}
	}
}

// Tick lets time pass.
func (n *Net) Tick(d time.Duration) {
	n.Now += d
	n.step(law.Tick{})
}

// Deliver carries out the next order of a switch.
func (n *Net) Deliver(id law.Switch) error {
	s := n.Switches[id]
	a := s.Orders[0]
	s.Orders = s.Orders[1:]
	switch a := a.(type) {
	case fabric.SetFlow:
		if g := a.Flow.Do.Group; g != 0 {
			if _, there := s.Groups[g]; !there {
				return fmt.Errorf("%v: flow %v uses group %#x, which does not exist", id, a.Flow.FlowKey, g)
			}
		}
		s.Flows[a.Flow.FlowKey] = a.Flow
	case fabric.DropFlow:
		delete(s.Flows, a.Flow.FlowKey)
	case fabric.SetGroup:
		if _, there := s.Groups[a.Group.ID]; there == a.New {
			return fmt.Errorf("%v: group %#x: new %v, there %v", id, a.Group.ID, a.New, there)
		}
		s.Groups[a.Group.ID] = a.Group.Ports
	case fabric.DropGroup:
		for _, f := range s.Flows {
			if f.Do.Group == a.ID {
				return fmt.Errorf("%v: group %#x is removed while flow %v uses it", id, a.ID, f.FlowKey)
			}
		}
		delete(s.Groups, a.ID)
	case fabric.SetMeter:
		s.Meters[a.Meter.ID] = a.Meter
	case fabric.Barrier:
		n.Events = append(n.Events, &fabric.Confirmed{Switch: id, Serial: a.Serial})
	case fabric.PacketOut:
		for _, p := range a.Ports {
			n.emit(law.Port{Switch: id, N: p}, a.Frame, 0)
		}
	}
	return nil
}

// Settle carries out all orders and events, oldest first, until none is left.
func (n *Net) Settle() error {
	for busy := true; busy; {
		busy = len(n.Events) > 0
		for len(n.Events) > 0 {
			n.Hear()
		}
		for _, id := range slices.Sorted(maps.Keys(n.Switches)) {
			for len(n.Switches[id].Orders) > 0 {
				busy = true
				if err := n.Deliver(id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Run lets time pass in ticks of 100 ms, each settled.
func (n *Net) Run(d time.Duration) error {
	for end := n.Now + d; n.Now < end; {
		n.Tick(100 * time.Millisecond)
		if err := n.Settle(); err != nil {
			return err
		}
	}
	return nil
}

// Send has a host send a frame.
func (n *Net) Send(from fabric.MAC, frame []byte) { n.Inject(n.Hosts[from], frame) }

// Inject has a frame come in at a port.
func (n *Net) Inject(at law.Port, frame []byte) {
	if n.Switches[at.Switch].Ports[at.N] {
		n.process(at, frame, 0)
	}
}

const hopsMax = 64

func (n *Net) emit(from law.Port, frame []byte, hops int) {
	if !n.Switches[from.Switch].Ports[from.N] || n.Lossy[from] {
		return
	}
	if far, ok := n.links[from]; ok {
		if n.Switches[far.Switch].Ports[far.N] {
			n.process(far, frame, hops+1)
		}
		return
	}
	for m, at := range n.Hosts {
		if at == from {
			n.Received[m] = append(n.Received[m], slices.Clone(frame))
		}
	}
}

func (n *Net) process(at law.Port, frame []byte, hops int) {
	if hops > hopsMax {
		panic("a frame loops")
	}
	outs, copies := n.Switches[at.Switch].Look(at.N, frame, false)
	for _, k := range copies {
		if n.Switches[at.Switch].Connected {
			n.Events = append(n.Events, &fabric.PacketIn{At: at, Kind: k, Frame: slices.Clone(frame)})
		}
	}
	if len(outs) > 0 {
		n.emit(law.Port{Switch: at.Switch, N: outs[n.Choose(len(outs))]}, frame, hops)
	}
}

// Look returns the ports that a switch could choose for a frame (it sends to one of them), and the reasons for copies to the
// controller. With dead, ports that are down are chosen too, as by a switch that has not noticed yet.
func (s *Switch) Look(in fabric.PortNo, frame []byte, dead bool) (outs []fabric.PortNo, copies []fabric.Kind) {
	for table := 0; ; {
		f, ok := s.best(uint8(table), in, frame)
		if !ok {
			return nil, copies
		}
		if f.Do.Meter != 0 {
			copies = append(copies, f.Kind)
		}
		switch {
		case f.Do.Group != 0:
			for _, p := range s.Groups[f.Do.Group] {
				if dead || s.Ports[p] {
					outs = append(outs, p)
				}
			}
			return outs, copies
		case f.Do.Out == in:
			return nil, copies // OpenFlow 1.3, B.6.3: never back out of the ingress port
		case f.Do.Out != 0:
			return []fabric.PortNo{f.Do.Out}, copies
		case int(f.Do.Goto) <= table:
			return nil, copies
		}
		table = int(f.Do.Goto)
	}
}

func (s *Switch) best(table uint8, in fabric.PortNo, frame []byte) (best fabric.Flow, ok bool) {
	for _, f := range s.Flows {
		if f.Table == table && Matches(f.Match, in, frame) && (!ok || f.Priority > best.Priority) {
			best, ok = f, true
		}
	}
	return best, ok
}

// Matches reports whether a frame matches m. VLAN tags are passed over, as by a switch.
func Matches(m fabric.Match, in fabric.PortNo, frame []byte) bool {
	kind, ip, _ := fabric.Untagged(frame)
	switch {
	case m.InPort != 0 && m.InPort != in,
		m.EthDst != (fabric.MAC{}) && m.EthDst != fabric.MAC(frame[0:6]),
		m.EthSrc != (fabric.MAC{}) && m.EthSrc != fabric.MAC(frame[6:12]),
		m.EthType != 0 && m.EthType != kind:
		return false
	case m.Tuple == (fabric.Tuple{}) && m.TCPFlag == 0:
		return true
	case kind != 0x0800 || len(ip) < 24:
		return false
	}
	t := fabric.Tuple{
		Proto: ip[9], Src: fabric.IPv4(ip[12:16]), Dst: fabric.IPv4(ip[16:20]),
		SrcPort: binary.BigEndian.Uint16(ip[20:]), DstPort: binary.BigEndian.Uint16(ip[22:]),
	}
	if m.TCPFlag != 0 && (t.Proto != 6 || len(ip) < 34 || uint16(ip[33])&m.TCPFlag == 0) {
		return false
	}
	return m.Tuple == (fabric.Tuple{}) || m.Tuple == t
}
