package openflow

import (
	"fmt"
	"strconv"
)

// NoBuffer says that a message carries the packet itself (OFP_NO_BUFFER).
const NoBuffer uint32 = 0xffffffff

// NoMaxLen asks for whole packets (OFPCML_NO_BUFFER).
const NoMaxLen uint16 = 0xffff

// PortNo is a port's number (ofp_port_no, specification 7.2.1).
type PortNo uint32

// Ports that stand for something else than one port.
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

// String gives the number, or the name of a reserved port.
func (p PortNo) String() string {
	if p >= PortIn {
		return portNames[p-PortIn]
	}
	return strconv.FormatUint(uint64(p), 10)
}

// MarshalJSON gives the number, or the name of a reserved port as a string.
func (p PortNo) MarshalJSON() ([]byte, error) { return nameJSON(p.String()), nil }

// GroupID names a group.
type GroupID uint32

// Groups that stand for several.
const (
	GroupMax GroupID = 0xffffff00
	GroupAll GroupID = 0xfffffffc
	GroupAny GroupID = 0xffffffff
)

// String gives the number, ALL or ANY.
func (g GroupID) String() string {
	switch g {
	case GroupAll:
		return "ALL"
	case GroupAny:
		return "ANY"
	}
	return strconv.FormatUint(uint64(g), 10)
}

// MarshalJSON gives the number, or the name as a string.
func (g GroupID) MarshalJSON() ([]byte, error) { return nameJSON(g.String()), nil }

// TableID names a flow table.
type TableID uint8

// Tables that stand for something else than one table.
const (
	TableMax TableID = 0xfe
	TableAll TableID = 0xff
)

// String gives the number, or ALL.
func (t TableID) String() string {
	if t == TableAll {
		return "ALL"
	}
	return strconv.Itoa(int(t))
}

// MarshalJSON gives the number, or the name as a string.
func (t TableID) MarshalJSON() ([]byte, error) { return nameJSON(t.String()), nil }

// MAC is an Ethernet address.
type MAC [6]byte

// String gives six bytes in hexadecimal with colons.
func (a MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3], a[4], a[5])
}

// MarshalText gives the same as String.
func (a MAC) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// MeterID names a meter.
type MeterID uint32

// Meters that stand for something else than one meter.
const (
	MeterMax        MeterID = 0xffff0000
	MeterSlowPath   MeterID = 0xfffffffd
	MeterController MeterID = 0xfffffffe
	MeterAll        MeterID = 0xffffffff
)

// String gives the number, or the name of a virtual meter.
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

// MarshalJSON gives the number, or the name as a string.
func (m MeterID) MarshalJSON() ([]byte, error) { return nameJSON(m.String()), nil }
