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

// Law is what a control law needs at a switch: its keys of the file, what they come to at a port, its programs in the
// kernel. The role knows no law; cmd/weir gives it one.
type Law interface {
	Name() string  // its key in a file
	Title() string // what people call it

	Keys
	Kernel

	// At gives the law's parameters at a port; keys are what PortKeys made. Errors name what is wrong, not the port.
	At(site Site, keys any) (Params, error)
	// Changes says of two configurations of all ports what is new, a line each.
	Changes(was, is *Common) []string
}

// Keys are a law's keys of a file, and its flags.
type Keys interface {
	// AllKeys and PortKeys give pointers to structs with the defaults, whose tags are those of JSON and of the JSON schema:
	// of all ports together, and of each. A struct is copied by assignment: it holds no pointer that is written through.
	AllKeys() any
	PortKeys() any
	// CheckAll and CheckPort say what a schema cannot. at is where the law's keys stand; what a file does not say has its
	// default in keys.
	CheckAll(c *config.Checker, at []string, keys any)
	CheckPort(c *config.Checker, at []string, keys any)
	// Before lists the keys of all ports, and of each, that stood one level higher in version 1 of the file.
	Before() (all, port []string)
	Flags() []Flag
}

// Flag is a flag of `weir switch` that stands for a key of the file.
type Flag struct {
	Name, Key, Default, Help string
	Number                   bool // the key's value is a number
	Observe                  bool // `weir observe` has it too
}

// Kernel is a law's programs.
type Kernel interface {
	// Own takes the pins of a switch for this process; nothing is attached yet. Errors that can be told apart: *attach.Busy,
	// *attach.OtherSchema, *attach.MissingFeature, attach.ErrPermission.
	Own(c *Common) (Owner, error)
	// Watch attaches programs to the ports that change nothing and are pinned nowhere.
	Watch(c *Common, ports []LawPort) (Watcher, error)
	// Open reads what is pinned in dir. fs.ErrNotExist: nothing is; *attach.OtherSchema: it cannot be read.
	Open(dir string) (View, error)
	// Purge removes what is pinned in dir, and calls beside before others may take it. *attach.Busy while a process lives.
	Purge(dir string, beside func() error) error
	// CheckTaken is an error where the law is at work on a port for somebody else than the owner of dir.
	CheckTaken(dir string, ports ...attach.PortRef) error

	// Needs lists what the programs ask of a kernel, and Rehearse has it verify them.
	Needs() []attach.Needs
	Rehearse() error
	// Memory says for how many connections the tables are, and what they take in bytes. keys are what AllKeys made.
	Memory(keys any, processors int) (connections int, bytes uint64, err error)
}

// Common is what the ports of a switch have in common.
type Common struct {
	Pin      string // directory
	TakeOver bool   // from a living process
	Renew    bool   // tables of another layout
	Version  string
	Scope    []netip.Prefix
	Watch    bool // what flows do is counted, for a rollback
	Keys     any  // what AllKeys made
}

// Site is a port, as far as a law's parameters follow from it.
type Site struct {
	Rate   law.Rate
	Buffer law.Bytes // below 4.29 GB
	RTT    law.Duration
	MTU    int
}

// Params are a law's parameters at one port. They are a plain value: == compares them.
type Params interface {
	Figures() Figures
	// With gives the same law with another part of the flows held.
	With(h Enforcement) Params
	// Differs says what is new, for people.
	Differs(was Params) string
	// Follows says whether they differ from was in no more than what follows measurements.
	Follows(was Params) bool
}

// Enforcement selects the flows of a port that the law limits, and gives the port's bandwidth-delay product.
type Enforcement struct {
	Mode  reading.Hold
	Share uint32  // of reading.Lots, with HoldPart
	BDP   float64 // bytes
}

// Figures are what a law's parameters come to, in bytes.
type Figures struct {
	Mode                       reading.Hold
	Target, Buffer, Cap, Floor uint32 // the queue to keep and the longest; the largest window of a flow and the least
	MTU                        uint32
}

// LawPort is a port and a law's parameters there.
type LawPort struct {
	attach.PortRef
	Params Params
}

// Owner is this process's ownership of a switch's pins: no other process may begin, and the law is on no port yet. It ends
// when Attach succeeds, or with Release.
type Owner interface {
	Attach([]LawPort) (Running, error)
	Heartbeat() error
	Release() error
}

// Running is a law at work on the ports of a switch. Its methods are for one goroutine, but for Beat.
type Running interface {
	Attach(LawPort) error
	Configure(port string, p Params) error
	ReleasePort(port string) error
	Remove(ports ...string) error
	Gone() []string // ports that the programs are on no more
	On(port string) bool
	Change(*Common) (undo func() error, err error)

	Stats() ([]reading.Stats, error)
	EachFlow(do func(port string, f reading.Flow) bool) error
	Note(port, text string) error // for status; "" takes it back
	ClearNotes() error

	Heartbeat() error
	Release(context.Context) error // gradually
	Close(purge bool) error        // takes the programs off; purge: tables, too
	Leave() error                  // gives back what this process holds; the programs go on
}

// Watcher is a law that only looks.
type Watcher interface {
	PortStats(port string) (reading.Stats, error)
	EachFlow(do func(port string, f reading.Flow) bool) error
	Heartbeat() error
	Close() error
}

// View reads what is pinned of a switch, and changes nothing but by Watch.
type View interface {
	Read() (*reading.Switch, error)
	Stats(id uint32) (reading.Stats, error)
	EachFlow(names map[uint32]string, do func(port string, f reading.Flow) bool) error
	Note(id uint32) (string, error)
	Watch() error // has the switch count what flows do, for a while
	Close() error
}

// Agent is `weir switch`, `weir status` and `weir observe` with a law.
type Agent struct {
	law  Law
	kind func() *config.Kind[File]
}

// New makes the agent of a law.
func New(l Law) *Agent {
	return &Agent{l, sync.OnceValue(func() *config.Kind[File] { return kindSwitch(l) })}
}

// Law is the one that New was given.
func (a *Agent) Law() Law { return a.law }
