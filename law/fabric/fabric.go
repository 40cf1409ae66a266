// Package fabric has the words that the controller's laws and the worlds around them share: ports and
// addresses as plain values, what happens (events), and what is to be done about it (actions). Nothing
// here knows OpenFlow's bytes, a socket or a clock.
package fabric

import (
	"encoding/hex"
	"fmt"
	"net/netip"
)

// PortNo is a port number of a switch, 1 to 0xffffff00 (OFPP_MAX): the N of a law.Port.
type PortNo = uint32

// PortMax is the last number of a physical port.
const PortMax PortNo = 0xffffff00

// MAC is an Ethernet address; the zero MAC stands for none.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Multicast tells group addresses, broadcast among them.
func (m MAC) Multicast() bool { return m[0]&1 != 0 }

// Broadcast is everybody's address.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// IPv4 is an address; the zero one stands for none.
type IPv4 [4]byte

func (a IPv4) String() string { return netip.AddrFrom4(a).String() }

// Tuple names one direction of a flow.
type Tuple struct {
	Proto            uint8 // 6: TCP, 17: UDP
	Src, Dst         IPv4
	SrcPort, DstPort uint16
}

// Reverse is the other direction.
func (t Tuple) Reverse() Tuple {
	return Tuple{Proto: t.Proto, Src: t.Dst, Dst: t.Src, SrcPort: t.DstPort, DstPort: t.SrcPort}
}

func (t Tuple) String() string {
	return fmt.Sprintf("%d %v:%d > %v:%d", t.Proto, t.Src, t.SrcPort, t.Dst, t.DstPort)
}

// PortInfo is what a switch says of a port.
type PortInfo struct {
	Port PortNo
	Name string
	MAC  MAC
	Up   bool
}

// Counters are what a switch counted at a port since the port was made.
type Counters struct {
	Port                 PortNo
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
	RxErrors, TxErrors   uint64
}

// Kind says what a flow is for, and so why a packet came to the controller. It is part of the flow's cookie.
type Kind uint8

// What flows are for. The packets of those with a meter come to the controller.
const (
	Other         Kind = iota
	Probe              // link discovery: to the controller
	ARP                // broadcast ARP: to the controller
	SYN                // TCP segments: copied to the controller where they enter the fabric
	FIN                //
	RST                //
	Source             // a host where it belongs
	UnknownSource      // a sender that is not known there: copied to the controller
	Link               // what comes in from another switch of ours
	Pinned             // one flow on a path of its own
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

// Cookies of Weir's flows carry "WEIR" in the upper half, so that no other flow of a switch is taken for
// ours. Groups and meters have no cookie: ours are those with numbers in these ranges.
const (
	CookieMask  uint64 = 0xffffffff_00000000
	cookieMagic uint64 = 0x57454952_00000000

	GroupBase  uint32 = 0x57000000 // to 0x57ffffff
	MeterFirst uint32 = 0x5701     // 0x5701 to 0x57ff
	MeterLast  uint32 = 0x57ff
)

// Cookie is that of our flows of this kind.
func (k Kind) Cookie() uint64 { return cookieMagic | uint64(k) }

// KindOf reads a cookie; false: the flow is not ours.
func KindOf(cookie uint64) (Kind, bool) {
	if cookie&CookieMask != cookieMagic {
		return Other, false
	}
	return Kind(cookie), true
}

// OurGroup tells the numbers of groups that are Weir's.
func OurGroup(id uint32) bool { return id&0xff000000 == GroupBase }

// OurMeter tells the numbers of meters that are Weir's.
func OurMeter(id uint32) bool { return id >= MeterFirst && id <= MeterLast }

// Hex prints a frame's beginning, for logs and scripted tests.
func Hex(frame []byte) string { return hex.EncodeToString(frame) }
