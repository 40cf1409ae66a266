package fairq

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"

	"weir/datapath/attach"
)

func probes() []attach.Probe {
	return append(attach.QueueProbes(), []attach.Probe{
		{Feature: "kfunc bpf_rdonly_cast", Since: "6.2", Ask: attach.KernelHas[*btf.Func]("bpf_rdonly_cast")},
		{Feature: "registration state of devices as a byte of its own", Since: "6.9", Ask: haveDeviceState},
		{Feature: "BPF programs that user space runs (syscall)", Since: "5.14", Ask: func() (bool, error) { return attach.Supported(features.HaveProgramType(ebpf.Syscall)) }},
	}...)
}

// haveDeviceState probes whether net_device.reg_state can be read as a byte; it was a bit field before.
func haveDeviceState() (bool, error) {
	spec, err := attach.KernelTypes().Kernel()
	if err != nil {
		return false, err
	}
	var device *btf.Struct
	if err := spec.TypeByName("net_device", &device); err != nil {
		return false, err
	}
	for _, m := range device.Members {
		if m.Name == "reg_state" {
			return m.BitfieldSize == 0, nil
		}
	}
	return false, nil
}

// helperProbes returns the probes of helpers that every kernel with tcx should have, but a vendor's kernel may
// lack.
func helperProbes() []attach.Probe {
	helper := func(kind ebpf.ProgramType, f asm.BuiltinFunc) func() (bool, error) {
		return func() (bool, error) { return attach.Supported(features.HaveProgramHelper(kind, f)) }
	}
	return []attach.Probe{
		{Feature: "timers of BPF programs (bpf_timer_start)", Since: "5.15", Ask: helper(ebpf.SchedCLS, asm.FnTimerStart)},
		{Feature: "walks over maps (bpf_for_each_map_elem)", Since: "5.13", Ask: helper(ebpf.Syscall, asm.FnForEachMapElem)},
		{Feature: "loops of BPF programs (bpf_loop)", Since: "5.17", Ask: helper(ebpf.SchedCLS, asm.FnLoop)},
		{Feature: "locks in maps (bpf_spin_lock)", Since: "5.1", Ask: helper(ebpf.SchedCLS, asm.FnSpinLock)},
		{Feature: "cookie of a network namespace (SO_NETNS_COOKIE)", Since: "5.14", Ask: func() (bool, error) {
			_, err := attach.NetnsCookie()
			return err == nil, nil
		}},
	}
}

// Rehearse loads the switch programs, which the kernel's verifier checks, with small tables that it removes at
// once. It attaches nothing.
func Rehearse() error {
	source, err := newSource(&Config{Flows: trialFlows})
	if err != nil {
		return err
	}
	maps, err := source.openMaps()
	if err != nil {
		return mayNot(err)
	}
	programs, err := source.load(maps)
	if err == nil {
		err = programs.Close()
	}
	return errors.Join(mayNot(err), maps.Close())
}

func mayNot(err error) error {
	if attach.IsPermission(err) {
		return fmt.Errorf("%w: %w", attach.ErrPermission, err)
	}
	return err
}

// Memory returns roughly how many bytes of kernel memory the tables of a switch take, for this many connections
// and CPUs. 0 flows: the default.
func Memory(flows uint32, cpus int) (uint64, error) {
	if flows == 0 {
		flows = DefaultFlows
	}
	source, err := newSource(&Config{Flows: flows})
	if err != nil {
		return 0, err
	}
	var sum uint64
	for name := range (&fairqMaps{}).byName() {
		sum += attach.MapMemory(source.spec.Maps[name], cpus)
	}
	return sum, nil
}

// Needs returns the probes of the switch program.
func Needs() attach.Needs {
	return attach.Needs{Use: attach.UseSwitch, Probes: append(probes(), helperProbes()...)}
}
