// Package telemetry loads the telemetry program, attaches it to a switch's ports and reads what they counted. The program is
// bpf/telemetry/telemetry.bpf.c; core/arrivals.h decides which packets are arrivals.
//
//	telemetry.go  attach, detach, configured sources
//	read.go       readings
//	half.go       the memory that the program and this package share
//	queue.go      counters of queue disciplines, many ports a system call
package telemetry

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
	"weir/law"
)

// DefaultIdle is the Idle of a Config that has none: longer than the RTT of a data centre, shorter than the time between two
// requests of most applications.
const DefaultIdle = 20 * time.Millisecond

// Limits of bpf/telemetry/telemetry.h.
const (
	maxPorts   = 1024
	maxSources = 16384
)

// Config is the configuration of telemetry on a switch.
type Config struct {
	Switch law.Switch    // in the events
	Idle   time.Duration // a flow without data for so long is idle; more than the RTT. 0: DefaultIdle
	// Signals are what laws ask for (law.Spec): Marks and Arrivals are collected only for laws that do. Backlog and Drops cost
	// nothing for each packet, so they are always read.
	Signals []law.Signal
	// Room is how many ports there can be after an Add; 0: those of Attach. Each takes 10 KB of kernel memory.
	Room int
}

// Port is a port with its number in the events.
type Port struct {
	attach.PortRef
	N uint32
}

// Telemetry is the program attached to some ports. Read and Close must not run at the same time. All other methods may run while
// another one does.
type Telemetry struct {
	config  Config
	objects kernelMaps
	spec    *ebpf.CollectionSpec

	changes sync.Mutex // of ports and sources; taken for long
	mu      sync.Mutex // of what a reading uses; taken briefly
	ports   []*port
	queues  []*queues // one for each network namespace
	last    uint64    // time of the last reading, ns
	late    uint64

	shared         *shared
	marks, arrives bool
}

// port is one port of a Telemetry.
type port struct {
	Port
	id      uint32
	program *ebpf.Program
	link    link.Link // kept here: the garbage collector would close it, which detaches the program
	queue   *queue
	counts  portState
}

// Attach puts the program at the tail of each port's egress chain: laws must be attached before, or at the head. Errors name
// the port; they can be *attach.NoQueue, *attach.MissingFeature or attach.ErrPermission. After an error nothing stays attached.
func Attach(ports []Port, c Config) (*Telemetry, error) {
	if len(ports) > maxPorts {
		return nil, fmt.Errorf("telemetry: %d ports: at most %d", len(ports), maxPorts)
	}
	if c.Idle == 0 {
		c.Idle = DefaultIdle
	}
	if c.Idle < 0 {
		return nil, fmt.Errorf("telemetry: idle time %v: it must not be negative", c.Idle)
	}
	if err := attach.CheckAll(attach.QueueProbes()); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	c.Room = max(1, len(ports), min(c.Room, maxPorts))
	t := &Telemetry{config: c, last: attach.MonotonicNs()}
	for _, s := range c.Signals {
		t.marks = t.marks || s == law.Marks
		t.arrives = t.arrives || s == law.Arrivals
	}
	if err := t.attachAll(ports); err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry: %w", err), t.Close())
	}
	return t, nil
}

func (t *Telemetry) attachAll(ports []Port) (err error) {
	if t.spec, err = loadKernel(); err != nil {
		return fmt.Errorf("read the embedded program: %w", err)
	}
	if err := attach.SetRandomDigestKey(t.spec); err != nil {
		return err
	}
	t.spec.Maps[kernelMapPorts].MaxEntries = uint32(t.config.Room)
	if err := t.spec.LoadAndAssign(&t.objects, &ebpf.CollectionOptions{Cache: attach.KernelTypes()}); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	if t.shared, err = mapShared(t.objects.Ports, t.config.Room); err != nil {
		return err
	}
	return t.add(ports)
}

// ErrFull is the error for more ports than there is room for.
var ErrFull = errors.New("there is no room for another port")

// Add attaches the program to more ports. Errors are those of Attach, or ErrFull. After an error none of them is attached.
func (t *Telemetry) Add(ports ...Port) error {
	if err := t.add(ports); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	return nil
}

func (t *Telemetry) add(ports []Port) error {
	t.changes.Lock()
	defer t.changes.Unlock()
	for i, p := range ports {
		if err := t.attach(p); err != nil {
			err = fmt.Errorf("attach to %s: %w", p.Name, err)
			for _, before := range ports[:i] {
				err = errors.Join(err, t.remove(before.N))
			}
			return err
		}
	}
	return nil
}

