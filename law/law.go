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

// Owner is an index in the kernel's table of granting processes. Grants of an owner are valid while its heartbeat arrives.
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
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

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
	MarksGrant              // limits nothing: marked packets of a VM, for the law at its host (law/telemetry, Marked)
)

func (k Kind) String() string {
	if k > MarksGrant {
		return fmt.Sprint("kind ", uint8(k))
	}
	return [...]string{WindowGrant: "window", RateGrant: "rate", PauseGrant: "pause", MarksGrant: "marks"}[k]
}

// Key selects the traffic that a Grant is for. A zero field means any.
type Key struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	Pair
	Flow Flow
}

// Grant limits traffic. Where several are valid for the same traffic, the smallest counts.
type Grant struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	Owner Owner
	Kind  Kind
	Key   Key
	Value uint64        // in the unit of Kind
	Lease time.Duration // validity, from when it is received; 0: the limit is released gradually
	Cause uint64        // serial number of the event that it answers
}

// LawAction makes it an Action.
func (Grant) LawAction() {}

// LeaseMost is how long an agent lets a grant live at most, whatever its lease: the limits of a controller that dies end by then.
// It is real time, so it does not follow an experiment's time_scale.
const LeaseMost = time.Second

// Renewal returns how often a law must send a grant with this lease again: three times in the time that the grant lives.
func Renewal(lease time.Duration) time.Duration { return min(lease, LeaseMost) / 3 }

// Event is something that a law may want to know. Laws and rooms add their own kinds, each a pointer to a struct, so that
// two events can be compared.
//
// The memory that an event points at (a slice, a frame) may be borrowed: it is valid until Step returns.
type Event interface{ LawEvent() }

// Action is something that a law wants done. Laws and rooms add their own kinds. The memory that an action points at is
// valid until the law's next Step.
type Action interface{ LawAction() }

// Tick reports that the time of Wake has come. It may be late, and other events may come between two ticks.
type Tick struct{}

// LawEvent makes it an Event.
func (Tick) LawEvent() {}

// Law decides. It has no clock, no goroutine, no randomness of its own and no input or output: the same events at the
// same times give the same actions, in every world.
type Law interface {
	// Step takes one event and appends the law's actions to out. now is the time since the law's world began and never
	// decreases. Step ignores events of a kind that the law does not know, and keeps no borrowed memory.
	Step(now time.Duration, e Event, out []Action) []Action
	// Wake returns the time, on the clock of now, at which the law wants a Tick even if nothing else happens; 0: never. The
	// world calls it after each Step.
	Wake() time.Duration
}

// Explainer is a Law that can say why it gave the actions of its last Step.
type Explainer interface {
	// Explain appends a few words to b, without allocation: "24 flows began at port 3, 350400 B are predicted of 85300 B". The
	// world calls it after a Step that gave actions.
	Explain(b []byte) []byte
}
