package controller

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"weir/law/fabric"
	"weir/openflow"
)

// Copies to the controller go through a meter that limits only the copies. OpenFlow 1.3 has no such meter: its meter instruction
// drops the packet itself, so that a flood of SYNs would keep honest hosts from connecting. Open vSwitch has an action of its own
// for it, NXAST_CONTROLLER2, with the meter as a property.
const (
	experimenterNicira = 0x00002320
	subtypeController2 = 37
	propertyMaxLen     = 0
	propertyMeter      = 5
	copyBytes          = 256 // of a frame; ARP, LLDP and TCP's headers with all options are shorter
	wholeFrame         = openflow.NoMaxLen
)

// copyAction sends a copy to the controller through a meter.
func copyAction(meter uint32, maxLen uint16) openflow.Action {
	b := binary.BigEndian.AppendUint16(nil, subtypeController2)
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, propertyMaxLen)
	b = binary.BigEndian.AppendUint16(b, 6)
	b = binary.BigEndian.AppendUint16(b, maxLen)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, propertyMeter)
	b = binary.BigEndian.AppendUint16(b, 8)
	b = binary.BigEndian.AppendUint32(b, meter)
	return openflow.ActionExperimenter{Experimenter: experimenterNicira, Data: b}
}

// readCopyAction returns the meter of an action that copyAction made.
func readCopyAction(a openflow.ActionExperimenter) (meter uint32, ok bool) {
	if a.Experimenter != experimenterNicira || len(a.Data) < 8 || binary.BigEndian.Uint16(a.Data) != subtypeController2 {
		return 0, false
	}
	for b := a.Data[8:]; len(b) >= 4; {
		kind, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if n < 4 || n > len(b) {
			return 0, false
		}
		if kind == propertyMeter && n == 8 {
			meter, ok = binary.BigEndian.Uint32(b[4:]), true
		}
		b = b[min((n+7)&^7, len(b)):]
	}
	return meter, ok
}

// copied returns how many bytes of a frame the controller needs.
func copied(k fabric.Kind) uint16 {
	switch k {
	case fabric.SYN, fabric.FIN, fabric.RST, fabric.UnknownSource:
		return copyBytes
	}
	return wholeFrame
}

// match converts a match to OpenFlow.
func match(m fabric.Match) openflow.Match {
	var out openflow.Match
	none := openflow.MAC{}
	add := func(f openflow.Field) { out = append(out, f) }
	if m.InPort != 0 {
		add(openflow.InPort(openflow.PortNo(m.InPort)))
	}
	if m.EthDst != (fabric.MAC{}) {
		add(openflow.EthDst(openflow.MAC(m.EthDst), none))
	}
	if m.EthSrc != (fabric.MAC{}) {
		add(openflow.EthSrc(openflow.MAC(m.EthSrc), none))
	}
	if m.EthType != 0 {
		add(openflow.EthType(m.EthType))
	}
	if m.TCPFlag != 0 {
		add(openflow.IPProto(protoTCP))
		add(openflow.TCPFlags(m.TCPFlag, m.TCPFlag))
	}
	if t := m.Tuple; t != (fabric.Tuple{}) {
		add(openflow.IPProto(t.Proto))
		add(openflow.IPv4Src(netip.AddrFrom4(t.Src), netip.Addr{}))
		add(openflow.IPv4Dst(netip.AddrFrom4(t.Dst), netip.Addr{}))
		if t.Proto == protoTCP {
			add(openflow.TCPSrc(t.SrcPort))
			add(openflow.TCPDst(t.DstPort))
		} else {
			add(openflow.UDPSrc(t.SrcPort))
			add(openflow.UDPDst(t.DstPort))
		}
	}
	return out
}

const (
	protoTCP = 6
	protoUDP = 17
)

// readMatch is the inverse of match. False: Weir makes no such match.
func readMatch(m openflow.Match) (out fabric.Match, ok bool) {
	proto := uint8(0)
	for i := range m {
		f := &m[i]
		if f.HasMask && f.ID != openflow.FieldTCPFlags {
			return out, false
		}
		switch f.ID {
		case openflow.FieldInPort:
			out.InPort = fabric.PortNo(f.Uint())
		case openflow.FieldEthDst:
			out.EthDst = fabric.MAC(f.MAC())
		case openflow.FieldEthSrc:
			out.EthSrc = fabric.MAC(f.MAC())
		case openflow.FieldEthType:
			out.EthType = uint16(f.Uint())
		case openflow.FieldIPProto:
			proto = uint8(f.Uint())
		case openflow.FieldTCPFlags:
			out.TCPFlag = uint16(f.Uint())
		case openflow.FieldIPv4Src:
			out.Tuple.Src = f.Addr().As4()
		case openflow.FieldIPv4Dst:
			out.Tuple.Dst = f.Addr().As4()
		case openflow.FieldTCPSrc, openflow.FieldUDPSrc:
			out.Tuple.SrcPort = uint16(f.Uint())
		case openflow.FieldTCPDst, openflow.FieldUDPDst:
			out.Tuple.DstPort = uint16(f.Uint())
		default:
			return out, false
		}
	}
	if out.Tuple != (fabric.Tuple{}) {
		out.Tuple.Proto = proto
	}
	return out, true
}

