// Package mark loads the marking program (laws ecn and red) and attaches it to ports. The law is core/mark.h, the program
// bpf/mark/mark.bpf.c.
package mark

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
)

// Action is what the law does with a packet that finds the queue over the threshold.
type Action uint8

// NotECT is what ActionMark does with a Not-ECT packet over the threshold.
type NotECT uint8

// The values are those of core/mark.h.
const (
	ActionMark Action = 0 // ECT becomes CE: the law `ecn`
	ActionDrop Action = 1 // dropped: the law `red`

	NotECTPass NotECT = 0
	NotECTDrop NotECT = 1
)

// Config is the configuration of the laws `ecn` and `red`; core/mark.h specifies them.
type Config struct {
	ThresholdBytes uint32 // K; "over" means more than K
	// PortThresholds overrides ThresholdBytes for ports by their name.
	PortThresholds map[string]uint32
	Action         Action
	NotECT         NotECT
	// Pin is a directory in a BPF file system. With it the program and its counters outlive the process, and a
	// later Attach with the same directory takes the ports over without detaching. Empty: everything ends with
	// the process.
	Pin string
	// Tail attaches at the tail of each port's chain, behind other laws and before the telemetry, instead of at its head.
	Tail bool
}

func (c *Config) of(port string) *markMarkConfig {
	threshold := c.ThresholdBytes
	if t, ok := c.PortThresholds[port]; ok {
		threshold = t
	}
	return &markMarkConfig{ThresholdBytes: threshold, Action: uint8(c.Action), NotEct: uint8(c.NotECT)}
}

// Mark is the marking program attached to some ports.
type Mark struct {
	pin     string
	tail    bool
	ports   []markPort
	configs *ebpf.Map
	counts  *ebpf.Map
}

// markPort is one port of a Mark.
type markPort struct {
	attach.PortRef
	id      uint32
	program *ebpf.Program
	link    link.Link // kept here: the garbage collector would close it, which detaches the program
	isNew   bool      // not taken over
}

// Stats counts the packets that reached the program of a port, by their outcome. A GSO packet counts its
// segments. Seen is the sum of the others.
type Stats struct {
	Port           string
	Seen           uint64
	Marked         uint64 // ECT became CE
	DroppedByLaw   uint64 // over the threshold, ActionDrop
	DroppedNotECT  uint64 // over the threshold, Not-ECT, NotECTDrop
	PassedUnder    uint64 // queue at or under the threshold
	PassedCE       uint64 // over it, CE already
	PassedNotECT   uint64 // over it, Not-ECT, NotECTPass
	PassedNotIP    uint64
	PassedShort    uint64 // ended before its headers did, or they contradict themselves
	PassedUnmarked uint64 // should have been marked; the kernel had no memory to make it writable
}

// maxMarkPorts is the size of the maps of bpf/mark/mark.bpf.c.
const maxPorts = 1024

// Attach puts the marking program at the head of each port's egress chain. Programs that are attached at the
// head later run before it. Errors name the port; they can be *NoQueue, *MissingFeature or ErrPermission. After
// an error nothing new stays attached, and pinned programs continue.
func Attach(ports []attach.PortRef, c Config) (*Mark, error) {
	if len(ports) > maxPorts {
		return nil, fmt.Errorf("mark: %d ports: at most %d", len(ports), maxPorts)
	}
	if err := Check(); err != nil {
		return nil, fmt.Errorf("mark: %w", err)
	}
	src, err := newMarkSource()
	if err != nil {
		return nil, fmt.Errorf("mark: %w", err)
	}
	m := &Mark{pin: c.Pin, tail: c.Tail}
	if err := m.createMaps(src.spec); err != nil {
		return nil, errors.Join(fmt.Errorf("mark: %w", err), m.abandon())
	}
	pinned, err := attach.ReadPins(c.Pin)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mark: %w", err), m.abandon())
	}
	for _, p := range ports {
		if err := m.attach(src, p, c.of(p.Name), pinned); err != nil {
			return nil, errors.Join(fmt.Errorf("attach mark to %s: %w", p.Name, err), m.abandon())
		}
	}
	// Give up ports that the configuration no longer has.
	for _, stale := range pinned.Links {
		if err := stale.Remove(); err != nil {
			return nil, errors.Join(fmt.Errorf("mark: %w", err), m.abandon())
		}
	}
	return m, nil
}

// createMaps creates the maps that the programs of all ports share, or opens the pinned ones.
func (m *Mark) createMaps(spec *ebpf.CollectionSpec) (err error) {
	open := func(name string) (*ebpf.Map, error) {
		s := spec.Maps[name].Copy()
		if m.pin != "" {
			s.Pinning = ebpf.PinByName
		}
		opened, err := ebpf.NewMapWithOptions(s, ebpf.MapOptions{PinPath: m.pin})
		if errors.Is(err, ebpf.ErrMapIncompatible) {
			return nil, fmt.Errorf("map %s in %s belongs to another version of Weir: remove the directory: %w", name, m.pin, err)
		}
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		return opened, nil
	}
	if err := attach.MakePinDir(m.pin); err != nil {
		return err
	}
	if m.configs, err = open(markMapConfigs); err != nil {
		return err
	}
	m.counts, err = open(markMapCounts)
	return err
}

