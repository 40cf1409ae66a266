// Package shim attaches FairQ's end-host shim, which writes window scales into reserved bits (bpf/fairq/shim.bpf.c).
package shim

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
)

// Side is what the shim does at a port.
type Side uint8

const (
	// Send writes the sender's window scale into the reserved bits of what leaves by the port: the uplink of a
	// host or a hypervisor.
	Send Side = 0
	// Clear clears the bits again: the port of a VM, or the last switch port before a host.
	Clear Side = 1
)

// Port is a port and what the shim does there.
type Port struct {
	attach.PortRef
	Side Side
}

// Config configures the shim.
type Config struct {
	// Connections is the size of a table that all ports share; a new entry replaces the one unused longest. A
	// connection counts at every port that it passes. 0: 65536.
	Connections uint32
}

// Limits of bpf/fairq/shim.bpf.c.
const (
	maxPorts           = 1024
	defaultConnections = 1 << 16
	maxConnections     = 1 << 22
)

// Shim is FairQ's end-host shim, attached to some ports. It shows the switches between a Send and a Clear port
// how windows are scaled (docs/spec 1.2; fairq.ScaleShim). It handles only connections whose SYN and SYN-ACK it
// saw. It ends with the process; then switches use the scales they learnt.
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
	links    []link.Link // kept here: the garbage collector would close them, which detaches the programs
}

// Check checks that Attach can work on this kernel and for this user. Errors: ErrPermission or *MissingFeature.
func Check() error { return attach.CheckAll(attach.PacketProbes()) }

// Attach puts the shim on each port's egress: at the head of the chain if it writes, at its tail if it clears. A
// program that reads the bits at that port then runs in between. Attach also puts a reader at the head of the
// port's ingress, because a scale counts only if both ends announced one. Errors name the port; they can be
// *MissingFeature or ErrPermission. After an error nothing stays attached.
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
	for id, p := range ports {
		if err := s.attach(spec, uint32(id), p); err != nil {
			return nil, errors.Join(fmt.Errorf("attach shim to %s: %w", p.Name, err), s.Close())
		}
	}
	return s, nil
}

// createMaps creates the maps that the programs of all ports share.
func (s *Shim) createMaps(spec *ebpf.CollectionSpec) (err error) {
	if s.counts, err = ebpf.NewMap(spec.Maps[shimMapCounts]); err != nil {
		return fmt.Errorf("map %s: %w", shimMapCounts, err)
	}
	if s.connections, err = ebpf.NewMap(spec.Maps[shimMapConnections]); err != nil {
		return fmt.Errorf("map %s: %w", shimMapConnections, err)
	}
	return nil
}

// attach loads a port's instances of the programs and attaches them to its device.
func (s *Shim) attach(spec *ebpf.CollectionSpec, id uint32, port Port) error {
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
		Cache:           attach.KernelTypes(),
		MapReplacements: map[string]*ebpf.Map{shimMapCounts: s.counts, shimMapConnections: s.connections},
	})
	if err != nil {
		return fmt.Errorf("load program %s: %w", egress, err)
	}
	defer loaded.Close()
	s.ports = append(s.ports, shimPort{Port: port, id: id})
	p := &s.ports[len(s.ports)-1]
	// Attach the reader first: the writer ignores connections whose handshake was not seen.
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

// Close detaches the shim from every port. It ignores ports whose device is gone.
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
