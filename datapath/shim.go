package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// ShimSide says what the shim does at a port.
type ShimSide uint8

const (
	// ShimSend writes the window scale of who sends into the reserved bits of what leaves by the port: the
	// uplink of a host or a hypervisor.
	ShimSend ShimSide = 0
	// ShimClear takes them out again: the port of a VM, or the last switch port before a host.
	ShimClear ShimSide = 1
)

// ShimPort is a port and what the shim does there.
type ShimPort struct {
	PortRef
	Side ShimSide
}

// ShimConfig configures the shim.
type ShimConfig struct {
	// Connections is how many a table holds that all ports share; the one unused longest makes room. A
	// connection counts at every port that it passes. 0: 65536.
	Connections uint32
}

// Limits of bpf/shim.bpf.c.
const (
	maxShimPorts       = 1024
	shimConnections    = 1 << 16
	shimConnectionsMax = 1 << 22
)

// Shim is FairQ's end-host shim at work on some ports: it tells the switches between a ShimSend and a
// ShimClear port how windows are scaled (docs/spec 1.2; FairQScaleShim). It knows the connections whose
// SYN and SYN-ACK it saw, and touches no others. It goes with the process: switches then take what they
// learnt.
type Shim struct {
	ports       []shimPort
	counts      *ebpf.Map
	connections *ebpf.Map
}

// shimPort is one port of a Shim.
type shimPort struct {
	ShimPort
	id       uint32
	programs []*ebpf.Program
	links    []link.Link // one that the garbage collector takes is detached: kept here
}

// CheckShim says whether AttachShim can work on this kernel and for this user: nil, ErrPermission or a
// *MissingFeature.
func CheckShim() error { return checkAll(packetProbes()) }

// AttachShim puts the shim on each port's egress: at the head of the chain where it writes, at its tail
// where it clears, so that whoever reads the bits at that port does so between. A reader at the head of
// the port's ingress comes with it, for a scale counts only if both ends announced one. Errors name the
// port; *MissingFeature and ErrPermission can be told apart. On an error nothing stays attached.
func AttachShim(ports []ShimPort, c ShimConfig) (*Shim, error) {
	if c.Connections == 0 {
		c.Connections = shimConnections
	}
	switch {
	case len(ports) > maxShimPorts:
		return nil, fmt.Errorf("shim: %d ports: at most %d", len(ports), maxShimPorts)
	case c.Connections > shimConnectionsMax:
		return nil, fmt.Errorf("shim: a table of %d connections: at most %d", c.Connections, shimConnectionsMax)
	}
	if err := CheckShim(); err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	spec, err := loadShim()
	if err != nil {
		return nil, fmt.Errorf("shim: read the embedded program: %w", err)
	}
	spec.Maps[shimMapConnections].MaxEntries = c.Connections
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
func (s *Shim) attach(spec *ebpf.CollectionSpec, kernel *btf.Cache, id uint32, port ShimPort) error {
	egress, anchor := shimProgWeirShimSend, link.Head()
	if port.Side == ShimClear {
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
	s.ports = append(s.ports, shimPort{ShimPort: port, id: id})
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
	l, err := attachAt(p.PortRef, program, to, anchor)
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