// attach loads the instance of the program for a port. It puts it in front of the port's chain, or in the place
// of the pinned one.
func (m *Mark) attach(src *markSource, ref attach.PortRef, c *markMarkConfig, pinned *attach.Pins) error {
	if _, err := ref.QueueWithBacklog(); err != nil {
		return err
	}
	name, err := attach.PinName(ref, m.pin)
	if err != nil {
		return err
	}
	old, takeOver := pinned.Take(name)
	p := markPort{PortRef: ref, id: old.ID, isNew: !takeOver}
	if !takeOver {
		p.id = pinned.FreeID()
		if err := m.clearCounters(p.id); err != nil {
			return err
		}
	}
	if err := m.configs.Put(p.id, c); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	if p.program, err = src.load(p.id, m.configs, m.counts); err != nil {
		return err
	}
	switch {
	case takeOver:
		p.link, err = old.Update(p.program)
	case m.tail:
		p.link, err = attach.Last(p.PortRef, p.program)
	default:
		p.link, err = attach.Program(p.PortRef, p.program, ebpf.AttachTCXEgress, link.Head())
	}
	m.ports = append(m.ports, p)
	if err != nil || m.pin == "" || takeOver {
		return err
	}
	return attach.PinLink(p.link, m.pin, name, p.id)
}

// clearCounters sets the counters of a port to 0, which an earlier port with its id may have used.
func (m *Mark) clearCounters(id uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("number of CPUs: %w", err)
	}
	if err := m.counts.Put(id, make([]markPortStats, cpus)); err != nil {
		return fmt.Errorf("clear counters: %w", err)
	}
	return nil
}

// markSource is what the program's instances are made from.
type markSource struct{ spec *ebpf.CollectionSpec }

func newMarkSource() (*markSource, error) {
	spec, err := loadMark()
	if err != nil {
		return nil, fmt.Errorf("read the embedded program: %w", err)
	}
	return &markSource{spec}, nil
}

// load loads the program with port_id set to id, using the maps given.
func (s *markSource) load(id uint32, configs, counts *ebpf.Map) (*ebpf.Program, error) {
	spec := s.spec.Copy()
	if err := spec.Variables[markVarPortId].Set(id); err != nil {
		return nil, fmt.Errorf("set port id: %w", err)
	}
	var programs markPrograms
	err := spec.LoadAndAssign(&programs, &ebpf.CollectionOptions{
		Cache:           attach.KernelTypes(),
		MapReplacements: map[string]*ebpf.Map{markMapConfigs: configs, markMapCounts: counts},
	})
	if err != nil {
		return nil, fmt.Errorf("load program weir_mark: %w", err)
	}
	return programs.WeirMark, nil
}

// Stats reads the counters of every port, in the order of the ports given to Attach.
func (m *Mark) Stats() ([]Stats, error) {
	stats := make([]Stats, len(m.ports))
	for i, p := range m.ports {
		var cpus []markPortStats
		if err := m.counts.Lookup(p.id, &cpus); err != nil {
			return nil, fmt.Errorf("mark: counters of %s: %w", p.Name, err)
		}
		s := Stats{Port: p.Name}
		for _, c := range cpus {
			s.Seen += c.Seen
			s.Marked += c.Marked
			s.DroppedByLaw += c.DropLaw
			s.DroppedNotECT += c.DropNotEct
			s.PassedUnder += c.PassUnder
			s.PassedCE += c.PassCe
			s.PassedNotECT += c.PassNotEct
			s.PassedNotIP += c.PassNotIp
			s.PassedShort += c.PassShort
			s.PassedUnmarked += c.PassUnwritable
		}
		stats[i] = s
	}
	return stats, nil
}

// Gone returns the names of the ports whose device is gone, or from which somebody detached the program.
func (m *Mark) Gone() (names []string) {
	for _, p := range m.ports {
		if !attach.HasDevice(p.link) {
			names = append(names, p.Name)
		}
	}
	return names
}

// Close detaches the program from every port, pinned or not. It ignores ports whose device is gone.
func (m *Mark) Close() error {
	var errs []error
	for _, p := range m.ports {
		if p.link != nil && m.pin != "" {
			errs = append(errs, p.link.Unpin())
		}
	}
	errs = append(errs, m.unpinMaps(), m.Leave())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detach mark: %w", err)
	}
	return nil
}

// unpinMaps removes the pinned maps and the directory when no port is pinned any longer.
func (m *Mark) unpinMaps() error {
	if m.pin == "" {
		return nil
	}
	left, err := attach.ReadPins(m.pin)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(left.Links) > 0 {
		return nil
	}
	errs := []error{err}
	for _, p := range []*ebpf.Map{m.configs, m.counts} {
		if p != nil {
			errs = append(errs, p.Unpin())
		}
	}
	return errors.Join(append(errs, attach.RemovePinDir(m.pin))...)
}

// Leave closes what this process has open. Pinned programs continue without it; the others are detached.
func (m *Mark) Leave() error {
	var errs []error
	for _, p := range m.ports {
		if p.link != nil {
			errs = append(errs, p.link.Close())
		}
		errs = append(errs, p.program.Close())
	}
	m.ports = nil
	// Closing a nil map is allowed and does nothing.
	return errors.Join(append(errs, m.configs.Close(), m.counts.Close())...)
}

// abandon undoes an Attach that failed: it detaches new links and keeps those taken over.
func (m *Mark) abandon() error {
	var errs []error
	for _, p := range m.ports {
		if p.link != nil && p.isNew && m.pin != "" {
			errs = append(errs, p.link.Unpin())
		}
	}
	return errors.Join(append(errs, m.unpinMaps(), m.Leave())...)
}

// Check checks that Attach can work on this kernel and for this user. Errors: ErrPermission or *MissingFeature.
func Check() error { return attach.CheckAll(attach.QueueProbes()) }

// Needs returns the probes of marking.
func Needs() attach.Needs { return attach.Needs{Use: attach.UseMark, Probes: attach.QueueProbes()} }
