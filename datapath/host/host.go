// Package host enforces grants at a hypervisor: windows of flows, rates of VMs, and that a VM sends from its own addresses
// only. docs/host.md describes it. Programs at tcx egress of the VMs' ports and of the uplink do the work
// (bpf/host/host.bpf.c). This package attaches them and writes their tables.
//
//	host.go     Open, Close, Purge
//	load.go     tables and programs
//	vms.go      VMs: their ports and addresses
//	grants.go   grants and the heartbeats of their owners
//	refused.go  why a grant is not set
//	sweep.go    grants that have ended
//	limiter.go  HTB at the uplink
//	excess.go   what waits above a VM's rate
//	stats.go    counters
//	came.go     marked packets by source
package host

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
	"weir/law"
)

// Limits of bpf/host/tables.h and core/grant.h.
const (
	MaxVMs       = 4096
	MaxAddresses = 16
	Owners       = 8 // law.Owner is below this
	GrantsAKey   = 4 // grants for the same VM, pair or flow; a window and a pause of one owner are two, but for a flow one

	// OwnerLease is how long an owner's grants are valid after its last Heartbeat, and HeartbeatInterval how often the owner
	// should call it.
	OwnerLease        = time.Second
	HeartbeatInterval = 250 * time.Millisecond
	// MaxLease is the longest lease of a grant.
	MaxLease = time.Minute

	schemaVersion  = 5 // layout of the maps; raised whenever one changes
	defaultEntries = 1 << 16
	maxEntries     = 1 << 18 // pairs and flows have indexes of 20 bits
	uplinkID       = 0       // of the uplink's pin; a VM's is its index and 1
)

// Config configures a host.
type Config struct {
	// Uplink is the port to the network. All VMs' ports are in its namespace.
	Uplink attach.PortRef
	// Rate is the uplink's rate in bit/s. Open then puts HTB at its root, and VMs can have rate grants. 0: there is no
	// limiter, the uplink's queue stays as it is, and rate grants are refused.
	Rate law.Rate
	// PauseZero: a pause writes a window of 0. Otherwise it writes the least window, a segment and a byte. After a window
	// of 0 the sender waits for its persist timer.
	PauseZero bool
	// ECN is what happens to the ECN field of what VMs send and get: law.ClearAll, law.ClearNotNegotiated (core/vmecn.h), or ""
	// for nothing.
	ECN string
	// Excess is what happens to packets of a VM above its rate: law.ExcessQueue, or law.ExcessDrop; "" is law.ExcessQueue. SetExcess gives
	// a VM another.
	Excess string
	// Marks: marked packets that come by the uplink are counted by source and VM, before ECN clears the field. Came reads them.
	Marks bool
	// Pairs, Flows and Connections are the sizes of tables: pairs and flows with a grant, and connections whose window
	// scale is known. 0: 65536; at most 262144.
	Pairs, Flows, Connections uint32
	// Pin is a directory in a BPF file system. Programs and tables pinned there outlive this process, and a later Open
	// continues with them. Empty: they end with the process, and packets pass untouched.
	Pin string
	// TakeOver asks a running process to leave Pin.
	TakeOver bool
	// Version of the process, for the holder's entry in Pin.
	Version string
}

// Host is an open host. Its methods may be called by several goroutines at a time.
type Host struct {
	mu      sync.Mutex
	cfg     Config
	lock    *attach.PinLock
	source  *source
	maps    *hostMaps
	cookie  uint64 // of the uplink's namespace
	pins    *attach.Pins
	found   bool // an earlier process's links are in Pin
	uplink  *attached
	program *ebpf.Program // of all VMs' ports
	vms     map[law.VM]*vm
	used    map[uint32]bool // indexes in the kernel's table
	pairs   map[hostHostPair]*keyed
	flows   map[hostHostFlow]*keyed
	indexes indexes
	limiter *limiter
	looked  uint64           // when the limiter was looked for, ns
	lost    error            // why the limiter is gone; nil: it is there
	swept   [Owners]uint64   // last heartbeats of owners whose grants Sweep has removed
	cpus    []hostHostCounts // of one VM, a part for each CPU
	came    came
	excess  map[law.VM]string // of SetExcess
	closed  bool
}

// attached is a program at a port.
type attached struct {
	name string    // of its pin, without the id
	link link.Link // kept here: the garbage collector would close it, which detaches the program
}

// ErrClosed is the error of calls after Close or Purge.
var ErrClosed = errors.New("the host is closed")

// Check checks that Open can work on this kernel and for this user. Errors: attach.ErrPermission or
// *attach.MissingFeature.
func Check() error { return attach.CheckAll(attach.QueueProbes()) }

