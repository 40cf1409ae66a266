package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Action is what a packet meets that finds the queue over the threshold.
type Action uint8

// NotECT is what a Not-ECT packet meets over the threshold under ActionMark.
type NotECT uint8

// The values are those of core/mark.h.
const (
	ActionMark Action = 0 // ECT becomes CE: the law `ecn`
	ActionDrop Action = 1 // dropped: the law `red`

	NotECTPass NotECT = 0
	NotECTDrop NotECT = 1
)

// MarkConfig is the configuration of the laws `ecn` and `red`; core/mark.h specifies them.
type MarkConfig struct {
	ThresholdBytes uint32 // K: over it means more than it
	// PortThresholds overrides ThresholdBytes for ports by their name.
	PortThresholds map[string]uint32
	Action         Action
	NotECT         NotECT
}

func (c *MarkConfig) of(port string) *markMarkConfig {
	threshold := c.ThresholdBytes
	if t, ok := c.PortThresholds[port]; ok {
		threshold = t
	}
	return &markMarkConfig{ThresholdBytes: threshold, Action: uint8(c.Action), NotEct: uint8(c.NotECT)}
}

// Mark is the marking program at work on some ports.
type Mark struct {
	ports    []PortRef
	configs  *ebpf.Map
	counts   *ebpf.Map
	programs []*ebpf.Program
	links    []link.Link // a link that the garbage collector takes is detached: kept here
}

// MarkStats counts the packets that reached the program of a port, by what became of them. A GSO
// packet counts its segments. Seen is the sum of the others.
type MarkStats struct {
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

// maxMarkPorts is the size of the maps of bpf/mark.bpf.c.
const maxMarkPorts = 1024

// AttachMark puts the marking program at the head of each port's egress chain. Programs that are
// attached at the head later run before it. Errors name the port; *NoQueue and *MissingFeature can
// be told apart; on an error nothing stays attached.
func AttachMark(ports []PortRef, c MarkConfig) (*Mark, error) {
	if len(ports) > maxMarkPorts {
		return nil, fmt.Errorf("mark: %d ports: at most %d", len(ports), maxMarkPorts)
	}
	if err := CheckMark(); err != nil {
		return nil, fmt.Errorf("mark: %w", err)
	}
	spec, err := loadMark()
	if err != nil {
		return nil, fmt.Errorf("mark: read the embedded program: %w", err)
	}
	m := &Mark{ports: ports}
	if err := m.createMaps(spec); err != nil {
		return nil, errors.Join(fmt.Errorf("mark: %w", err), m.Close())
	}
	for id, p := range ports {
		if err := m.attach(spec, uint32(id), p, c.of(p.Name)); err != nil {
			return nil, errors.Join(fmt.Errorf("attach mark to %s: %w", p.Name, err), m.Close())
		}
	}
	return m, nil
}

// createMaps makes the maps that the programs of all ports share.
func (m *Mark) createMaps(spec *ebpf.CollectionSpec) (err error) {
	if m.configs, err = ebpf.NewMap(spec.Maps[markMapConfigs]); err != nil {
		return fmt.Errorf("map %s: %w", markMapConfigs, err)
	}
	if m.counts, err = ebpf.NewMap(spec.Maps[markMapCounts]); err != nil {
		return fmt.Errorf("map %s: %w", markMapCounts, err)
	}
	return nil
}

// attach loads the instance of the program for port id and puts it in front of the port's chain.
func (m *Mark) attach(spec *ebpf.CollectionSpec, id uint32, p PortRef, c *markMarkConfig) error {
	if _, err := p.QueueWithBacklog(); err != nil {
		return err
	}
	if err := m.configs.Put(id, c); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	prog, err := loadMarkProgram(spec, id, m.configs, m.counts)
	if err != nil {
		return err
	}
	m.programs = append(m.programs, prog)
	var l link.Link
	err = p.In(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{
			Interface: p.Ifindex, Program: prog, Attach: ebpf.AttachTCXEgress, Anchor: link.Head(),
		})
		return err
	})
	if err != nil {
		return err
	}
	m.links = append(m.links, l)
	return nil
}

// loadMarkProgram loads the program with port_id set to id, around the maps given.
func loadMarkProgram(spec *ebpf.CollectionSpec, id uint32, configs, counts *ebpf.Map) (*ebpf.Program, error) {
	spec = spec.Copy()
	if err := spec.Variables[markVarPortId].Set(id); err != nil {
		return nil, fmt.Errorf("set port id: %w", err)
	}
	var programs markPrograms
	err := spec.LoadAndAssign(&programs, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{markMapConfigs: configs, markMapCounts: counts},
	})
	if err != nil {
		return nil, fmt.Errorf("load program weir_mark: %w", err)
	}
	return programs.WeirMark, nil
}

// Stats reads the counters of every port, in the order of the ports given to AttachMark.
func (m *Mark) Stats() ([]MarkStats, error) {
	stats := make([]MarkStats, len(m.ports))
	for id, p := range m.ports {
		var cpus []markPortStats
		if err := m.counts.Lookup(uint32(id), &cpus); err != nil {
			return nil, fmt.Errorf("mark: counters of %s: %w", p.Name, err)
		}
		s := MarkStats{Port: p.Name}
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
		stats[id] = s
	}
	return stats, nil
}

// Close detaches the program from every port. A port that is gone already is no error.
func (m *Mark) Close() error {
	var errs []error
	for _, l := range m.links {
		errs = append(errs, l.Close())
	}
	for _, p := range m.programs {
		errs = append(errs, p.Close())
	}
	// Closing a nil map is allowed and does nothing.
	errs = append(errs, m.configs.Close(), m.counts.Close())
	m.links, m.programs = nil, nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detach mark: %w", err)
	}
	return nil
}
