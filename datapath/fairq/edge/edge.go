// Package edge attaches FairQ's edge, which applies the windows that switches in edge mode advertise
// (bpf/fairq/edge.bpf.c).
package edge

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
	"weir/datapath/fairq"
)

// Side is where the guest is.
type Side uint8

const (
	// Guest means that the guest is behind the port: a hypervisor's port to a VM, or a rack switch's to a
	// server.
	Guest Side = 0
	// Host means that this host itself is the guest, and the port is its own device.
	Host Side = 1
)

// Port is a port next to a guest.
type Port struct {
	attach.PortRef
	Side Side
}

// Config configures the edge.
type Config struct {
	// Lease is how long a window is applied after the last ACK that advertised it, 10 ms to 60 s: fairq.EdgeMode.Lease
	// of the switches. Then ACKs pass unchanged. 0: 1 s.
	Lease time.Duration
	// Shrink has the meaning of fairq.Config.Shrink without an edge.
	Shrink fairq.Shrink
	// FloorBytes is fairq.Law.FloorBytes of the switches: least window of a flow; 0: the flow's own MSS.
	FloorBytes uint32
	// Connections is the size of each of two tables that all ports share: handshakes, and flows with an
	// advertised window. A new entry replaces the one unused longest. 0: 65536.
	Connections uint32
}

// Limits of bpf/fairq/edge.bpf.c.
const (
	maxPorts           = 1024
	defaultConnections = 1 << 16
	maxConnections     = 1 << 22
)

// Edge applies the windows that switches in edge mode (fairq.Config.Edge) advertise. It remembers the window of
// each flow from its flagged ACKs, writes it into all of them, and clears the flag before the guest sees it. It
// also clears a flag from the guest: the ports given to Attach are the boundary of trust, and should include
// every port by which a tenant's packets enter the network. It ends with the process; then ACKs pass unchanged.
type Edge struct {
	ports []edgePort
	maps  map[string]*ebpf.Map
}

// edgePort is one port of an Edge.
type edgePort struct {
	Port
	id       uint32
	programs []*ebpf.Program
	links    []link.Link // kept here: the garbage collector would close them, which detaches the programs
}

// Check checks that Attach can work on this kernel and for this user. Errors: ErrPermission or *MissingFeature.
func Check() error { return attach.CheckAll(attach.PacketProbes()) }

// Attach puts the edge on the ports. The program towards the guest is at the tail of its chain, behind a switch
// program that advertises windows at the same port. The program from the guest is at the head of its chain.
// Errors name the port; they can be *MissingFeature or ErrPermission. After an error nothing stays attached.
func Attach(ports []Port, c Config) (*Edge, error) {
	c = c.withDefaults()
	switch {
	case len(ports) > maxPorts:
		return nil, fmt.Errorf("edge: %d ports: at most %d", len(ports), maxPorts)
	case c.Connections > maxConnections:
		return nil, fmt.Errorf("edge: tables of %d connections: at most %d", c.Connections, maxConnections)
	case c.Lease < 10*time.Millisecond || c.Lease > 60*time.Second:
		return nil, fmt.Errorf("edge: a lease of %v: 10ms to 60s", c.Lease)
	}
	if err := Check(); err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	spec, err := loadEdge()
	if err != nil {
		return nil, fmt.Errorf("edge: read the embedded program: %w", err)
	}
	if err := errors.Join(c.set(spec), attach.SetRandomDigestKey(spec)); err != nil {
		return nil, fmt.Errorf("edge: set the program's constants: %w", err)
	}
	e := &Edge{maps: map[string]*ebpf.Map{}}
	if err := e.createMaps(spec); err != nil {
		return nil, errors.Join(fmt.Errorf("edge: %w", err), e.Close())
	}
	for id, p := range ports {
		if err := e.attach(spec, uint32(id), p); err != nil {
			return nil, errors.Join(fmt.Errorf("attach edge to %s: %w", p.Name, err), e.Close())
		}
	}
	return e, nil
}

