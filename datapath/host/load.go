package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

// source is what the programs' instances are made from.
type source struct {
	spec *ebpf.CollectionSpec
	pin  string
}

func newSource(c *Config) (*source, error) {
	spec, err := loadHost()
	if err != nil {
		return nil, fmt.Errorf("read the embedded program: %w", err)
	}
	spec.Maps[hostMapPairs].MaxEntries = c.Pairs
	spec.Maps[hostMapFlowGrants].MaxEntries = c.Flows
	spec.Maps[hostMapKeyed].MaxEntries = c.Pairs + c.Flows + 1
	spec.Maps[hostMapConnections].MaxEntries = c.Connections
	pending := max(c.Connections/4, 1024)
	spec.Maps[hostMapPending].MaxEntries = pending
	if err := spec.Variables[hostVarHandshakeNs].Set(uint32(time.Second) / (pending / 4)); err != nil {
		return nil, fmt.Errorf("set the share of handshakes: %w", err)
	}
	if err := spec.Variables[hostVarUplinkIfindex].Set(uint32(c.Uplink.Ifindex)); err != nil {
		return nil, fmt.Errorf("set the uplink: %w", err)
	}
	if err := spec.Variables[hostVarEcnMode].Set(ecnModes[c.ECN]); err != nil {
		return nil, fmt.Errorf("set the ECN mode: %w", err)
	}
	if c.Marks {
		if err := spec.Variables[hostVarCountCame].Set(uint32(1)); err != nil {
			return nil, fmt.Errorf("have marks counted: %w", err)
		}
	}
	return &source{spec: spec, pin: c.Pin}, nil
}

// setSeed sets the secret that the keys of IPv6 connections follow from.
func (s *source) setSeed(words [2]uint64) error {
	var seed [16]byte
	binary.LittleEndian.PutUint64(seed[:8], words[0])
	binary.LittleEndian.PutUint64(seed[8:], words[1])
	return attach.SetDigestKey(s.spec, seed)
}

// byName returns where the maps are, by their names.
func byName(m *hostMaps) map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		hostMapControls: &m.Controls, hostMapOwners: &m.Owners, hostMapVms: &m.Vms, hostMapVmGrants: &m.VmGrants,
		hostMapVmPorts: &m.VmPorts, hostMapNearPorts: &m.NearPorts, hostMapPairs: &m.Pairs, hostMapFlowGrants: &m.FlowGrants, hostMapKeyed: &m.Keyed,
		hostMapConnections: &m.Connections, hostMapPending: &m.Pending, hostMapHandshakes: &m.Handshakes, hostMapCounts: &m.Counts,
		hostMapCame: &m.Came, hostMapCameTotal: &m.CameTotal,
	}
}

// openMaps creates the maps, or opens the pinned ones.
func (s *source) openMaps() (*hostMaps, error) {
	if s.pin != "" {
		if err := attach.CheckSchema(s.pin, hostMapControls, schemaVersion); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	open := &hostMaps{}
	for name, at := range byName(open) {
		spec := s.spec.Maps[name].Copy()
		if s.pin != "" {
			spec.Pinning = ebpf.PinByName
		}
		m, err := ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: s.pin})
		if errors.Is(err, ebpf.ErrMapIncompatible) {
			err = errors.Join(&attach.OtherSchema{Dir: s.pin, Want: schemaVersion}, err)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("map %s: %w", name, err), open.Close())
		}
		*at = m
	}
	return open, nil
}

// Rehearse checks that Open can load its programs here. It changes nothing.
func Rehearse(c Config) error {
	if err := c.complete(); err != nil {
		return err
	}
	s, err := newSource(&c)
	if err == nil {
		err = s.rehearse()
	}
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}

// rehearse checks that the programs load here, before a running process is asked to leave. It changes nothing.
func (s *source) rehearse() error {
	alone := &source{spec: s.spec}
	m, err := alone.openMaps()
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	p, err := alone.loadUplink(m, 0)
	if err != nil {
		return err
	}
	return p.Close()
}

// loadUplink loads the uplink's program. relaxed: the relaxed class; 0: no limiter.
func (s *source) loadUplink(maps *hostMaps, relaxed uint32) (*ebpf.Program, error) {
	return s.load(maps, hostProgWeirHostUp, map[string]any{hostVarRelaxedClass: relaxed})
}

// loadVM loads the program of the VMs' ports.
func (s *source) loadVM(maps *hostMaps) (*ebpf.Program, error) {
	return s.load(maps, hostProgWeirHostVm, nil)
}

func (s *source) load(maps *hostMaps, name string, variables map[string]any) (*ebpf.Program, error) {
	spec := s.spec.Copy()
	for key, value := range variables {
		if err := spec.Variables[key].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", key, err)
		}
	}
	for other := range spec.Programs {
		if other != name {
			delete(spec.Programs, other)
		}
	}
	shared := map[string]*ebpf.Map{}
	for key, at := range byName(maps) {
		shared[key] = *at
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: attach.KernelTypes(), MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("load program %s: %w", name, err)
	}
	defer loaded.Close()
	return loaded.DetachProgram(name), nil
}
