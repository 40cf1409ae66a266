// Package fabric has the words that the controller's laws and the worlds around them share: switches, ports
// and addresses as plain values, what happens (events), and what is to be done about it (actions). Nothing
// here knows OpenFlow's bytes, a socket or a clock.
package fabric

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"time"
)

// Law decides. Step takes one event at a time, now being the time since the controller began, and appends
// what is to be done to out. Wake is when it wants a Tick though nothing else happens; 0: not at all. A law
// has no clock, goroutine or randomness of its own: the same events give the same actions.
type Law interface {
	Step(now time.Duration, e Event, out []Action) []Action
	Wake() time.Duration
}

// Switch is a datapath id (OpenFlow 1.3, 7.3.1).
type Switch uint64

func (s Switch) String() string { return fmt.Sprintf("%016x", uint64(s)) }

// Port is a port number of a switch, 1 to 0xffffff00 (OFPP_MAX).
type Port uint32

// PortMax is the last number of a physical port.
const PortMax Port = 0xffffff00

// Point is a port of a switch: an end of a link, or where a host is.
type Point struct {
	Switch Switch
	Port   Port
}

func (p Point) String() string { return fmt.Sprintf("%v:%d", p.Switch, p.Port) }

// Compare orders points by switch, then by port.
func (p Point) Compare(q Point) int {
	return cmp.Or(cmp.Compare(p.Switch, q.Switch), cmp.Compare(p.Port, q.Port))
}

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
	Port Port
	Name string
	MAC  MAC
	Up   bool
}

// Counters are what a switch counted at a port since the port was made.
type Counters struct {
	Port                 Port
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