func (c Config) withDefaults() Config {
	if c.Lease == 0 {
		c.Lease = time.Second
	}
	if c.Connections == 0 {
		c.Connections = defaultConnections
	}
	return c
}

func (c *Config) set(spec *ebpf.CollectionSpec) error {
	spec.Maps[edgeMapHandshakes].MaxEntries = c.Connections
	spec.Maps[edgeMapWindows].MaxEntries = c.Connections
	return errors.Join(
		spec.Variables[edgeVarLease].Set(fairq.EdgeClock(c.Lease)),
		spec.Variables[edgeVarFloorBytes].Set(c.FloorBytes),
		spec.Variables[edgeVarShrink].Set(uint8(c.Shrink)),
	)
}

// createMaps creates the maps that the programs of all ports share.
func (e *Edge) createMaps(spec *ebpf.CollectionSpec) error {
	for _, name := range []string{edgeMapCounts, edgeMapHandshakes, edgeMapWindows} {
		m, err := ebpf.NewMap(spec.Maps[name])
		if err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
		e.maps[name] = m
	}
	return nil
}

// programsAt are the programs of a port by the guest's side: towards the guest, and from it.
var edgeProgramsAt = map[Side][2]struct {
	name string
	to   ebpf.AttachType
}{
	Guest: {{edgeProgWeirEdgeApply, ebpf.AttachTCXEgress}, {edgeProgWeirEdgeGuard, ebpf.AttachTCXIngress}},
	Host:  {{edgeProgWeirEdgeApplyIn, ebpf.AttachTCXIngress}, {edgeProgWeirEdgeGuardOut, ebpf.AttachTCXEgress}},
}

// attach loads a port's instances of the programs and attaches them to its device.
func (e *Edge) attach(spec *ebpf.CollectionSpec, id uint32, port Port) error {
	mtu, err := attach.DeviceMTU(port.PortRef)
	if err != nil {
		return err
	}
	spec = spec.Copy()
	if err := errors.Join(spec.Variables[edgeVarPortId].Set(id), spec.Variables[edgeVarMssMax].Set(mtu-attach.SegmentOverhead)); err != nil {
		return fmt.Errorf("set port id: %w", err)
	}
	apply, guard := edgeProgramsAt[port.Side][0], edgeProgramsAt[port.Side][1]
	for name := range spec.Programs {
		if name != apply.name && name != guard.name {
			delete(spec.Programs, name)
		}
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: attach.KernelTypes(), MapReplacements: e.maps})
	if err != nil {
		return fmt.Errorf("load program %s: %w", apply.name, err)
	}
	defer loaded.Close()
	e.ports = append(e.ports, edgePort{Port: port, id: id})
	p := &e.ports[len(e.ports)-1]
	// Attach the guard first: the edge must not trust a flag before flags from guests are cleared.
	if err := p.put(loaded.DetachProgram(guard.name), guard.to, link.Head()); err != nil {
		return err
	}
	return p.put(loaded.DetachProgram(apply.name), apply.to, link.Tail())
}

// put attaches a program to the port's device.
func (p *edgePort) put(program *ebpf.Program, to ebpf.AttachType, anchor link.Anchor) error {
	p.programs = append(p.programs, program)
	l, err := attach.Program(p.PortRef, program, to, anchor)
	if err == nil {
		p.links = append(p.links, l)
	}
	return err
}

// Close detaches the edge from every port. It ignores ports whose device is gone.
func (e *Edge) Close() error {
	var errs []error
	for i := range e.ports {
		for _, l := range e.ports[i].links {
			errs = append(errs, l.Close())
		}
		for _, p := range e.ports[i].programs {
			errs = append(errs, p.Close())
		}
	}
	for _, m := range e.maps {
		errs = append(errs, m.Close())
	}
	e.ports, e.maps = nil, nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detach edge: %w", err)
	}
	return nil
}

// Needs returns the probes of the edge.
func Needs() attach.Needs { return attach.Needs{Use: attach.UseEdge, Probes: attach.PacketProbes()} }