// Remove detaches the program from a port. The port's counts since the last reading are lost.
func (t *Telemetry) Remove(n uint32) error {
	t.changes.Lock()
	defer t.changes.Unlock()
	if err := t.remove(n); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	return nil
}

func (t *Telemetry) remove(n uint32) error {
	at := slices.IndexFunc(t.ports, func(p *port) bool { return p.N == n })
	if at < 0 {
		return fmt.Errorf("there is no port %d", n)
	}
	p := t.ports[at]
	t.mu.Lock()
	t.ports = slices.Delete(slices.Clone(t.ports), at, at+1)
	for _, q := range t.queues {
		q.ports = slices.DeleteFunc(q.ports, func(of *queue) bool { return of == p.queue })
	}
	t.mu.Unlock()
	return p.close()
}

// close detaches the program. When it returns, no processor runs it: the kernel waits for that.
func (p *port) close() error {
	attach.NotCounting(p.program)
	err := p.program.Close()
	if p.link != nil {
		err = errors.Join(err, attach.DetachLink(p.link), p.link.Close())
	}
	return err
}

// freeID returns the first place in the shared memory that no port has.
func (t *Telemetry) freeID() (uint32, error) {
	for id := range uint32(t.config.Room) {
		if !slices.ContainsFunc(t.ports, func(p *port) bool { return p.id == id }) {
			return id, nil
		}
	}
	return 0, ErrFull
}

func (t *Telemetry) attach(ref Port) error {
	if _, err := ref.QueueWithBacklog(); err != nil {
		return err
	}
	id, err := t.freeID()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(t.ports, func(p *port) bool { return p.N == ref.N }) {
		return fmt.Errorf("another port has the number %d", ref.N)
	}
	p := &port{Port: ref, id: id}
	t.shared.ports[id] = kernelPortCounts{} // of a port that was removed
	if p.program, err = t.load(id); err != nil {
		return err
	}
	if p.link, err = attach.Counting(p.PortRef, p.program); err != nil {
		return errors.Join(err, p.close())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.addQueue(p); err != nil {
		return errors.Join(err, p.close())
	}
	t.ports = append(t.ports, p)
	return nil
}

// load loads a port's program.
func (t *Telemetry) load(id uint32) (*ebpf.Program, error) {
	var collect uint32
	if t.marks {
		collect |= collectMarks
	}
	if t.arrives {
		collect |= collectArrivals
	}
	spec := t.spec.Copy()
	err := errors.Join(spec.Variables[kernelVarPortId].Set(id), spec.Variables[kernelVarCollect].Set(collect),
		spec.Variables[kernelVarIdleNs].Set(uint64(t.config.Idle)))
	if err != nil {
		return nil, err
	}
	var programs kernelPrograms
	err = spec.LoadAndAssign(&programs, &ebpf.CollectionOptions{Cache: attach.KernelTypes(), MapReplacements: map[string]*ebpf.Map{
		kernelMapPorts: t.objects.Ports, kernelMapFlows: t.objects.Flows, kernelMapSources: t.objects.Sources,
	}})
	if err != nil {
		return nil, fmt.Errorf("load program weir_telemetry: %w", err)
	}
	return programs.WeirTelemetry, nil
}

// SetSource has the marks of packets with this source address counted for a VM. VM 0 removes the address. At most 16384
// addresses can be set.
func (t *Telemetry) SetSource(a netip.Addr, vm law.VM) error {
	t.changes.Lock()
	defer t.changes.Unlock()
	key := addressKey(a)
	if vm == 0 {
		if err := t.objects.Sources.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("telemetry: remove source %v: %w", a, err)
		}
		return nil
	}
	if err := t.objects.Sources.Put(key, uint32(vm)); err != nil {
		return fmt.Errorf("telemetry: source %v of VM %d (at most %d addresses): %w", a, vm, maxSources, err)
	}
	return nil
}

// Close detaches the program from every port. It ignores ports whose device is gone.
func (t *Telemetry) Close() error {
	var errs []error
	for _, p := range t.ports {
		errs = append(errs, p.close())
	}
	for _, q := range t.queues {
		errs = append(errs, q.close())
	}
	errs = append(errs, t.shared.close(), t.objects.Close())
	t.ports, t.queues, t.shared, t.objects = nil, nil, nil, kernelMaps{}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detach telemetry: %w", err)
	}
	return nil
}