// Open attaches the uplink's program and opens the tables, or continues with those pinned in c.Pin: their VMs are then known,
// and AddVM replaces their programs without a gap. An earlier process's HTB is removed if there is no rate now. Its program and its
// HTB at another uplink are removed, too. Errors: *UplinkBusy, *attach.Busy, *attach.OtherSchema,
// *attach.MissingFeature, attach.ErrPermission, or the kernel's. After an error nothing new stays attached.
func Open(c Config) (*Host, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	if err := Check(); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	h := &Host{cfg: c, vms: map[law.VM]*vm{}, used: map[uint32]bool{}, pairs: map[hostHostPair]*keyed{}, flows: map[hostHostFlow]*keyed{}}
	if err := h.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("host: %w", err), h.abandon())
	}
	return h, nil
}

// ecnModes are those of core/vmecn.h.
var ecnModes = map[string]uint32{"": 0, law.ClearAll: 1, law.ClearNotNegotiated: 2}

// complete fills in the defaults.
func (c *Config) complete() error {
	for _, n := range []*uint32{&c.Pairs, &c.Flows, &c.Connections} {
		if *n == 0 {
			*n = defaultEntries
		}
		if *n > maxEntries {
			return fmt.Errorf("host: a table of %d entries: at most %d", *n, maxEntries)
		}
	}
	if c.Excess == "" {
		c.Excess = law.ExcessQueue
	}
	if c.Excess != law.ExcessQueue && c.Excess != law.ExcessDrop {
		return fmt.Errorf("host: excess %q: %s or %s", c.Excess, law.ExcessQueue, law.ExcessDrop)
	}
	if _, known := ecnModes[c.ECN]; !known {
		return fmt.Errorf("host: ECN %q: all, not_negotiated or nothing", c.ECN)
	}
	if c.Rate < 0 || c.Rate > bucketRateMax {
		return fmt.Errorf("host: uplink %s: rate %v: at most 1 Tbit/s", c.Uplink.Name, c.Rate)
	}
	return nil
}

func (h *Host) open() (err error) {
	c := &h.cfg
	if h.source, err = newSource(c); err != nil {
		return err
	}
	if err = c.Uplink.In(func() (err error) { h.cookie, err = attach.NetnsCookie(); return err }); err != nil {
		return fmt.Errorf("uplink %s: %w", c.Uplink.Name, err)
	}
	if err = attach.MakePinDir(c.Pin); err != nil {
		return err
	}
	if c.Pin != "" {
		if h.lock, err = attach.LockPins(c.Pin, c.Version, c.TakeOver, h.source.rehearse); err != nil {
			return err
		}
	}
	if h.pins, err = attach.ReadPins(c.Pin); err != nil {
		return err
	}
	h.found = len(h.pins.Links) > 0
	if h.maps, err = h.source.openMaps(); err != nil {
		return err
	}
	if err = h.beginControl(); err != nil {
		return err
	}
	if err = h.restore(); err != nil {
		return err
	}
	if c.Rate != 0 {
		if h.limiter, err = openLimiter(c.Uplink, uint64(c.Rate)); err != nil {
			return err
		}
		if err = h.findClasses(); err != nil {
			return err
		}
	}
	if h.program, err = h.source.loadVM(h.maps); err != nil {
		return err
	}
	if err = h.attachUplink(); err != nil {
		return err
	}
	return h.leaveEarlier()
}

// leaveEarlier removes what an earlier process with another configuration left: the HTB of an uplink that has no rate now, and program
// and HTB of another uplink. An HTB in a namespace other than the uplink's is out of reach.
func (h *Host) leaveEarlier() error {
	if h.cfg.Rate == 0 {
		if err := removeLimiter(h.cfg.Uplink); err != nil {
			return err
		}
	}
	for name, l := range h.pins.Links {
		cookie, ifindex, id, ok := attach.ParsePortPin(filepath.Base(l.Path))
		if !ok || id != uplinkID {
			continue
		}
		if err := l.Remove(); err != nil {
			return fmt.Errorf("leave the uplink before: %w", err)
		}
		delete(h.pins.Links, name)
		if cookie != h.cookie {
			continue
		}
		if err := removeLimiter(attach.PortRef{Name: fmt.Sprintf("the uplink before (ifindex %d)", ifindex), Ifindex: ifindex, Enter: h.cfg.Uplink.Enter}); err != nil {
			return err
		}
	}
	return nil
}

// beginControl sets the layout's version and the seed of the keys of connections, unless the tables have them.
func (h *Host) beginControl() error {
	var control hostHostControl
	if err := h.maps.Controls.Lookup(uint32(0), &control); err != nil {
		return fmt.Errorf("read control: %w", err)
	}
	if control.Schema == 0 {
		var seed [16]byte
		if _, err := rand.Read(seed[:]); err != nil {
			return fmt.Errorf("seed of the tables: %w", err)
		}
		control.Schema = schemaVersion
		control.Seed = [2]uint64{binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:])}
		if err := h.maps.Controls.Put(uint32(0), control); err != nil {
			return fmt.Errorf("write control: %w", err)
		}
	}
	return h.source.setSeed(control.Seed)
}

