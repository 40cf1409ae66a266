package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// MissingFeature is the error for a feature that this kernel lacks, with the version of Linux that brought it.
type MissingFeature struct {
	Feature string // "tcx (BPF programs on a device's traffic)"
	Since   string // "6.6"; or the kernel option that enables it: "CONFIG_DEBUG_INFO_BTF"
}

func (e *MissingFeature) Error() string {
	return fmt.Sprintf("this kernel has no %s: it needs %s", e.Feature, e.needs())
}

func (e *MissingFeature) needs() string {
	if len(e.Since) > 0 && e.Since[0] >= '0' && e.Since[0] <= '9' {
		return "Linux " + e.Since + " or later"
	}
	return e.Since
}

// ErrPermission is returned when the process may not load kernel programs.
var ErrPermission = errors.New("loading kernel programs is not permitted: run as root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON)")

// Probe asks the kernel for one feature.
type Probe struct {
	Feature string
	Since   string
	Ask     func() (bool, error)
}

// Check returns nil if the kernel has the feature, else *MissingFeature or ErrPermission, or another error if
// the probe itself failed.
func (p Probe) Check() error {
	has, err := p.Ask()
	switch {
	case errors.Is(err, ErrPermission):
		return err
	case err != nil:
		return fmt.Errorf("probe for %s: %w", p.Feature, err)
	case !has:
		return &MissingFeature{p.Feature, p.Since}
	}
	return nil
}

// CheckAll runs all the probes and returns the error of the first that fails, or nil.
func CheckAll(probes []Probe) error {
	for _, p := range probes {
		if err := p.Check(); err != nil {
			return err
		}
	}
	return nil
}

// CheckMeasure checks that the measuring program (package lab/measure) can run on this kernel and for this
// user. Errors: ErrPermission or *MissingFeature.
func CheckMeasure() error { return CheckAll(MeasureProbes()) }

// QueueProbes returns the probes of a program that reads the queue of its device.
func QueueProbes() []Probe {
	return []Probe{
		{"permission to load BPF programs", "root", mayLoad},
		{"type information of its own (BTF)", "CONFIG_DEBUG_INFO_BTF", haveBTF},
		{"tcx (BPF programs on a device's traffic)", "6.6", haveTCX},
		{"kfunc bpf_cast_to_kern_ctx", "6.2", KernelHas[*btf.Func]("bpf_cast_to_kern_ctx")},
	}
}

// PacketProbes returns the probes of a program that reads and writes packets.
func PacketProbes() []Probe {
	return []Probe{
		{"permission to load BPF programs", "root", mayLoad},
		{"tcx (BPF programs on a device's traffic)", "6.6", haveTCX},
	}
}

// MeasureProbes returns the probes of the measuring program (package lab/measure).
func MeasureProbes() []Probe {
	return []Probe{
		{"permission to load BPF programs", "root", mayLoad},
		{"type information of its own (BTF)", "CONFIG_DEBUG_INFO_BTF", haveBTF},
		{"tcx (BPF programs on a device's traffic)", "6.6", haveTCX},
		{"kfunc bpf_cast_to_kern_ctx", "6.2", KernelHas[*btf.Func]("bpf_cast_to_kern_ctx")},
		{"BPF ring buffer", "5.8", func() (bool, error) { return Supported(features.HaveMapType(ebpf.RingBuf)) }},
		{"BPF programs on typed trace points (tp_btf)", "5.5", haveTracepointBTF},
		{"trace point qdisc_enqueue", "5.15", KernelHas[*btf.Typedef]("btf_trace_qdisc_enqueue")},
		{"trace point qdisc_dequeue", "4.14", KernelHas[*btf.Typedef]("btf_trace_qdisc_dequeue")},
		{"reason of drops (enum skb_drop_reason)", "5.17", KernelHas[*btf.Enum]("skb_drop_reason")},
	}
}

// SocketProbes returns the probes of a program that sets options of sockets.
func SocketProbes() []Probe {
	return []Probe{
		{"permission to load BPF programs", "root", mayLoad},
		{"sockops programs", "4.13", func() (bool, error) { return Supported(features.HaveProgramType(ebpf.SockOps)) }},
	}
}

// Supported turns an error of package features into yes, no, or an error.
func Supported(err error) (bool, error) {
	if errors.Is(err, ebpf.ErrNotSupported) {
		return false, nil
	}
	return err == nil, err
}

func mayLoad() (bool, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if IsPermission(err) {
		return false, ErrPermission
	}
	if err != nil {
		return false, err
	}
	return true, m.Close()
}

func haveBTF() (bool, error) {
	_, err := kernelTypes.Kernel()
	return Supported(err)
}

// haveTCX queries which programs are attached to the loopback device, which every namespace has as its first
// device. A kernel without tcx refuses the query.
func haveTCX() (bool, error) {
	_, err := ProgramsAt(1, ebpf.AttachTCXEgress)
	if err == nil {
		return true, nil
	}
	if _, denied := mayLoad(); denied != nil { // without permission the library reports that the kernel lacks tcx
		return false, denied
	}
	if isInvalid(err) {
		return false, nil
	}
	return Supported(err)
}

// haveTracepointBTF loads a program that does nothing. Package features probes with fentry instead, which some
// kernels that have tp_btf refuse.
func haveTracepointBTF() (bool, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "kfree_skb", License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	switch {
	case IsPermission(err):
		return false, ErrPermission
	case isInvalid(err) || errors.Is(err, btf.ErrNotFound):
		return false, nil
	case err != nil:
		return Supported(err)
	}
	return true, p.Close()
}

// KernelHas returns a probe that looks for a type of kind T in the kernel's BTF.
func KernelHas[T btf.Type](name string) func() (bool, error) {
	return func() (bool, error) {
		spec, err := kernelTypes.Kernel()
		if err != nil {
			return false, err
		}
		var typ T
		err = spec.TypeByName(name, &typ)
		if errors.Is(err, btf.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
}
