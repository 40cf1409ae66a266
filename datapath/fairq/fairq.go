// Package fairq loads FairQ's switch program, attaches it to ports, and reads its state from the kernel. The
// law is core/fairq/fairq.h and core/window.h; the program is bpf/fairq/fairq.bpf.c.
package fairq

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
	"weir/datapath/park"
)

// Gain is how strongly the windows react to the queue (FQ-10).
type Gain uint8

// SlowStart is what the probing step of 2 MSS is added to (FQ-11).
type SlowStart uint8

// Variant is the paper's software or its hardware.
type Variant uint8

// Count is the rule by which flows of a port are counted.
type Count uint8

// Scale is the source of the window scale of a flow.
type Scale uint8

// Shrink is whether the right edge of a window may move to the left.
type Shrink uint8

// Signed is the policy for signed segments (TCP-MD5, TCP-AO), whose windows cannot be rewritten. In all modes
// they are counted by their sources, and their flows count as flows of the port. If a SYN of a connection was
// not signed, its ends accept unsigned segments, so its segments are rewritten whatever options they have.
type Signed uint8

// The values are those of core/fairq/fairq.h, core/window.h, bpf/fairq/flows.h and bpf/fairq/signed.h.
const (
	GainPaper Gain = 0 // an update adds MSS * mean(κ) to all windows together
	GainOVS   Gain = 1 // an update adds mean(αB - Q), as the authors' code does

	SlowStartAggregate SlowStart = 0 // to all windows together
	SlowStartPerFlow   SlowStart = 1 // to each window, as printed
	SlowStartOff       SlowStart = 2

	Alg1       Variant = 0
	FairSwitch Variant = 1 // 32-sample mean of Q, windows from αB/β on each change of β

	CountActive    Count = 0 // directions that sent data recently
	CountHandshake Count = 1 // the paper's register: SYN-ACKs less FINs
	CountOpening   Count = 2 // as CountActive; SYN-ACKs are limited to the share with open handshakes included

	ScaleLearn Scale = 0 // from the SYNs
	ScaleShim  Scale = 1 // from the SYNs; if they were not seen, from the reserved bits (shim.Attach)
	// Every SYN is changed to announce the same scale, and every window is converted to it. It cannot fail
	// open: connections keep the announced scale for as long as they live. Their windows are wrong when the
	// conversion ends (Detach, Close, a process that dies without Pin, another Scale). Both directions of a
	// connection must cross the switch, each once.
	ScaleUnify Scale = 2

	ShrinkAllow Shrink = 0
	ShrinkAvoid Shrink = 1

	SignedPass  Signed = 0 // they pass unchanged
	SignedLimit Signed = 1 // data beyond the window that a flow of the port is granted is dropped
	SignedDrop  Signed = 2 // they are dropped
)

// Law configures the law of one port: struct fairq_config of core/fairq/fairq.h.
type Law struct {
	TargetBytes uint32        // αB, 1 or more
	BufferBytes uint32        // B: a longer queue counts as B; 0: unknown
	Tick        time.Duration // T, 10 µs or more
	Period      time.Duration // M*T: time between updates, T .. 1 s
	FloorBytes  uint32        // least window of a flow; 0: the flow's own MSS (FQ-12)
	CapBytes    uint32        // largest window of a flow, near C*RTT + αB; 0: none
	StartBytes  uint32        // sum of all windows while the port has no flows; 0: TargetBytes
	Gain        Gain
	SlowStart   SlowStart
	Variant     Variant
	// Active is how long a flow counts after it last sent data: at least 10 ms, or 4 (RTT + αB/C) if that is
	// longer; at most MaxActive. 0: 10 ms.
	Active time.Duration
	// Idle: with CountHandshake, a port without data for this time has no flows. At most MaxActive; 0: 1 s.
	Idle time.Duration
	// MTU of the port in bytes, 576 to 65535, which no segment exceeds. 0: 1500.
	MTU uint32
	// Flows is the most connections that may be opened from behind this port. 0: an eighth of the table, or an
	// equal part of it if that is more.
	Flows uint32

	// Mode is which flows are limited. EnforcePart limits the part LimitedBuckets / 65536 of them.
	Mode           Mode
	LimitedBuckets uint32
	// Paths is the number of ports, this one included, that lead the same way and over which flows are hashed.
	// An ACK whose data takes a path of another switch is limited to this port's window divided by Paths; with
	// Undivided, to the whole window. 0 and 1: such ACKs pass. If data of a flow left by a port of this switch,
	// that port is known, and its window is not divided.
	Paths     uint16
	Undivided bool
	// PipeBytes is the BDP, C*RTT, in bytes. (PipeBytes + TargetBytes) / flows is the equilibrium window, which
	// EnforcePart grants and EnforceNone calculates: both need 1 byte or more. With Config.Credit, PipeBytes + TargetBytes
	// is what the port has room for.
	PipeBytes uint32
	// RateBps is the port's rate in bit/s, and LineBytes what a frame takes on the line in addition: 24 on Ethernet, 0
	// behind a token bucket. Config.Credit needs them; without a rate the port has neither promises nor credits.
	RateBps   uint64
	LineBytes uint32
	// LongestWait is the longest time that a packet waits for its credit, 1 ms to 1 s; 0: 100 ms.
	LongestWait  time.Duration
	HoldRequests bool // with credits: requests wait while late servers owe more than the buffer has room for
	// RepairLimitBytes and RepairMostBytes: with credits, TCP segments that find more than the limit in the queue wait, and are sent
	// later in order. At most this many bytes wait; 0: none. RepairDue: a segment that waits longer is counted as late.
	RepairLimitBytes, RepairMostBytes uint32
	// RepairFullBytes: such a segment that comes back and finds more in the queue waits once more. 0: it never does.
	RepairFullBytes uint32
	RepairDue       time.Duration
	// RepairBurst: how much of them may come back at once, in time at the port's rate; 0: 200 us.
	RepairBurst time.Duration
}

