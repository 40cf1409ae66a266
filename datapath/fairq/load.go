package fairq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

// other returns the error for a pinned map that differs from its specification.
func (s *programSource) other(spec *ebpf.MapSpec, have *ebpf.Map) *attach.OtherSchema {
	o := &attach.OtherSchema{Dir: s.cfg.Pin, Want: schemaVersion}
	if have != nil && have.Type() == spec.Type && have.KeySize() == spec.KeySize && have.ValueSize() == spec.ValueSize && have.MaxEntries() != spec.MaxEntries {
		o.Size = s.cfg.Flows
	}
	return o
}

// programSource is what the program's instances are made from.
type programSource struct {
	spec *ebpf.CollectionSpec
	cfg  *Config
}

func newSource(c *Config) (*programSource, error) {
	load := loadFairq
	if c.Trace != nil {
		load = c.Trace.Spec
	}
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("read the embedded program: %w", err)
	}
	setTables(spec, c.Flows, max(c.Flows/4, 1024))
	scoped := uint8(0)
	if len(c.Scope) > 0 {
		scoped = 1
	}
	err = errors.Join(
		spec.Variables[fairqVarCount].Set(uint8(c.Count)),
		spec.Variables[fairqVarScale].Set(uint8(c.Scale)),
		spec.Variables[fairqVarUnifyShift].Set(c.UnifyShift),
		spec.Variables[fairqVarShrink].Set(uint8(c.shrink())),
		spec.Variables[fairqVarSignedMode].Set(uint8(c.Signed)),
		spec.Variables[fairqVarScoped].Set(scoped),
		spec.Variables[fairqVarVlansIgnored].Set(c.IgnoreVLANs),
		spec.Variables[fairqVarNearPlaces].Set(nearPlaces(c.Flows)),
		c.Edge.set(spec),
	)
	if err != nil {
		return nil, fmt.Errorf("set the program's constants: %w", err)
	}
	return &programSource{spec: spec, cfg: c}, nil
}

// nearPlaces returns how many connections have a place of their own (bpf/fairq/table.h), besides those of the hash table.
func nearPlaces(flows uint32) uint32 { return flows / 4 }

// setTables sets the sizes of the tables: connections, and those of which only one end was seen.
func setTables(spec *ebpf.CollectionSpec, flows, pending uint32) {
	spec.Maps[fairqMapFlows].MaxEntries, spec.Maps[fairqMapPending].MaxEntries = flows, pending
	spec.Maps[fairqMapNear].MaxEntries = max(nearPlaces(flows), 1)
}

// byName returns where the maps are that the instances of a switch share, and that are pinned, by their names.
func (m *fairqMaps) byName() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		fairqMapControls: &m.Controls, fairqMapConfigs: &m.Configs, fairqMapPorts: &m.Ports, fairqMapCounts: &m.Counts,
		fairqMapNear: &m.Near, fairqMapFlows: &m.Flows, fairqMapPending: &m.Pending, fairqMapScope: &m.Scope, fairqMapTimers: &m.Timers,
		fairqMapGroups: &m.Groups, fairqMapSignedSources: &m.SignedSources, fairqMapCredits: &m.Credits,
		fairqMapRepairConfigs: &m.RepairConfigs, fairqMapRepairPorts: &m.RepairPorts, fairqMapRepairStats: &m.RepairStats, fairqMapRepairFlows: &m.RepairFlows,
	}
}

// parking returns where the maps of a parking are that parks nothing. They are not pinned.
func (m *fairqMaps) parking() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{fairqMapParking: &m.Parking, fairqMapParkPorts: &m.ParkPorts, fairqMapParkStats: &m.ParkStats}
}

// shared returns the same maps, for a program that uses them.
func (m *fairqMaps) shared() map[string]*ebpf.Map {
	all := map[string]*ebpf.Map{}
	for name, at := range m.byName() {
		all[name] = *at
	}
	return all
}

// openMaps creates the shared maps, or opens the pinned ones.
func (s *programSource) openMaps() (*fairqMaps, error) {
	if s.cfg.Pin != "" {
		if err := attach.CheckSchema(s.cfg.Pin, fairqMapControls, schemaVersion); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	open := &fairqMaps{}
	for name, at := range open.byName() {
		spec := s.spec.Maps[name].Copy()
		spec.Name = pinName(name)
		if s.cfg.Pin != "" {
			spec.Pinning = ebpf.PinByName
		}
		m, err := ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: s.cfg.Pin})
		if err != nil {
			_ = open.Close()
			if errors.Is(err, ebpf.ErrMapIncompatible) {
				return nil, fmt.Errorf("map %s: %w", name, errors.Join(&attach.OtherSchema{Dir: s.cfg.Pin, Want: schemaVersion}, err))
			}
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		*at = m
	}
	for name, at := range open.parking() {
		m, err := ebpf.NewMap(s.spec.Maps[name])
		if err != nil {
			_ = open.Close()
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		*at = m
	}
	return open, nil
}

// pinName returns the name under which a map is pinned. The map of the groups keeps the name that it had in earlier
// versions, so that a new version takes over its counters.
func pinName(name string) string {
	if name == fairqMapGroups {
		return "arms"
	}
	return name
}

// tablesPinned reports whether dir has pinned tables.
func tablesPinned(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, fairqMapControls))
	return err == nil
}