func (h *Host) attachUplink() error {
	relaxed := uint32(0)
	if h.limiter != nil {
		relaxed = classRelaxed
	}
	program, err := h.source.loadUplink(h.maps, relaxed)
	if err != nil {
		return fmt.Errorf("uplink %s: %w", h.cfg.Uplink.Name, err)
	}
	h.uplink, err = h.attach(h.cfg.Uplink, program, uplinkID)
	return errors.Join(err, program.Close()) // the link keeps it
}

// attach puts a program at a port's egress, or in the place of the one that is pinned for the port.
func (h *Host) attach(p attach.PortRef, program *ebpf.Program, id uint32) (*attached, error) {
	a := &attached{}
	name, err := attach.PinName(p, h.cfg.Pin)
	if err != nil {
		return nil, fmt.Errorf("port %s: %w", p.Name, err)
	}
	a.name = name
	if old, ok := h.pins.Take(name); ok && old.ID == id {
		if a.link, err = old.Update(program); err != nil {
			return nil, err
		}
		return a, nil
	} else if ok {
		if err := old.Remove(); err != nil {
			return nil, err
		}
	}
	if a.link, err = attach.Program(p, program, ebpf.AttachTCXEgress, link.Head()); err != nil {
		return nil, fmt.Errorf("attach to %s: %w", p.Name, err)
	}
	if h.cfg.Pin != "" {
		if err := attach.PinLink(a.link, h.cfg.Pin, name, id); err != nil {
			return nil, errors.Join(err, a.detach())
		}
	}
	return a, nil
}

// close closes what this process has open. A pinned program keeps running.
func (a *attached) close() error {
	if a == nil {
		return nil
	}
	return a.link.Close()
}

// detach detaches the program, and removes its pin.
func (a *attached) detach() error {
	if a == nil {
		return nil
	}
	err := a.link.Unpin()
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, attach.DetachLink(a.link), a.close())
}

// Close closes what this process has open. Pinned programs continue; grants expire, unless another process opens Pin and sends
// heartbeats. Without Pin the programs are detached.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	if h.cfg.Pin == "" {
		return h.purge()
	}
	return h.release()
}

// Claimed reports whether another process asks for Pin (Config.TakeOver). This one should then Close.
func (h *Host) Claimed() (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.lock == nil {
		return false, nil
	}
	return h.lock.Claimed()
}

// Purge detaches all programs, and removes tables, pins, and the queue that Open put at the uplink.
func (h *Host) Purge() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	return h.purge()
}

func (h *Host) purge() error {
	errs := []error{h.uplink.detach()}
	h.uplink = nil
	for _, v := range h.vms {
		errs = append(errs, v.attached.detach())
		v.attached = nil
	}
	if h.pins != nil {
		for _, l := range h.pins.Links { // of VMs that were not added again
			errs = append(errs, l.Remove())
		}
	}
	if h.limiter != nil {
		errs = append(errs, h.limiter.remove())
	}
	if h.cfg.Pin != "" {
		errs = append(errs, attach.RemoveTables(h.cfg.Pin), attach.RemovePinDir(h.cfg.Pin))
	}
	return errors.Join(append(errs, h.release())...)
}

// release closes what this process has open.
func (h *Host) release() error {
	h.closed = true
	errs := []error{h.uplink.close()}
	for _, v := range h.vms {
		errs = append(errs, v.attached.close())
	}
	if h.program != nil {
		errs = append(errs, h.program.Close())
	}
	if h.maps != nil {
		errs = append(errs, h.maps.Close())
	}
	if h.limiter != nil {
		h.limiter.close()
	}
	return errors.Join(append(errs, h.lock.Close())...)
}

// abandon undoes an Open that failed. Earlier pins stay.
func (h *Host) abandon() error {
	var errs []error
	if h.limiter != nil && !h.limiter.found {
		errs = append(errs, h.limiter.remove())
	}
	fresh := h.pins != nil && !h.found && len(h.vms) == 0
	if fresh {
		errs = append(errs, h.uplink.detach())
		h.uplink = nil
	}
	if fresh && h.cfg.Pin != "" && h.lock != nil {
		if _, err := os.Stat(filepath.Join(h.cfg.Pin, hostMapControls)); err == nil {
			errs = append(errs, attach.RemoveTables(h.cfg.Pin), attach.RemovePinDir(h.cfg.Pin))
		}
	}
	return errors.Join(append(errs, h.release())...)
}