// instructions converts the action of a flow to OpenFlow.
func instructions(f fabric.Flow) (out openflow.Instructions) {
	var actions openflow.Actions
	if f.Do.Meter != 0 {
		actions = append(actions, copyAction(f.Do.Meter, copied(f.Kind)))
	}
	if f.Do.Group != 0 {
		actions = append(actions, openflow.ActionGroup{GroupID: openflow.GroupID(f.Do.Group)})
	}
	if f.Do.Out != 0 {
		actions = append(actions, openflow.ActionOutput{Port: openflow.PortNo(f.Do.Out)})
	}
	if len(actions) > 0 {
		out = append(out, openflow.InstructionApplyActions{Actions: actions})
	}
	if f.Do.Goto != 0 {
		out = append(out, openflow.InstructionGotoTable{TableID: openflow.TableID(f.Do.Goto)})
	}
	return out
}

// readInstructions is the inverse of instructions.
func readInstructions(is openflow.Instructions) (do fabric.Do, ok bool) {
	for _, i := range is {
		switch i := i.(type) {
		case openflow.InstructionGotoTable:
			do.Goto = uint8(i.TableID)
		case openflow.InstructionApplyActions:
			for _, a := range i.Actions {
				switch a := a.(type) {
				case openflow.ActionOutput:
					do.Out = fabric.PortNo(a.Port)
				case openflow.ActionGroup:
					do.Group = uint32(a.GroupID)
				case openflow.ActionExperimenter:
					if do.Meter, ok = readCopyAction(a); !ok {
						return do, false
					}
				default:
					return do, false
				}
			}
		default:
			return do, false
		}
	}
	return do, true
}

// flowMod returns the message that adds, changes or removes a flow of Weir's.
func flowMod(f fabric.Flow, command openflow.FlowModCommand) *openflow.FlowMod {
	m := &openflow.FlowMod{
		Cookie: f.Kind.Cookie(), TableID: openflow.TableID(f.Table), Command: command, Priority: f.Priority,
		BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny, Match: match(f.Match),
	}
	if command == openflow.FlowDeleteStrict {
		m.CookieMask = fabric.CookieMask // a foreign flow with the same match stays
		return m
	}
	m.IdleTimeout = f.Idle
	if f.Idle > 0 {
		m.Flags = openflow.FlowSendRemoved
	}
	m.Instructions = instructions(f)
	return m
}

// readFlow converts a flow that was found on a switch. ours: it has Weir's cookie; ok: Weir makes such flows.
func readFlow(s *openflow.FlowStats) (f fabric.Flow, ours, ok bool) {
	f.Table, f.Priority, f.Idle = uint8(s.TableID), s.Priority, s.IdleTimeout
	f.Kind, ours = fabric.KindOf(s.Cookie)
	var ok1, ok2 bool
	f.Match, ok1 = readMatch(s.Match)
	f.Do, ok2 = readInstructions(s.Instructions)
	return f, ours, ok1 && ok2
}

// groupMod returns the message that adds, changes or removes a group. A bucket watches its port: so Open vSwitch skips ports that
// are down before the controller knows it, and without a controller.
func groupMod(g fabric.Group, command openflow.GroupCommand) *openflow.GroupMod {
	m := &openflow.GroupMod{Command: command, Type: openflow.GroupTypeSelect, GroupID: openflow.GroupID(g.ID)}
	for _, p := range g.Ports {
		m.Buckets = append(m.Buckets, openflow.Bucket{
			Weight: 1, WatchPort: openflow.PortNo(p), WatchGroup: openflow.GroupAny,
			Actions: openflow.Actions{openflow.ActionOutput{Port: openflow.PortNo(p)}},
		})
	}
	return m
}

func readGroup(d *openflow.GroupDesc) (g fabric.Group) {
	g.ID = uint32(d.GroupID)
	for _, b := range d.Buckets {
		for _, a := range b.Actions {
			if out, is := a.(openflow.ActionOutput); is {
				g.Ports = append(g.Ports, fabric.PortNo(out.Port))
			}
		}
	}
	slices.Sort(g.Ports)
	return g
}

func meterMod(a fabric.SetMeter) *openflow.MeterMod {
	command := openflow.MeterModify
	if a.New {
		command = openflow.MeterAdd
	}
	return &openflow.MeterMod{
		Command: command, Flags: openflow.MeterFlagPktps | openflow.MeterFlagBurst, MeterID: openflow.MeterID(a.Meter.ID),
		Bands: []openflow.Band{{Type: openflow.BandDrop, Rate: a.Meter.Rate, BurstSize: a.Meter.Burst}},
	}
}

func readMeter(c *openflow.MeterConfig) fabric.Meter {
	m := fabric.Meter{ID: uint32(c.MeterID)}
	if len(c.Bands) == 1 && c.Flags&openflow.MeterFlagPktps != 0 {
		m.Rate, m.Burst = c.Bands[0].Rate, c.Bands[0].BurstSize
	}
	return m
}

func readPort(p *openflow.Port) fabric.PortInfo {
	return fabric.PortInfo{
		Port: fabric.PortNo(p.PortNo), Name: p.Name, MAC: fabric.MAC(p.HwAddr),
		Up: p.Config&openflow.PortDown == 0 && p.State&openflow.PortLinkDown == 0,
	}
}

func packetOut(a fabric.PacketOut) *openflow.PacketOut {
	m := &openflow.PacketOut{BufferID: openflow.NoBuffer, InPort: openflow.PortController, Data: a.Frame}
	for _, p := range a.Ports {
		m.Actions = append(m.Actions, openflow.ActionOutput{Port: openflow.PortNo(p)})
	}
	return m
}

// foreign describes a flow in one of Weir's tables that is not Weir's. A match may have 64 KB: its text is cut.
func foreign(s *openflow.FlowStats) string {
	return fmt.Sprintf("table %d priority %d cookie %#x %.200s", s.TableID, s.Priority, s.Cookie, s.Match)
}
