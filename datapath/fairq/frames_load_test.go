package fairq

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

// loaded are a switch's tables, and programs that use them. The verifier takes a tenth of a second for each program, so
// tests with the same constants use them one after another, with the tables emptied in between.
type loaded struct {
	fairqMaps
	constants frameConstants
	spec      *ebpf.CollectionSpec
	programs  []*ebpf.Program // of each port
	control   *framePrograms  // those that user space runs; nil: not loaded
}

// frameConstants are the constants that the program is loaded with, and the sizes of its tables.
type frameConstants struct {
	count, scale, shrink, unifyShift uint8
	signed                           Signed
	scoped, vlansIgnored             bool
	flows, pending                   uint32
	edge                             EdgeMode
}

// framePrograms are fairqPrograms without those that packets run.
type framePrograms struct {
	WeirFairqArm    *ebpf.Program `ebpf:"weir_fairq_arm"`
	WeirFairqClear  *ebpf.Program `ebpf:"weir_fairq_clear"`
	WeirFairqDisarm *ebpf.Program `ebpf:"weir_fairq_disarm"`
	WeirFairqSweep  *ebpf.Program `ebpf:"weir_fairq_sweep"`
}

// Close closes all programs.
func (p *framePrograms) Close() error {
	return _FairqClose(p.WeirFairqArm, p.WeirFairqClear, p.WeirFairqDisarm, p.WeirFairqSweep)
}

// unused are those that no test uses now.
var unused struct {
	sync.Mutex
	all map[frameConstants][]*loaded
}

// take returns unused tables and programs with these constants for so many ports, until the test ends.
func (c frameConstants) take(tb testing.TB, ports int) *loaded {
	tb.Helper()
	unused.Lock()
	var l *loaded
	if free := unused.all[c]; len(free) > 0 {
		l, unused.all[c] = free[len(free)-1], free[:len(free)-1]
	}
	unused.Unlock()
	if l == nil {
		var err error
		if l, err = c.load(); err != nil {
			tb.Fatalf("%+v", err)
		}
	}
	tb.Cleanup(func() {
		if err := l.giveBack(); err != nil {
			tb.Error(err)
		}
	})
	for id := len(l.programs); id < ports; id++ {
		var p struct {
			WeirFairq *ebpf.Program `ebpf:"weir_fairq"`
		}
		if err := l.loadInto(&p, uint32(id)); err != nil {
			tb.Fatalf("%+v", err)
		}
		l.programs = append(l.programs, p.WeirFairq)
	}
	return l
}

// load makes the tables.
func (c frameConstants) load() (*loaded, error) {
	spec, err := loadFairq()
	if err != nil {
		return nil, err
	}
	if c.flows > 0 {
		setTables(spec, c.flows, c.pending)
		if err := spec.Variables[fairqVarNearPlaces].Set(nearPlaces(c.flows)); err != nil {
			return nil, err
		}
	}
	scoped := uint8(0)
	if c.scoped {
		scoped = 1
	}
	for name, value := range map[string]uint8{
		fairqVarCount: c.count, fairqVarScale: c.scale, fairqVarShrink: c.shrink, fairqVarUnifyShift: c.unifyShift,
		fairqVarScoped: scoped, fairqVarSignedMode: uint8(c.signed),
	} {
		err = errors.Join(err, spec.Variables[name].Set(value))
	}
	err = errors.Join(err, spec.Variables[fairqVarVlansIgnored].Set(c.vlansIgnored))
	edge := c.edge.withDefaults()
	if err = errors.Join(err, edge.set(spec)); err != nil {
		return nil, err
	}
	l := &loaded{constants: c, spec: spec}
	return l, spec.Copy().LoadAndAssign(&l.fairqMaps, &ebpf.CollectionOptions{Cache: attach.KernelTypes()})
}

// loadInto loads programs for a port.
func (l *loaded) loadInto(programs any, id uint32) error {
	if err := l.spec.Variables[fairqVarPortId].Set(id); err != nil {
		return err
	}
	return l.spec.Copy().LoadAndAssign(programs, &ebpf.CollectionOptions{Cache: attach.KernelTypes(), MapReplacements: l.shared()})
}

// controls returns the programs that user space runs.
func (l *loaded) controls(tb testing.TB) *framePrograms {
	tb.Helper()
	if l.control == nil {
		p := &framePrograms{}
		if err := l.loadInto(p, 0); err != nil {
			tb.Fatalf("%+v", err)
		}
		l.control = p
	}
	return l.control
}

// giveBack empties the tables for the next test. Those with timers, and those of a size of their own, are closed.
func (l *loaded) giveBack() error {
	if l.control != nil || l.constants.flows > 0 {
		var errs []error
		if l.control != nil {
			errs = append(errs, l.control.Close())
		}
		for _, p := range l.programs {
			errs = append(errs, p.Close())
		}
		return errors.Join(append(errs, l.Close())...)
	}
	if err := emptyNear(l.Near); err != nil {
		return fmt.Errorf("empty the places: %w", err)
	}
	tables := reflect.ValueOf(&l.fairqMaps).Elem()
	for i := range tables.NumField() {
		if err := empty(tables.Field(i).Interface().(*ebpf.Map), len(l.programs)); err != nil {
			return fmt.Errorf("empty %s: %w", tables.Type().Field(i).Name, err)
		}
	}
	unused.Lock()
	defer unused.Unlock()
	if unused.all == nil {
		unused.all = map[frameConstants][]*loaded{}
	}
	unused.all[l.constants] = append(unused.all[l.constants], l)
	return nil
}

// emptyNear frees the places that have a holder.
func emptyNear(m *ebpf.Map) error {
	var held []uint32
	err := eachEntry(m, func(place *uint32, at *fairqNearPlace) bool {
		if at.Holder != 0 {
			held = append(held, *place)
		}
		return true
	})
	for _, place := range held {
		err = errors.Join(err, m.Put(place, fairqNearPlace{}))
	}
	return err
}

// empty deletes a table's entries, or clears those of so many ports.
func empty(m *ebpf.Map, ports int) error {
	if m.Type() != ebpf.Array && m.Type() != ebpf.PerCPUArray {
		for key := make([]byte, m.KeySize()); ; {
			err := m.NextKey(nil, &key)
			if errors.Is(err, ebpf.ErrKeyNotExist) {
				return nil
			}
			if err = errors.Join(err, m.Delete(key)); err != nil {
				return err
			}
		}
	}
	for id := range min(m.MaxEntries(), uint32(ports)) {
		var clear any = make([]byte, m.ValueSize())
		if m.Type() == ebpf.PerCPUArray {
			cpus := make([][]byte, ebpf.MustPossibleCPU())
			for i := range cpus {
				cpus[i] = make([]byte, m.ValueSize())
			}
			clear = cpus
		}
		if err := m.Put(id, clear); err != nil {
			return err
		}
	}
	return nil
}
