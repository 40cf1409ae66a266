package fabric

import (
	"fmt"
	"strings"
)

// Flow is an entry of a switch's flow tables that Weir makes.
type Flow struct {
	FlowKey
	Do   Do
	Kind Kind
	Idle uint16 // seconds without a packet after which the switch removes it and reports that; 0: never
}

// FlowKey identifies a flow of a switch.
type FlowKey struct {
	Table    uint8
	Priority uint16
	Match    Match
}

// Match selects packets. A zero field matches anything.
type Match struct {
	InPort         PortNo
	EthSrc, EthDst MAC
	EthType        uint16
	Tuple          Tuple  // whole, of an IPv4 packet
	TCPFlag        uint16 // set in a TCP segment over IPv4
}

// Do is the action for a packet that matches: a copy to the controller, then out of a port, through a group, or on to another
// table. All zero: dropped.
type Do struct {
	Meter uint32 // a copy goes to the controller through this meter; the packet itself does not wait for it
	Out   PortNo
	Group uint32
	Goto  uint8
}

// Group is one of several ports, chosen by a hash of the flow's five-tuple (OpenFlow 1.3, 5.6.1: select).
// A port that is down is not chosen. No port: dropped.
type Group struct {
	ID    uint32
	Ports []PortNo // sorted
}

// Meter limits the packets to the controller.
type Meter struct {
	ID    uint32
	Rate  uint32 // packets a second
	Burst uint32 // packets
}

func (m Match) String() string {
	var w []string
	add := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	if m.InPort != 0 {
		add("in=%d", m.InPort)
	}
	if m.EthSrc != (MAC{}) {
		add("from=%v", m.EthSrc)
	}
	if m.EthDst != (MAC{}) {
		add("to=%v", m.EthDst)
	}
	if m.EthType != 0 {
		add("type=%04x", m.EthType)
	}
	if m.Tuple != (Tuple{}) {
		add("flow=%v", m.Tuple)
	}
	if m.TCPFlag != 0 {
		add("tcp=%#x", m.TCPFlag)
	}
	if len(w) == 0 {
		return "any"
	}
	return strings.Join(w, ",")
}

func (d Do) String() string {
	var w []string
	add := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	if d.Meter != 0 {
		add("copy(%#x)", d.Meter)
	}
	if d.Group != 0 {
		add("group %#x", d.Group)
	}
	if d.Out != 0 {
		add("out %d", d.Out)
	}
	if d.Goto != 0 {
		add("table %d", d.Goto)
	}
	if len(w) == 0 {
		return "drop"
	}
	return strings.Join(w, ", ")
}

func (k FlowKey) String() string { return fmt.Sprintf("%d/%d %v", k.Table, k.Priority, k.Match) }
