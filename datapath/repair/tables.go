package repair

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/reading"
)

const (
	schemaVersion = 3 // layout of the tables; raised whenever one changes
	programName   = kernelProgWeirRepair
	defaultLease  = time.Second
)

// tables are the tables of a switch.
type tables struct{ controls, configs, ports, stats, flows *ebpf.Map }

// byName returns where the tables are, by the names of their maps.
func (t *tables) byName() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		kernelMapRepairControls: &t.controls, kernelMapRepairConfigs: &t.configs, kernelMapRepairPorts: &t.ports,
		kernelMapRepairStats: &t.stats, kernelMapRepairFlows: &t.flows,
	}
}

func (t *tables) close() error {
	var errs []error
	for _, at := range t.byName() {
		errs = append(errs, (*at).Close()) // of a nil map: nothing
	}
	return errors.Join(errs...)
}

// makeTables makes the tables, or opens those pinned in dir. Errors: *attach.OtherSchema.
func makeTables(dir string) (*tables, error) {
	if dir != "" {
		if err := attach.CheckSchema(dir, kernelMapRepairControls, schemaVersion); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	spec, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("read the embedded program: %w", err)
	}
	t := &tables{}
	for name, at := range t.byName() {
		s := spec.Maps[name]
		if dir != "" {
			s.Pinning = ebpf.PinByName
		}
		if *at, err = ebpf.NewMapWithOptions(s, ebpf.MapOptions{PinPath: dir}); err != nil {
			if errors.Is(err, ebpf.ErrMapIncompatible) {
				err = errors.Join(&attach.OtherSchema{Dir: dir, Want: schemaVersion}, err)
			}
			return nil, errors.Join(fmt.Errorf("map %s: %w", name, err), t.close())
		}
	}
	return t, nil
}

// openTables opens the tables pinned in dir.
func openTables(dir string, o *ebpf.LoadPinOptions) (*tables, error) {
	if err := attach.CheckSchema(dir, kernelMapRepairControls, schemaVersion); err != nil {
		return nil, err
	}
	t := &tables{}
	for name, at := range t.byName() {
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), o)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the pinned tables: %w", err), t.close())
		}
		*at = m
	}
	return t, nil
}

// program loads the program of a port. parking: the maps of its parking; nil: it parks nothing.
func (t *tables) program(id uint32, parking map[string]*ebpf.Map) (*ebpf.Program, error) {
	spec, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("read the embedded program: %w", err)
	}
	c, err := t.control()
	if err != nil {
		return nil, err
	}
	var seed [16]byte
	binary.LittleEndian.PutUint64(seed[:8], c.Seed[0])
	binary.LittleEndian.PutUint64(seed[8:], c.Seed[1])
	if err := errors.Join(attach.SetDigestKey(spec, seed), spec.Variables[kernelVarPortId].Set(id)); err != nil {
		return nil, err
	}
	own := map[string]*ebpf.Map{}
	for name, at := range t.byName() {
		own[name] = *at
	}
	maps.Copy(own, parking)
	var loaded struct {
		WeirRepair *ebpf.Program `ebpf:"weir_repair"`
	}
	if err := spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{Cache: attach.KernelTypes(), MapReplacements: own}); err != nil {
		return nil, fmt.Errorf("load program %s: %w", programName, err)
	}
	return loaded.WeirRepair, nil
}

func (t *tables) control() (c kernelRepairControl, err error) {
	if err := t.controls.Lookup(uint32(0), &c); err != nil {
		return c, fmt.Errorf("read control: %w", err)
	}
	return c, nil
}

// setControl changes the control entry.
func (t *tables) setControl(change func(c *kernelRepairControl)) error {
	c, err := t.control()
	if err != nil {
		return err
	}
	change(&c)
	if err := t.controls.Put(uint32(0), &c); err != nil {
		return fmt.Errorf("write control: %w", err)
	}
	return nil
}

