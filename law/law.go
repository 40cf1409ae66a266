package law

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// Switch is a switch of the fabric: an OpenFlow datapath id (OpenFlow 1.3, 7.3.1) or the number that a switch's agent
// is configured with.
type Switch uint64

// String is the number as OpenFlow's tools print it: 16 hexadecimal digits.
func (s Switch) String() string { return fmt.Sprintf("%016x", uint64(s)) }

// Host is a hypervisor. Its number is configured and never taken from a packet.
type Host uint32

// VM is a guest. Its number is configured and never taken from a packet; 0: not known.
type VM uint32

// Owner is a slot in the kernel's table of those who grant. Grants of an owner live while its heartbeat does.
type Owner uint8

// Port is a port of a switch.
type Port struct {
	Switch Switch
	N      uint32 // the switch's own number
}

func (p Port) String() string { return fmt.Sprintf("%v:%d", p.Switch, p.N) }

// Compare orders ports by switch, then by number.
func (p Port) Compare(q Port) int {
	return cmp.Or(cmp.Compare(p.Switch, q.Switch), cmp.Compare(p.N, q.N))
}

// Pair is a guest and an address that it talks to.
type Pair struct {
	VM   VM
	Peer netip.Addr
}

// Flow is one direction of a connection: the direction of its data.
type Flow struct {
	Src, Dst netip.AddrPort
	Proto    uint8 // IANA's number: 6 is TCP, 17 is UDP
}

// Kind is what a Grant limits.
type Kind uint8

// The kinds.
const (
	WindowGrant Kind = iota // Value is a receive window, in bytes
	RateGrant               // Value is a rate, in bit/s
	PauseGrant              // no data; Value is 0
)

// Key says whose traffic a Grant is for. A zero field means any.
type Key struct {
	Pair
	Flow Flow
}

// Grant is what traffic may take. Where several are live for the same traffic, the smallest counts.
type Grant struct {
	Owner Owner
	Kind  Kind
	Key   Key
	Value uint64        // in the unit of Kind
	Lease time.Duration // from when it is received; 0: the limit is released gradually
	Cause uint64        // serial number of the event that it answers
}

// LawAction makes it an Action.
func (Grant) LawAction() {}

// Event is something that a law may want to know. Laws and rooms add their own kinds.
//
// A world may lend what an event points at (a slice, a frame): it is valid until Step returns.
type Event interface{ LawEvent() }

// Action is something that a law wants done. Laws and rooms add their own kinds. What an action points at is valid until
// the law's next Step.
type Action interface{ LawAction() }

// Tick says: the time that Wake asked for has come. It may come late, and between two of them other events come.
type Tick struct{}

// LawEvent makes it an Event.
func (Tick) LawEvent() {}

// Law decides. It has no clock, no goroutine, no randomness of its own and no input or output: the same events at the
// same times give the same actions, in every world.
type Law interface {
	// Step takes one event and appends what is to be done to out. now is the time since the law's world began and never
	// goes back. Events of a kind that the law does not know are ignored, and nothing that was lent is kept.
	Step(now time.Duration, e Event, out []Action) []Action
	// Wake is the time, as now, at which the law wants a Tick though nothing else happens; 0: it wants none. The world
	// asks for it after each Step.
	Wake() time.Duration
}