// Port is a port and its law.
type Port struct {
	attach.PortRef
	Law Law
}

// Config is what the ports of one switch have in common.
type Config struct {
	Count Count
	Scale Scale
	// UnifyShift is the scale that ScaleUnify makes SYNs announce: 0 .. 14. Windows are then at most 65535 <<
	// UnifyShift bytes, in steps of 1 << UnifyShift. A receiver with less room than a step appears closed:
	// above 10 a step may be larger than a segment.
	UnifyShift uint8
	Shrink     Shrink
	Signed     Signed
	// IgnoreVLANs: VLAN tags do not tell connections apart. For bridges that filter VLANs, where some ports have tags and some none: else
	// a connection between two of them counts as two, and is not limited. Tenants in different VLANs must not have the same addresses.
	IgnoreVLANs bool
	// Scope: only flows with both ends in one of these prefixes are rewritten and counted. Empty: all.
	Scope []netip.Prefix
	// Flows is the size of the table, in connections: at most MaxFlows. 0: DefaultFlows.
	Flows uint32
	// Lease is how long flows stay limited after the last Heartbeat: at least two heartbeats. Then they are
	// released within half a second. 0: 1 s.
	Lease time.Duration
	// Forget is how long a connection may be silent before its entry is removed. 0: 5 minutes, or a day with
	// ScaleUnify, because windows of a removed entry are no longer converted.
	Forget time.Duration
	// Pin is a directory in a BPF file system. With it programs, timers and tables outlive the process, and a
	// later Attach with the same directory takes them over without detaching. It belongs to one process at a
	// time. Empty: everything ends with the process.
	Pin string
	// TakeOver asks a running process that has Pin to leave it to this one. Without it: *attach.Busy.
	TakeOver bool
	// Renew releases the flows of pinned tables of another layout, removes the tables and creates new ones,
	// which adopt flows. Without it: *OtherSchema.
	Renew bool
	// Version of the process, for status.
	Version string
	// Observe: this process only measures, so it may be attached to a port where a switch runs, and never keeps
	// a switch from it. Every port's Mode must be EnforceNone.
	Observe bool
	// Watch counts per flow and per group from the first heartbeat on: Stats.Groups except Flows, and a Flow's
	// InFlightBytes, OfferedBytes and GrantedBytes. It costs some ns a packet. Observe, and a port whose Mode
	// is not EnforceAll, count anyway. View.Watch makes another process's switch count.
	Watch bool
	// Edge: windows are advertised on some ACKs to an edge (edge.Attach), which applies them to all. Zero:
	// every ACK is rewritten here.
	Edge EdgeMode
	// Credit: promises and credits at the ports that have a RateBps. Not with Edge.
	Credit Credit
	// Trace records every call of the law, for a differential run (docs/differential.md); nil: none. It costs a
	// lock for each ACK. It does not work with Pin, and works for one Attach only: a second one returns an
	// error.
	Trace Tracer
}

