package switchd

import (
	"context"
	"net/netip"
	"time"

	"weir/config"
	"weir/datapath/attach"
	"weir/datapath/reading"
	"weir/law"
)

// Law is the interface of a control law to the switch role. The role itself knows no law; cmd/weir passes it a list.
type Law interface {
	// Facts returns what is known of the law without running it. Each call returns new values.
	Facts() *Facts
	// Check checks what a schema cannot express. keys has the type of Facts.All or of Facts.Port, and at is its path in
	// the file. Keys that the file omits have their default value.
	Check(c *config.Checker, at []string, keys any)
	// At returns the law's parameters at a port; keys has the type of Facts.Port. Errors name the fault, not the port.
	At(site Site, keys any) (Params, error)

	// Own locks the pins of a switch for this process; nothing is attached yet. Typed errors: *attach.Busy,
	// *attach.OtherSchema, *attach.MissingFeature, attach.ErrPermission.
	Own(c *Common) (Running, error)
	// Open reads what is pinned in dir. Errors: fs.ErrNotExist if nothing is pinned; *attach.OtherSchema if its layout
	// is unknown.
	Open(dir string) (View, error)
	// Purge removes what is pinned in dir, and calls before while it still holds the lock. It returns *attach.Busy
	// while a process is running.
	Purge(dir string, before func() error) error
	// CheckTaken returns an error if the law is attached to a port by a switch other than the one pinned in dir.
	CheckTaken(dir string, ports ...attach.PortRef) error

	// Rehearse has the kernel verify the programs.
	Rehearse() error
	// Memory returns the capacity of the tables in connections and their size in bytes. keys has the type of Facts.All.
	Memory(keys any, processors int) (connections int, bytes uint64, err error)
}

// Facts are what is known of a law without running it.
type Facts struct {
	Spec  *law.Spec // its Name is the law's key in a file; no other law of the switch may have its exclusive claims
	Title string    // its name for people
	// All and Port point to structs with the default values: the keys of all ports together, and of each port. Their
	// tags are those of JSON and of the JSON schema. The structs are copied by assignment, so they hold no pointer that is
	// written through. A field with a method String is described by it.
	All, Port any
	// MovedAll and MovedPort list the keys (of all ports, and of each) that were one level higher in version 1 of the file.
	MovedAll, MovedPort []string
	Flags               []Flag
	Needs               []attach.Needs // kernel features that the programs use
}

// Flag is a flag of `weir switch` that sets a key of the file.
type Flag struct {
	Name, Key, Default, Help string
	Number                   bool // the key's value is a number
	Observe                  bool // `weir observe` has it too
}

// Common is the configuration of a law that all ports of a switch share.
type Common struct {
	Pin      string // directory; "": nothing is pinned, and all ends with the process
	TakeOver bool   // from a running process
	Renew    bool   // replace tables of another layout
	Version  string
	Scope    []netip.Prefix
	Watch    bool // count what flows do, for a rollback
	Observe  bool // change no packet; nothing is pinned
	Keys     any  // with the type of Facts.All
}

// Site describes a port, as far as a law's parameters depend on it.
type Site struct {
	Rate   law.Rate
	Buffer law.Bytes // below 4.29 GB
	RTT    law.Duration
	MTU    int
	// LineBytes is what a frame takes on the line in addition: LineBytes on Ethernet, 0 behind a shaper, which does not
	// count it.
	LineBytes uint32
}

// LineBytes is what an Ethernet frame takes on the line in addition to the bytes that the kernel counts: preamble,
// checksum and gap.
const LineBytes = 24

// AllFlows is a law some of whose keys work only while all flows of a port are limited.
type AllFlows interface {
	// NeedsAllFlows returns the name of such a key that is switched on, "" if none is. keys has the type of Facts.All.
	NeedsAllFlows(keys any) (key string)
}

// WholePorts is a law that acts on all packets of a port, and counts no flows: it has no canary and no rollback.
type WholePorts interface{ WholePorts() }

// Params are a law's parameters at one port. They are plain values that == compares.
type Params interface {
	Figures() Figures
	// With returns the same law with another share of the flows limited.
	With(h Enforcement) Params
	// Differs describes the difference to was, for people; "": the only difference follows from measurements (the BDP).
	Differs(was Params) string
}

// Enforcement selects the flows of a port that the law limits, and gives the port's bandwidth-delay product.
type Enforcement struct {
	Mode  reading.Mode
	Share uint32  // buckets of reading.Buckets that are limited, with EnforcePart
	BDP   float64 // bytes
}

// Figures are the values of a law's parameters at a port. Sizes are in bytes.
type Figures struct {
	Mode                       reading.Mode
	Target, Buffer, Cap, Floor uint32        // target and size of the queue; largest and smallest window of a flow
	LongestWait                time.Duration // of a packet for its credit
	MTU                        uint32
}

// LawPort is a port with the law's parameters there.
type LawPort struct {
	attach.PortRef
	Params Params
}

// Running is a law at a switch whose pins it has locked: no other process can begin there. Only Heartbeat may be called
// from other goroutines.
type Running interface {
	// Attach attaches the law to ports; a port that has it already gets these parameters. The first call also takes over
	// what an earlier process left pinned, and gives up the pinned ports that are not listed. After an error of the first
	// call only End may follow; after an error of another call, nothing has changed at a port that is alone in it.
	Attach(ports ...LawPort) error
	ReleasePort(port string) error // gradually; the law stays attached, and Attach limits flows again
	Remove(ports ...string) error
	Gone() []string // ports to which the programs are no longer attached
	Change(*Common) (undo func() error, err error)

	Stats(ports ...string) ([]reading.Stats, error) // none listed: all
	EachFlow(do func(port string, f reading.Flow) bool) error
	Note(port, text string) error // for status; text "" removes it, and port "" all

	Heartbeat() error
	Release(context.Context) error // all ports, gradually
	End(how Ending) error          // once; before the first Attach it gives up the pins, however it is called
}

// Ending is how Running ends.
type Ending uint8

// The endings.
const (
	Leave  Ending = iota // close what this process has open; pinned programs continue
	Detach               // detach the programs; pinned tables stay for the next process
	Purge                // detach the programs and remove the tables
)

// View reads what is pinned of a switch. Only Watch changes anything.
type View interface {
	Read() (*reading.Switch, error)
	Stats(id uint32) (reading.Stats, error)
	EachFlow(names map[uint32]string, do func(port string, f reading.Flow) bool) error
	Watch() error // has the switch count what flows do, for some seconds
	Close() error
}