// rehearse checks that the programs load here and could take over the pinned tables. It changes nothing.
func (s *programSource) rehearse() error {
	if !s.cfg.Renew {
		if err := s.checkPinned(); err != nil {
			return err
		}
	}
	again := s.trial()
	m, err := again.openMaps()
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	program, err := again.loadPort(0, m, nil)
	if err != nil {
		return err
	}
	control, err := again.loadControl(m)
	return errors.Join(err, control.close(), program.Close())
}

// trialFlows is the number of connections in the tables of a trial.
const trialFlows = 1024

// trial returns a source of the same programs with tables of its own. Where the pinned tables stay, these are small: the
// kernel allocates a whole table at once, and a second one could exceed the machine's memory.
func (s *programSource) trial() *programSource {
	alone := *s.cfg
	alone.Pin = ""
	again := &programSource{s.spec.Copy(), &alone}
	if !s.cfg.Renew {
		setTables(again.spec, trialFlows, trialFlows)
	}
	return again
}

// checkPinned checks that the pinned tables have the layout of this version.
func (s *programSource) checkPinned() error {
	if err := attach.CheckSchema(s.cfg.Pin, fairqMapControls, schemaVersion); err != nil {
		return ignoreMissing(err)
	}
	m, err := openPinned(s.cfg.Pin, nil)
	if err != nil {
		return ignoreMissing(err)
	}
	defer func() { _ = m.Close() }()
	for name, opened := range m.shared() {
		if err := s.spec.Maps[name].Compatible(opened); err != nil {
			return fmt.Errorf("map %s: %w", name, errors.Join(s.other(s.spec.Maps[name], opened), err))
		}
	}
	return nil
}

// ignoreMissing ignores an error for tables that do not exist yet.
func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// load loads all programs, for port 0, with the maps given.
func (s *programSource) load(maps *fairqMaps) (*fairqPrograms, error) {
	programs := &fairqPrograms{}
	return programs, s.loadInto(programs, 0, maps, nil)
}

// loadPort loads the program of one port.
func (s *programSource) loadPort(id uint32, maps *fairqMaps, parking map[string]*ebpf.Map) (*ebpf.Program, error) {
	var one struct {
		WeirFairq *ebpf.Program `ebpf:"weir_fairq"`
	}
	err := s.loadInto(&one, id, maps, parking)
	return one.WeirFairq, err
}

// controlPrograms are the programs that user space runs.
type controlPrograms struct {
	Arm    *ebpf.Program `ebpf:"weir_fairq_arm"`
	Disarm *ebpf.Program `ebpf:"weir_fairq_disarm"`
	Clear  *ebpf.Program `ebpf:"weir_fairq_clear"`
	Sweep  *ebpf.Program `ebpf:"weir_fairq_sweep"`
}

func (s *programSource) loadControl(maps *fairqMaps) (*controlPrograms, error) {
	programs := &controlPrograms{}
	if err := s.loadInto(programs, 0, maps, nil); err != nil {
		return nil, err
	}
	return programs, nil
}

func (p *controlPrograms) close() error {
	if p == nil {
		return nil
	}
	return errors.Join(p.Arm.Close(), p.Disarm.Close(), p.Clear.Close(), p.Sweep.Close())
}

// loadInto loads programs for a port. parking: the maps of its parking; nil: none.
func (s *programSource) loadInto(programs any, id uint32, tables *fairqMaps, parking map[string]*ebpf.Map) error {
	spec := s.spec.Copy()
	if err := spec.Variables[fairqVarPortId].Set(id); err != nil {
		return fmt.Errorf("set port id: %w", err)
	}
	var c fairqControl
	if err := tables.Controls.Lookup(uint32(0), &c); err != nil {
		return fmt.Errorf("read control: %w", err)
	}
	var seed [16]byte
	binary.LittleEndian.PutUint64(seed[:8], c.Seed[0])
	binary.LittleEndian.PutUint64(seed[8:], c.Seed[1])
	if err := attach.SetDigestKey(spec, seed); err != nil {
		return err
	}
	if s.cfg.credits() {
		spec.Programs[switchProgram] = spec.Programs[creditProgram].Copy()
		spec.Programs[switchProgram].Name = switchProgram
	}
	if s.cfg.Observe {
		spec.Programs[switchProgram].Name = observeProgram
	}
	shared := tables.shared()
	if s.cfg.Trace != nil {
		maps.Copy(shared, s.cfg.Trace.Maps())
	}
	for name, at := range tables.parking() {
		if *at != nil {
			shared[name] = *at
		}
	}
	maps.Copy(shared, parking)
	if err := spec.LoadAndAssign(programs, &ebpf.CollectionOptions{Cache: attach.KernelTypes(), MapReplacements: shared}); err != nil {
		return fmt.Errorf("load program weir_fairq: %w", err)
	}
	return nil
}
