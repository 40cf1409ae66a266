// Package shim attaches FairQ's end-host shim, which writes window scales into reserved bits (bpf/fairq/shim.bpf.c).
package shim

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
)

// Side says what the shim does at a port.
type Side uint8

const (
	// Send writes the window scale of who sends into the reserved bits of what leaves by the port: the
	// uplink of a host or a hypervisor.
	Send Side = 0
	// Clear takes them out again: the port of a VM, or the last switch port before a host.
	Clear Side = 1
)

// Port is a port and what the shim does there.
type Port struct {
	attach.PortRef
	Side Side
}

// Config configures the shim.
type Config struct {
	// Connections is how many a table holds that all ports share; the one unused longest makes room. A
	// connection counts at every port that it passes. 0: 65536.
	Connections uint32
}

// Limits of bpf/fairq/shim.bpf.c.
const (
	maxPorts           = 1024
	defaultConnections = 1 << 16
	maxConnections     = 1 << 22
)

// Shim is FairQ's end-host shim at work on some ports: it tells the switches between a Send and a
// Clear port how windows are scaled (docs/spec 1.2; fairq.ScaleShim). It knows the connections whose
// SYN and SYN-ACK it saw, and touches no others. It goes with the process: switches then take what they
// learnt.
type Shim struct {
	ports       []shimPort
	counts      *ebpf.Map
	connections *ebpf.Map
}

// shimPort is one port of a Shim.
type shimPort struct {
	Port
	id       uint32
	programs []*ebpf.Program
	links    []link.Link // one that the garbage collector takes is detached: kept here
}

// Check says whether Attach can work on this kernel and for this user: nil, ErrPermission or a
// *MissingFeature.
func Check() error { return attach.CheckAll(attach.PacketProbes()) }

// Attach puts the shim on each port's egress: at the head of the chain where it writes, at its tail
// where it clears, so that whoever reads the bits at that port does so between. A reader at the head of
// the port's ingress comes with it, for a scale counts only if both ends announced one. Errors name the
// port; *MissingFeature and ErrPermission can be told apart. On an error nothing stays attached.
func Attach(ports []Port, c Config) (*Shim, error) {
	if c.Connections == 0 {
		c.Connections = defaultConnections
	}
	switch {
	case len(ports) > maxPorts:
		return nil, fmt.Errorf("shim: %d ports: at most %d", len(ports), maxPorts)
	case c.Connections > maxConnections:
		return nil, fmt.Errorf("shim: a table of %d connections: at most %d", c.Connections, maxConnections)
	}
	if err := Check(); err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	spec, err := loadShim()
	if err != nil {
		return nil, fmt.Errorf("shim: read the embedded program: %w", err)
	}
	spec.Maps[shimMapConnections].MaxEntries = c.Connections
	if err := attach.SetRandomDigestKey(spec); err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	s := &Shim{}
	if err := s.createMaps(spec); err != nil {
		return nil, errors.Join(fmt.Errorf("shim: %w", err), s.Close())
	}
	kernel := btf.NewCache() // read once for all ports: it takes far longer than a load
	for id, p := range ports {
		if err := s.attach(spec, kernel, uint32(id), p); err != nil {
			return nil, errors.Join(fmt.Errorf("attach shim to %s: %w", p.Name, err), s.Close())
		}
	}
	return s, nil
}

// createMaps makes the maps that the programs of all ports share.
func (s *Shim) createMaps(spec *ebpf.CollectionSpec) (err error) {
	if s.counts, err = ebpf.NewMap(spec.Maps[shimMapCounts]); err != nil {
		return fmt.Errorf("map %s: %w", shimMapCounts, err)
	}
	if s.connections, err = ebpf.NewMap(spec.Maps[shimMapConnections]); err != nil {
		return fmt.Errorf("map %s: %w", shimMapConnections, err)
	}
	return nil
}

// attach loads a port's instances of the programs and puts them on its device.
func (s *Shim) attach(spec *ebpf.CollectionSpec, kernel *btf.Cache, id uint32, port Port) error {
	egress, anchor := shimProgWeirShimSend, link.Head()
	if port.Side == Clear {
		egress, anchor = shimProgWeirShimClear, link.Tail()
	}
	spec = spec.Copy()
	if err := spec.Variables[shimVarPortId].Set(id); err != nil {
		return fmt.Errorf("set port id: %w", err)
	}
	for name := range spec.Programs {
		if name != egress && name != shimProgWeirShimHear {
			delete(spec.Programs, name)
		}
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Cache:           kernel,
		MapReplacements: map[string]*ebpf.Map{shimMapCounts: s.counts, shimMapConnections: s.connections},
	})
	if err != nil {
		return fmt.Errorf("load program %s: %w", egress, err)
	}
	defer loaded.Close()
	s.ports = append(s.ports, shimPort{Port: port, id: id})
	p := &s.ports[len(s.ports)-1]
	// The reader first: who has not heard a handshake leaves its connection alone.
	if err := p.put(loaded.DetachProgram(shimProgWeirShimHear), ebpf.AttachTCXIngress, link.Head()); err != nil {
		return err
	}
	return p.put(loaded.DetachProgram(egress), ebpf.AttachTCXEgress, anchor)
}

// put attaches a program to the port's device.
func (p *shimPort) put(program *ebpf.Program, to ebpf.AttachType, anchor link.Anchor) error {
	p.programs = append(p.programs, program)
	l, err := attach.Program(p.PortRef, program, to, anchor)
	if err == nil {
		p.links = append(p.links, l)
	}
	return err
}

// Close takes the shim off every port. A port that is gone already is no error.
func (s *Shim) Close() error {
	var errs []error
	for i := range s.ports {
		for _, l := range s.ports[i].links {
			errs = append(errs, l.Close())
		}
		for _, p := range s.ports[i].programs {
			errs = append(errs, p.Close())
		}
	}
	s.ports = nil
	// Closing a nil map is allowed and does nothing.
	if err := errors.Join(append(errs, s.counts.Close(), s.connections.Close())...); err != nil {
		return fmt.Errorf("detach shim: %w", err)
	}
	return nil
}
