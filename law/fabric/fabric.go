// Package fabric has the types that the controller's laws and their worlds share: ports and addresses as plain values,
// events, and actions. It does not depend on OpenFlow's encoding, on sockets or on a clock.
package fabric

import (
	"fmt"
	"net/netip"
)

// PortNo is a port number of a switch, 1 to 0xffffff00 (OFPP_MAX) or PortLocal: the N of a law.Port.
type PortNo = uint32

// PortMax is the last number of a physical port. PortLocal is the port of the switch's own machine (OFPP_LOCAL), where the machine is a
// host: of a bridge br0 of Open vSwitch it is the device br0.
const (
	PortMax   PortNo = 0xffffff00
	PortLocal PortNo = 0xfffffffe
)

// Usable reports whether frames can come in at a port of this number, so that hosts may be there.
func Usable(p PortNo) bool { return p > 0 && p <= PortMax || p == PortLocal }

// MAC is an Ethernet address; zero: none.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Multicast reports whether m is a group address. Broadcast is one.
func (m MAC) Multicast() bool { return m[0]&1 != 0 }

// Broadcast is the address of all hosts.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// IPv4 is an address; zero: none.
type IPv4 [4]byte

func (a IPv4) String() string { return netip.AddrFrom4(a).String() }

// Tuple identifies one direction of a connection.
type Tuple struct {
	Proto            uint8 // 6: TCP, 17: UDP
	Src, Dst         IPv4
	SrcPort, DstPort uint16
}

// Reverse returns the other direction.
func (t Tuple) Reverse() Tuple {
	return Tuple{Proto: t.Proto, Src: t.Dst, Dst: t.Src, SrcPort: t.DstPort, DstPort: t.SrcPort}
}

func (t Tuple) String() string {
	return fmt.Sprintf("%d %v:%d > %v:%d", t.Proto, t.Src, t.SrcPort, t.Dst, t.DstPort)
}

// PortInfo describes a port as its switch reports it.
type PortInfo struct {
	Port PortNo
	Name string
	MAC  MAC
	Up   bool
}

// Counters holds a port's counters since the port was made.
type Counters struct {
	Port                 PortNo
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
	RxErrors, TxErrors   uint64
}

// Kind is the purpose of a flow, and so the reason why a packet came to the controller. It is part of the flow's cookie.
type Kind uint8

// The purposes of flows. Flows with a meter send their packets to the controller.
const (
	Other         Kind = iota
	Probe              // link discovery: to the controller
	ARP                // broadcast ARP: to the controller
	SYN                // TCP segments: copied to the controller where they enter the fabric
	FIN                //
	RST                //
	Source             // frames from a host at its own port
	UnknownSource      // frames from a host that is not known at this port: copied to the controller
	Link               // frames from another switch of this fabric
	Pinned             // one connection on a path of its own
	HostHere           // to a host on this switch
	HostThere          // to a host on another one
	Miss               // destination not known: to the controller
	Pass               // to the next table
)

var kindNames = [...]string{
	"other", "probe", "arp", "syn", "fin", "rst", "source", "unknown-source", "link", "pinned", "host", "remote", "miss", "pass",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Cookies of Weir's flows have "WEIR" in the upper half. Flows with other cookies belong to others. Groups and meters have no
// cookie: Weir's have numbers in these ranges.
const (
	CookieMask  uint64 = 0xffffffff_00000000
	cookieMagic uint64 = 0x57454952_00000000

	GroupBase  uint32 = 0x57000000 // to 0x57ffffff
	MeterFirst uint32 = 0x5701     // 0x5701 to 0x57ff
	MeterLast  uint32 = 0x57ff
)

// Cookie returns the cookie of Weir's flows of this kind.
func (k Kind) Cookie() uint64 { return cookieMagic | uint64(k) }

// KindOf returns the kind in a cookie; false: the flow is not Weir's.
func KindOf(cookie uint64) (Kind, bool) {
	if cookie&CookieMask != cookieMagic {
		return Other, false
	}
	return Kind(cookie), true
}

// OurGroup reports whether a group number is in Weir's range.
func OurGroup(id uint32) bool { return id&0xff000000 == GroupBase }

// OurMeter reports whether a meter number is in Weir's range.
func OurMeter(id uint32) bool { return id >= MeterFirst && id <= MeterLast }
