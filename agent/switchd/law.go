package switchd

import (
	"context"
	"net/netip"
	"sync"

	"weir/config"
	"weir/datapath/attach"
	"weir/datapath/reading"
	"weir/law"
)

// Law is the interface of a control law to the switch role: its keys of the file, its parameters at a port, its kernel
// programs. The role itself knows no law; cmd/weir passes it one.
type Law interface {
	Name() string  // its key in a file
	Title() string // its name for people

	Keys
	Kernel

	// At returns the law's parameters at a port; keys comes from PortKeys. Errors name the fault, not the port.
	At(site Site, keys any) (Params, error)
	// Changes describes the differences between two configurations of all ports, one per line.
	Changes(was, is *Common) []string
}

// Keys describes a law's keys of the file, and its flags.
type Keys interface {
	// AllKeys and PortKeys return pointers to structs with the default values: the keys of all ports together, and of
	// each port. Their tags are those of JSON and of the JSON schema. The structs are copied by assignment, so they
	// hold no pointer that is written through.
	AllKeys() any
	PortKeys() any
	// CheckAll and CheckPort check what a schema cannot express. at is the path of the law's keys in the file. Keys
	// that the file omits have their default value.
	CheckAll(c *config.Checker, at []string, keys any)
	CheckPort(c *config.Checker, at []string, keys any)
	// Before lists the keys (of all ports, and of each) that were one level higher in version 1 of the file.
	Before() (all, port []string)
	Flags() []Flag
}

// Flag is a flag of `weir switch` that sets a key of the file.
type Flag struct {
	Name, Key, Default, Help string
	Number                   bool // the key's value is a number
	Observe                  bool // `weir observe` has it too
}

// Kernel is the interface to a law's kernel programs.
type Kernel interface {
	// Own locks the pins of a switch for this process; nothing is attached yet. Typed errors: *attach.Busy,
	// *attach.OtherSchema, *attach.MissingFeature, attach.ErrPermission.
	Own(c *Common) (Owner, error)
	// Watch attaches programs to the ports that change no packet and are not pinned.
	Watch(c *Common, ports []LawPort) (Watcher, error)
	// Open reads what is pinned in dir. Errors: fs.ErrNotExist if nothing is pinned; *attach.OtherSchema if its layout
	// is unknown.
	Open(dir string) (View, error)
	// Purge removes what is pinned in dir, and calls before while it still holds the lock. It returns *attach.Busy
	// while a process is running.
	Purge(dir string, before func() error) error
	// CheckTaken returns an error if the law is attached to a port by a switch other than the one pinned in dir.
	CheckTaken(dir string, ports ...attach.PortRef) error

	// Needs lists the kernel features that the programs use. Rehearse has the kernel verify the programs.
	Needs() []attach.Needs
	Rehearse() error
	// Memory returns the capacity of the tables in connections and their size in bytes. keys comes from AllKeys.
	Memory(keys any, processors int) (connections int, bytes uint64, err error)
}

// Common is the configuration that all ports of a switch share.
type Common struct {
	Pin      string // directory
	TakeOver bool   // from a running process
	Renew    bool   // replace tables of another layout
	Version  string
	Scope    []netip.Prefix
	Watch    bool // count what flows do, for a rollback
	Keys     any  // from AllKeys
}

// Site describes a port, as far as a law's parameters depend on it.
type Site struct {
	Rate   law.Rate
	Buffer law.Bytes // below 4.29 GB
	RTT    law.Duration
	MTU    int
}

// Params are a law's parameters at one port. They are plain values that == compares.
type Params interface {
	Figures() Figures
	// With returns the same law with another share of the flows limited.
	With(h Enforcement) Params
	// Differs describes the difference to was, for people.
	Differs(was Params) string
	// Follows reports whether the only difference to was follows from measurements (the BDP).
	Follows(was Params) bool
}

// Enforcement selects the flows of a port that the law limits, and gives the port's bandwidth-delay product.
type Enforcement struct {
	Mode  reading.Hold
	Share uint32  // buckets of reading.Lots that are limited, with HoldPart
	BDP   float64 // bytes
}

// Figures are the values of a law's parameters at a port, in bytes.
type Figures struct {
	Mode                       reading.Hold
	Target, Buffer, Cap, Floor uint32 // target and size of the queue; largest and smallest window of a flow
	MTU                        uint32
}

// LawPort is a port with the law's parameters there.
type LawPort struct {
	attach.PortRef
	Params Params
}

// Owner holds the lock on a switch's pins: no other process can begin, and the law is attached to no port yet. It ends
// when Attach succeeds, or with Release.
type Owner interface {
	Attach([]LawPort) (Running, error)
	Heartbeat() error
	Release() error
}

// Running is a law attached to the ports of a switch. Only Heartbeat may be called from other goroutines.
type Running interface {
	Attach(LawPort) error
	Configure(port string, p Params) error
	ReleasePort(port string) error
	Remove(ports ...string) error
	Gone() []string // ports to which the programs are no longer attached
	On(port string) bool
	Change(*Common) (undo func() error, err error)

	Stats() ([]reading.Stats, error)
	EachFlow(do func(port string, f reading.Flow) bool) error
	Note(port, text string) error // for status; "" removes it
	ClearNotes() error

	Heartbeat() error
	Release(context.Context) error // gradually
	Close(purge bool) error        // detaches the programs; purge: also removes the tables
	Leave() error                  // closes what this process has open; the programs continue
}

// Watcher is a law that only observes.
type Watcher interface {
	PortStats(port string) (reading.Stats, error)
	EachFlow(do func(port string, f reading.Flow) bool) error
	Heartbeat() error
	Close() error
}

// View reads what is pinned of a switch. Only Watch changes anything.
type View interface {
	Read() (*reading.Switch, error)
	Stats(id uint32) (reading.Stats, error)
	EachFlow(names map[uint32]string, do func(port string, f reading.Flow) bool) error
	Note(id uint32) (string, error)
	Watch() error // has the switch count what flows do, for some seconds
	Close() error
}

// Agent implements `weir switch`, `weir status` and `weir observe` with a law.
type Agent struct {
	law  Law
	kind func() *config.Kind[File]
}

// New returns the agent of a law.
func New(l Law) *Agent {
	return &Agent{l, sync.OnceValue(func() *config.Kind[File] { return kindSwitch(l) })}
}

// Law returns the law that New was given.
func (a *Agent) Law() Law { return a.law }