// Tracer records the calls of the law: the program with hooks, and the maps that the hooks write. Package lawtrace has
// one. It is an interface so that the production loader does not link the simulator's code.
type Tracer interface {
	// Spec returns the switch program with its hooks: the same programs, variables and maps, and those of Maps
	// in addition. The caller may change the result.
	Spec() (*ebpf.CollectionSpec, error)
	// Maps returns the recorder's own maps, by name. Every instance of the program is loaded with them.
	Maps() map[string]*ebpf.Map
}

// Limits of bpf/fairq/flows.h.
const (
	maxPorts      = 1024
	liveEpochs    = 4  // epochs that a direction is counted for
	latelySweeps  = 4  // sweeps
	portNameBytes = 32 // of struct port_config
	schemaVersion = 15 // layout of the maps; raised whenever one changes
	fairQScopeMax = 4096
)

// DefaultFlows and MaxFlows are the default and the largest size of a flow table, in connections. The law of a
// port counts no more flows than MaxFlows (FAIRQ_FLOWS_MAX of core/fairq/fairq.h).
const (
	DefaultFlows = 1 << 16
	MaxFlows     = 1 << 20
)

// MaxActive is the largest Active and Idle of Law: a flow, or a port, that is silent for longer does not count.
const MaxActive = 4 * time.Second

// Attachment is FairQ attached to the ports of one switch. Its methods are for one goroutine, except Heartbeat.
type Attachment struct {
	cfg     Config
	maps    *fairqMaps
	control *controlPrograms
	ports   []attachedPort
	source  *programSource
	shared  sync.Mutex            // over the control entry and the field control
	lock    *attach.PinLock       // on cfg.Pin; nil without Pin
	fresh   bool                  // no tables existed before
	watch   atomic.Bool           // counters of flows must run
	parks   map[uint64]*park.Park // by the cookie of their namespaces; changed under shared only
}

// fairQAttached is one port of a FairQ.
type attachedPort struct {
	Port
	id       uint32
	cookie   uint64 // of its namespace
	program  *ebpf.Program
	link     link.Link // kept here: the garbage collector would close it, which detaches the program
	isNew    bool      // not taken over
	released bool      // its flows are released, until it is configured again
}

// Check checks that Attach can work on this kernel and for this user. Errors: ErrPermission or *MissingFeature.
func Check() error { return attach.CheckAll(probes()) }

// Attach puts FairQ at the head of each port's egress chain. The ports are those of one switch: an
// acknowledgement that leaves by one of them is limited by the window of the port that its data leaves by.
// Errors name the port; they can be *NoQueue, *MissingFeature, *OtherSchema, *attach.Busy, *Taken and
// ErrPermission. After an error nothing new stays attached, and pinned programs continue.
//
// Heartbeat must be called every HeartbeatInterval, or the lease expires and flows are released. A pinned port
// that is no longer configured is given up before Attach returns.
func Attach(ports []Port, c Config) (*Attachment, error) {
	if err := c.checkPorts(ports); err != nil {
		return nil, fmt.Errorf("fairq: %w", err)
	}
	h, err := Own(c)
	if err != nil {
		return nil, err
	}
	f, err := h.Attach(ports)
	if err != nil {
		return nil, errors.Join(err, h.Release())
	}
	return f, nil
}

// Owner is this process's ownership of a pin directory before FairQ is on any port: no other process may start
// there, and the tables are open. It ends when Attach succeeds, or with Release. Its methods are for one
// goroutine.
type Owner struct{ f *Attachment }

// Own is the first half of Attach, for a caller that must prepare something while no second process may. Its
// errors are those of Attach that name no port. Attach or Release must follow within c.Lease, or calls of
// Heartbeat.
func Own(c Config) (*Owner, error) {
	c = c.withDefaults()
	if err := c.check(nil); err != nil {
		return nil, fmt.Errorf("fairq: %w", err)
	}
	if err := Check(); err != nil {
		return nil, fmt.Errorf("fairq: %w", err)
	}
	source, err := newSource(&c)
	if err != nil {
		return nil, fmt.Errorf("fairq: %w", err)
	}
	h := &Owner{&Attachment{cfg: c, source: source}}
	if err := h.f.own(); err != nil {
		return nil, errors.Join(fmt.Errorf("fairq: %w", err), h.Release())
	}
	return h, nil
}

// Heartbeat shows the kernel programs that user space runs.
func (h *Owner) Heartbeat() error { return h.f.heartbeat() }

// Release gives up the pin directory, and detaches what Attach attached before it failed. It removes tables
// that were created since Own, and keeps those that existed before.
func (h *Owner) Release() error { return h.f.abandon() }

