package openflow

import (
	"fmt"
	"strconv"
)

// NoBuffer is the buffer id of a message that carries the packet itself (OFP_NO_BUFFER).
const NoBuffer uint32 = 0xffffffff

// NoMaxLen asks for whole packets (OFPCML_NO_BUFFER).
const NoMaxLen uint16 = 0xffff

// PortNo is a port's number (ofp_port_no, specification 7.2.1).
type PortNo uint32

// Reserved port numbers.
const (
	PortMax        PortNo = 0xffffff00
	PortIn         PortNo = 0xfffffff8
	PortTable      PortNo = 0xfffffff9
	PortNormal     PortNo = 0xfffffffa
	PortFlood      PortNo = 0xfffffffb
	PortAll        PortNo = 0xfffffffc
	PortController PortNo = 0xfffffffd
	PortLocal      PortNo = 0xfffffffe
	PortAny        PortNo = 0xffffffff
)

var portNames = [...]string{"IN_PORT", "TABLE", "NORMAL", "FLOOD", "ALL", "CONTROLLER", "LOCAL", "ANY"}

// String returns the number, or the name of a reserved port.
func (p PortNo) String() string {
	if p >= PortIn {
		return portNames[p-PortIn]
	}
	return strconv.FormatUint(uint64(p), 10)
}

// MarshalJSON returns the number, or the name of a reserved port as a string.
func (p PortNo) MarshalJSON() ([]byte, error) { return nameJSON(p.String()), nil }

// GroupID is the number of a group.
type GroupID uint32

// Reserved group numbers.
const (
	GroupMax GroupID = 0xffffff00
	GroupAll GroupID = 0xfffffffc
	GroupAny GroupID = 0xffffffff
)

// String returns the number, ALL or ANY.
func (g GroupID) String() string {
	switch g {
	case GroupAll:
		return "ALL"
	case GroupAny:
		return "ANY"
	}
	return strconv.FormatUint(uint64(g), 10)
}

// MarshalJSON returns the number, or the name as a string.
func (g GroupID) MarshalJSON() ([]byte, error) { return nameJSON(g.String()), nil }

// TableID is the number of a flow table.
type TableID uint8

// Reserved table numbers.
const (
	TableMax TableID = 0xfe
	TableAll TableID = 0xff
)

// String returns the number, or ALL.
func (t TableID) String() string {
	if t == TableAll {
		return "ALL"
	}
	return strconv.Itoa(int(t))
}

// MarshalJSON returns the number, or the name as a string.
func (t TableID) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

// MAC is an Ethernet address.
type MAC [6]byte

// String returns six bytes in hexadecimal with colons.
func (a MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3], a[4], a[5])
}

// MarshalText returns the same as String.
func (a MAC) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// MeterID is the number of a meter.
type MeterID uint32

// Reserved meter numbers.
const (
	MeterMax        MeterID = 0xffff0000
	MeterSlowPath   MeterID = 0xfffffffd
	MeterController MeterID = 0xfffffffe
	MeterAll        MeterID = 0xffffffff
)

// String returns the number, or the name of a virtual meter.
func (m MeterID) String() string {
	switch m {
	case MeterSlowPath:
		return "SLOWPATH"
	case MeterController:
		return "CONTROLLER"
	case MeterAll:
		return "ALL"
	}
	return strconv.FormatUint(uint64(m), 10)
}

// MarshalJSON returns the number, or the name as a string.
func (m MeterID) MarshalJSON() ([]byte, error) { return nameJSON(m.String()), nil }