// begin writes what all ports share, with the first heartbeat.
func (t *tables) begin(lease time.Duration) error {
	var seed [16]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return fmt.Errorf("seed of the tables: %w", err)
	}
	return t.setControl(func(c *kernelRepairControl) {
		if c.Seed == [2]uint64{} { // a process that takes over keeps it, because the flows of the table have it
			c.Seed = [2]uint64{binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:])}
		}
		c.Schema, c.HeartbeatNs, c.LeaseNs, c.Releasing = schemaVersion, attach.MonotonicNs(), uint64(lease), 0
	})
}

// configure writes the configuration of a port.
func (t *tables) configure(id uint32, cookie uint64, p *Port, off bool) error {
	c := kernelRepairPortConfig{
		NetnsCookie: cookie, Ifindex: uint32(p.Ifindex), DueNs: uint64(p.Due),
		LimitBytes: p.LimitBytes, ParkBytes: p.ParkBytes, NsPerKib: uint32(1024 * 8e9 / float64(p.Bps)),
	}
	switch {
	case off:
		c.Off = offLeaving
	case p.Off:
		c.Off = offObserved
	}
	for i := range min(len(p.Name), len(c.Name)-1) {
		c.Name[i] = int8(p.Name[i])
	}
	if err := t.configs.Put(id, &c); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

// Values of repair_port_config.off.
const (
	offObserved = 1 // as configured
	offLeaving  = 2 // the port cannot be managed at present
)

// clear begins the state of a port afresh.
func (t *tables) clear(id uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("number of CPUs: %w", err)
	}
	err = errors.Join(t.ports.Put(id, &kernelRepairPort{}), t.stats.Put(id, make([]reading.RepairCounts, cpus)))
	if err != nil {
		return fmt.Errorf("clear the counters: %w", err)
	}
	return nil
}

// read returns the figures of a port.
func (t *tables) read(id uint32) (s reading.Stats, c kernelRepairPortConfig, err error) {
	var state kernelRepairPort
	var cpus []reading.RepairCounts
	control, err := t.control()
	err = errors.Join(err, t.configs.Lookup(id, &c), t.ports.Lookup(id, &state), t.stats.Lookup(id, &cpus))
	if err != nil {
		return s, c, fmt.Errorf("read port %d: %w", id, err)
	}
	r := &reading.Repairs{LimitBytes: c.LimitBytes, MostBytes: c.ParkBytes, WaitingBytes: reading.Waiting(state.Bytes, attach.Age(state.ParkedNs))}
	s.Seen = r.Add(cpus)
	name := make([]byte, 0, len(c.Name))
	for _, b := range c.Name {
		name = append(name, byte(b))
	}
	s.Port, s.TargetBytes, s.Repairs = attach.TextOf(name), c.LimitBytes, r
	s.Enforced = c.Off == 0 && isAlive(&control)
	if c.Off == offObserved {
		s.Mode = reading.EnforceNone
	}
	return s, c, nil
}

// isAlive reports whether a process sends heartbeats.
func isAlive(c *kernelRepairControl) bool {
	return c.Releasing == 0 && uint64(attach.Age(c.HeartbeatNs)) < c.LeaseNs
}

// Rehearse loads the program, which the kernel's verifier checks, with tables that it removes at once. It attaches nothing.
func Rehearse() error {
	t, err := makeTables("")
	if err != nil {
		return mayNot(err)
	}
	p, err := t.program(0, nil)
	return errors.Join(mayNot(err), p.Close(), t.close())
}

// Memory returns how many flows the table has room for, and roughly how many bytes of kernel memory the tables of a switch take with
// this many CPUs.
func Memory(cpus int) (flows int, bytes uint64, err error) {
	spec, err := loadKernel()
	if err != nil {
		return 0, 0, fmt.Errorf("read the embedded program: %w", err)
	}
	for name := range (&tables{}).byName() {
		bytes += attach.MapMemory(spec.Maps[name], cpus)
	}
	return int(spec.Maps[kernelMapRepairFlows].MaxEntries), bytes, nil
}

func mayNot(err error) error {
	if attach.IsPermission(err) {
		return fmt.Errorf("%w: %w", attach.ErrPermission, err)
	}
	return err
}
