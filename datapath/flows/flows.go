// Package flows reads how far the flows of a switch's ports have come: bpf/flows/flows.bpf.c counts them.
//
//	flows.go  attach, detach
//	read.go   readings
package flows

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
)

// most is FLOWS_MOST of bpf/flows/flows.h.
const most = 4096

// Port is a port with its number in the reports.
type Port struct {
	attach.PortRef
	N uint32
}

// Flows is the program attached to some ports. All methods may run while another one does.
type Flows struct {
	spec *ebpf.CollectionSpec
	maps kernelMaps

	mu      sync.Mutex
	ports   []*port
	known   map[kernelSentKey]*known
	reading uint64 // number of the last one
	keys    []kernelSentKey
	values  []kernelSentFlow
}

// port is one port of a Flows.
type port struct {
	Port
	program *ebpf.Program
	link    link.Link // kept here: the garbage collector would close it, which detaches the program
}

// New makes the table. Errors can be *attach.MissingFeature or attach.ErrPermission.
func New() (*Flows, error) {
	f := &Flows{known: map[kernelSentKey]*known{}, keys: make([]kernelSentKey, most), values: make([]kernelSentFlow, most)}
	if err := attach.CheckAll(attach.QueueProbes()); err != nil {
		return nil, fmt.Errorf("flows: %w", err)
	}
	var err error
	if f.spec, err = loadKernel(); err != nil {
		return nil, fmt.Errorf("flows: read the embedded program: %w", err)
	}
	if err := attach.SetRandomDigestKey(f.spec); err != nil {
		return nil, fmt.Errorf("flows: %w", err)
	}
	if err := f.spec.LoadAndAssign(&f.maps, &ebpf.CollectionOptions{Cache: attach.KernelTypes()}); err != nil {
		return nil, fmt.Errorf("flows: create the table: %w", err)
	}
	return f, nil
}

// Add attaches the program at the tail of a port's egress chain.
func (f *Flows) Add(ref Port) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.ports, func(p *port) bool { return p.N == ref.N }) {
		return fmt.Errorf("flows: another port has the number %d", ref.N)
	}
	p := &port{Port: ref}
	spec := f.spec.Copy()
	if err := spec.Variables[kernelVarPortNumber].Set(ref.N); err != nil {
		return fmt.Errorf("flows: %w", err)
	}
	var programs kernelPrograms
	err := spec.LoadAndAssign(&programs, &ebpf.CollectionOptions{Cache: attach.KernelTypes(), MapReplacements: map[string]*ebpf.Map{kernelMapSent: f.maps.Sent}})
	if err != nil {
		return fmt.Errorf("flows: load program weir_flows: %w", err)
	}
	p.program = programs.WeirFlows
	if p.link, err = attach.Counting(p.PortRef, p.program); err != nil {
		return errors.Join(fmt.Errorf("flows: attach to %s: %w", ref.Name, err), p.close())
	}
	f.ports = append(f.ports, p)
	return nil
}

// Remove detaches the program from a port, and forgets its flows.
func (f *Flows) Remove(n uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.ports, func(p *port) bool { return p.N == n })
	if at < 0 {
		return fmt.Errorf("flows: there is no port %d", n)
	}
	p := f.ports[at]
	f.ports = slices.Delete(f.ports, at, at+1)
	err := errors.Join(p.close(), f.each(func(key *kernelSentKey, _ *kernelSentFlow) {
		if key.Port == n {
			f.drop(*key)
		}
	}))
	maps.DeleteFunc(f.known, func(key kernelSentKey, _ *known) bool { return key.Port == n }) // the table may have evicted it
	return err
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

// Close detaches the program from every port. It ignores ports whose device is gone.
func (f *Flows) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, p := range f.ports {
		errs = append(errs, p.close())
	}
	f.ports = nil
	if err := errors.Join(append(errs, f.maps.Close())...); err != nil {
		return fmt.Errorf("detach flows: %w", err)
	}
	return nil
}