// Attach is the second half of Attach. Release must follow an error.
func (h *Owner) Attach(ports []Port) (*Attachment, error) {
	f := h.f
	err := f.cfg.checkPorts(ports)
	if err == nil {
		err = f.attachAll(ports)
	}
	if err != nil {
		return nil, fmt.Errorf("fairq: %w", err)
	}
	return f, nil
}

func (c Config) withDefaults() Config {
	if c.Flows == 0 {
		c.Flows = DefaultFlows
	}
	if c.Lease == 0 {
		c.Lease = time.Second
	}
	if c.Forget == 0 {
		c.Forget = 5 * time.Minute
		if c.Scale == ScaleUnify {
			c.Forget = 24 * time.Hour
		}
	}
	c.Edge = c.Edge.withDefaults()
	return c
}

func (c *Config) check(ports []Port) error {
	switch {
	case c.Flows > MaxFlows:
		return fmt.Errorf("a table of %d flows: at most %d", c.Flows, MaxFlows)
	case len(c.Scope) > fairQScopeMax:
		return fmt.Errorf("a scope of %d prefixes: at most %d", len(c.Scope), fairQScopeMax)
	case c.Signed > SignedDrop:
		return fmt.Errorf("signed %d: 0 pass, 1 limit, 2 drop", c.Signed)
	case c.UnifyShift > 14:
		return fmt.Errorf("window scale %d: at most 14 (RFC 7323 2.3)", c.UnifyShift)
	case c.Trace != nil && c.Pin != "":
		return errors.New("a law is traced without Pin only: leave Trace or Pin out")
	case c.Credit != CreditOff && c.Edge.Interval != 0:
		return errors.New("promises and credits do not work with edge mode: leave one of them out")
	case c.Lease < 2*HeartbeatInterval:
		return fmt.Errorf("a lease of %v: at least %v, two heartbeats", c.Lease, 2*HeartbeatInterval)
	}
	if err := c.Edge.check(c); err != nil {
		return err
	}
	return c.checkPorts(ports)
}

func (c *Config) checkPorts(ports []Port) error {
	if len(ports) > maxPorts {
		return fmt.Errorf("%d ports: at most %d", len(ports), maxPorts)
	}
	for i := range ports {
		if err := ports[i].Law.check(); err != nil {
			return fmt.Errorf("port %s: %w", ports[i].Name, err)
		}
		if c.Observe && ports[i].Law.Mode != EnforceNone {
			return fmt.Errorf("port %s: an observing process must not limit flows: Mode must be EnforceNone", ports[i].Name)
		}
	}
	return nil
}

func (l *Law) check() error {
	switch {
	case l.TargetBytes == 0:
		return errors.New("a target queue of 0 bytes: at least 1")
	case l.BufferBytes != 0 && l.TargetBytes >= l.BufferBytes:
		return fmt.Errorf("a target queue of %d bytes is not below the buffer of %d", l.TargetBytes, l.BufferBytes)
	case l.Tick < 10*time.Microsecond || l.Tick > time.Second:
		return fmt.Errorf("a sampling interval of %v: 10us to 1s", l.Tick)
	case l.Period < l.Tick || l.Period > time.Second:
		return fmt.Errorf("an update period of %v: from the sampling interval (%v) to 1s", l.Period, l.Tick)
	case l.Active > MaxActive || l.Idle > MaxActive:
		return fmt.Errorf("active or idle is over %v, after which a silent flow no longer counts: shorten it", MaxActive)
	case l.Mode > EnforceNone:
		return fmt.Errorf("mode %d: 0 all, 1 part, 2 none", l.Mode)
	case l.LimitedBuckets > Buckets:
		return fmt.Errorf("a share of %d is limited: at most %d, which is all", l.LimitedBuckets, Buckets)
	case l.Mode != EnforceAll && l.PipeBytes == 0:
		return errors.New("a canary and observe need the BDP (rate x RTT) of 1 byte or more, to calculate the equilibrium window")
	case l.MTU != 0 && (l.MTU < 576 || l.MTU > 65535):
		return fmt.Errorf("an MTU of %d: 576 to 65535", l.MTU)
	case l.Variant == FairSwitch && l.Gain == GainOVS && l.Period > 4*l.Tick:
		// The mean over 32 samples is so old that this gain overshoots again and again.
		return errors.New("variant FairSwitch with the gain of the Open vSwitch code oscillates unless an update takes at most 4 samples: choose gain paper")
	}
	return nil
}
