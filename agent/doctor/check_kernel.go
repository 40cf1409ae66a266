package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/datapath/attach"
)

var abilityOf = map[attach.Use][]Ability{
	attach.UseSwitch: {Switching, Observing}, attach.UseMark: {Marking}, attach.UseEdge: {Edging}, attach.UseMeasure: {Lab},
}

// everything lists the abilities that need the kernel's BPF.
var everything = []Ability{Switching, Observing, Marking, Edging, Lab}

func (j *judge) kernel() {
	j.features()
	j.rehearsal()
	j.bpffs()
	j.modules()
	j.timers()
	j.jit()
	k := &j.f.Kernel
	if k.Lockdown == "confidentiality" {
		j.add(Finding{
			Area: AreaKernel, Check: "kernel.lockdown", Level: Note, Text: "lockdown is at confidentiality, where the kernel refuses BPF programs that read its memory at will; Weir's on ports do not, those that measure in the lab may",
			Remedy: "if loading is refused below: boot with lockdown=integrity",
		})
	} else if k.Lockdown != "" {
		j.add(Finding{Area: AreaKernel, Check: "kernel.lockdown", Level: OK, Text: "lockdown: " + k.Lockdown})
	}
	if j.f.Host.Realtime {
		j.add(Finding{
			Area: AreaKernel, Check: "kernel.realtime", Level: Note, Text: "a real-time kernel (PREEMPT_RT): Weir was never measured on one; timers of BPF run in threads there",
			Remedy: "watch the samples taken by packets in weir status: they stand in for late timers",
		})
	}
}

// features checks the features of the kernel's BPF. Features that only root can check share one finding.
func (j *judge) features() {
	denied := Finding{
		Area: AreaKernel, Check: "kernel.feature", Level: Note, Remedy: "run weir doctor as root",
	}
	var names []string
	for i := range j.f.Kernel.Features {
		f := &j.f.Kernel.Features[i]
		var able []Ability
		for _, u := range f.Uses {
			able = append(able, abilityOf[u]...)
		}
		if errors.Is(f.Err, attach.ErrPermission) && !j.f.Process.Root {
			names = append(names, f.Name)
			denied.hides = append(denied.hides, able...)
			continue
		}
		j.feature(f, able)
	}
	if len(names) > 0 {
		denied.Text = "not asked, because only a process that may load BPF programs can: " + strings.Join(names, ", ")
		j.add(denied)
	}
}

func (j *judge) feature(f *attach.Feature, able []Ability) {
	n := Finding{Area: AreaKernel, Check: "kernel.feature", Subject: f.Name, Level: OK, Text: "there (" + f.Needs() + ")"}
	var missing *attach.MissingFeature
	switch {
	case f.Err == nil:
	case errors.As(f.Err, &missing):
		n.Level, n.bars = Blocked, able
		n.Text = "not in this kernel, " + j.f.Host.Release
		n.Remedy = "use a kernel that has it: " + f.Needs()
		if slices.Equal(f.Uses, []attach.Use{attach.UseMeasure}) {
			n.Level, n.Text = Note, n.Text+"; only the lab needs it"
		}
	case errors.Is(f.Err, attach.ErrPermission):
		n.Level, n.bars = Blocked, able
		n.Text = "the kernel refuses to load BPF programs, though this is root"
		n.Remedy = "see 'rights' below"
	default:
		n.Level, n.hides = Problem, able
		n.Text = "could not be found out: " + firstLine(f.Err)
		n.Remedy = "try the real thing, and report this line: weir switch PORT"
	}
	j.add(n)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func (j *judge) rehearsal() {
	k := &j.f.Kernel
	if !k.Rehearsed || errors.Is(k.Rehearsal, attach.ErrPermission) {
		return // the features have said so
	}
	n := Finding{Area: AreaKernel, Check: "kernel.verifier", Level: OK, Text: "the kernel's verifier accepts Weir's switch programs (loaded, not attached, and unloaded)"}
	if k.Rehearsal != nil {
		n.Level, n.bars = Blocked, []Ability{Switching, Observing}
		n.Text = "the kernel does not accept Weir's switch programs: " + firstLine(k.Rehearsal)
		n.Remedy = "fix the blocked findings above; without any, report this line with the output of weir version"
	}
	j.add(n)
}

func (j *judge) bpffs() {
	k := &j.f.Kernel
	if j.hidden(seeKernel) {
		return
	}
	n := Finding{Area: AreaKernel, Check: "kernel.bpffs", Level: OK, Text: "a BPF file system is mounted at " + bpffs}
	switch {
	case k.BPFFS == bpffs:
	case !k.BPFDir:
		n.Level, n.asks = Problem, []Ability{Switching, Observing}
		n.Text = "no " + bpffs + " to mount a BPF file system on: sysfs is not mounted, or the kernel has no BPF"
		n.Remedy = "mount -t sysfs sysfs /sys && mount -t bpf bpf " + bpffs
	default:
		n.Level, n.asks = Problem, []Ability{Switching, Observing}
		n.Text = "no BPF file system at " + bpffs + ": Weir pins its programs there, so that they outlive it"
		if k.BPFFS != "" {
			n.Text += " (there is one at " + k.BPFFS + ")"
		}
		n.Remedy = "mount -t bpf bpf " + bpffs
	}
	j.add(n)
}

// bpffs is where Weir pins its programs and tables.
const bpffs = "/sys/fs/bpf"

func (j *judge) timers() {
	d := j.f.Kernel.Resolution
	if d == 0 {
		return
	}
	n := Finding{Area: AreaKernel, Check: "kernel.timers", Level: OK, Text: fmt.Sprintf("timers resolve %v", d)}
	if d > 10*time.Microsecond {
		n.Level, n.asks = Problem, []Ability{Switching, Observing}
		n.Text = fmt.Sprintf("timers resolve only %v: a port's queue is sampled every 50us by default", d)
		n.Remedy = "use a kernel with CONFIG_HIGH_RES_TIMERS, and do not boot with highres=off; or choose an interval of that length"
	}
	j.add(n)
}

func (j *judge) jit() {
	k := &j.f.Kernel
	if j.hidden(seeKernel) {
		return
	}
	switch k.JIT {
	case 0:
		j.add(Finding{
			Area: AreaKernel, Check: "kernel.jit", Level: Problem, Text: "BPF programs are interpreted (net.core.bpf_jit_enable=0): several times the cost a packet",
			Remedy: "sysctl -w net.core.bpf_jit_enable=1", asks: attaching,
		})
	case 2:
		j.add(Finding{
			Area: AreaKernel, Check: "kernel.jit", Level: Note, Text: "BPF programs are compiled, and the kernel prints their code (net.core.bpf_jit_enable=2)",
			Remedy: "sysctl -w net.core.bpf_jit_enable=1",
		})
	case 1:
		j.add(Finding{Area: AreaKernel, Check: "kernel.jit", Level: OK, Text: "BPF programs are compiled"})
	}
	if k.JITHarden == 2 {
		j.add(Finding{
			Area: AreaKernel, Check: "kernel.jit_harden", Level: Note, Text: "constants in compiled programs are blinded for root too (net.core.bpf_jit_harden=2): they are slower",
			Remedy: "sysctl -w net.core.bpf_jit_harden=1, if your rules allow it",
		})
	}
	if k.BPFStats == 1 {
		j.add(Finding{
			Area: AreaKernel, Check: "kernel.bpf_stats", Level: Note, Text: "the kernel times every run of a BPF program (kernel.bpf_stats_enabled=1): that costs at each packet",
			Remedy: "sysctl -w kernel.bpf_stats_enabled=0, once measured",
		})
	}
	if k.Unprivil == 0 {
		j.add(Finding{
			Area: AreaKernel, Check: "kernel.unprivileged_bpf", Level: Note, Text: "any user may load BPF programs (kernel.unprivileged_bpf_disabled=0); Weir does not need that",
			Remedy: "sysctl -w kernel.unprivileged_bpf_disabled=2",
		})
	}
}

// modules are the parts of the kernel that may be modules.
func (j *judge) modules() {
	m := j.f.Kernel.Modules
	for _, want := range []struct {
		module, option, what string
		bars                 []Ability
	}{
		{"sch_tbf", "CONFIG_NET_SCH_TBF", "token bucket shaper (tbf)", []Ability{Lab}},
		{"sch_htb", "CONFIG_NET_SCH_HTB", "hierarchical shaper (htb)", nil},
		{"veth", "CONFIG_VETH", "veth pairs", []Ability{Lab}},
		{"bridge", "CONFIG_BRIDGE", "bridges", []Ability{Lab}},
	} {
		state, asked := m[want.module]
		if !asked {
			continue
		}
		n := Finding{Area: AreaKernel, Check: "kernel.module", Subject: want.what, Level: OK}
		switch state {
		case ModuleReady:
			n.Text = "there"
		case ModuleOnDisk:
			n.Text = "a module (" + want.module + "), loaded when first used"
		case ModuleUnknown:
			n.Level, n.Text = Note, "not known whether it is there: no list of modules for "+j.f.Host.Release
			n.Remedy = "modprobe " + want.module
		default:
			n.Level, n.bars = Note, want.bars
			n.Text = "not in this kernel (" + want.option + ")"
			n.Remedy = "use a kernel that has it, if you want a lab"
			if strings.HasPrefix(want.module, "sch_") {
				n.Text += ": a port cannot be shaped by it"
				n.Remedy = "use a kernel with " + want.option + ", or another shaper that keeps its backlog"
			}
			if want.module == "sch_tbf" && m["sch_htb"] == ModuleAbsent {
				n.Level = Problem
			}
		}
		j.add(n)
	}
}

// Capabilities that Weir needs.
const (
	capNetAdmin = 12
	capSysAdmin = 21
	capPerfmon  = 38
	capBPF      = 39
)

func (p *Process) has(c int) bool {
	if c == capPerfmon || c == capBPF {
		return p.Capabilities&(1<<c|1<<capSysAdmin) != 0
	}
	return p.Capabilities&(1<<c) != 0
}

func (j *judge) rights() {
	p := &j.f.Process
	var lacks []string
	for _, c := range []struct {
		bit  int
		name string
	}{{capNetAdmin, "CAP_NET_ADMIN"}, {capBPF, "CAP_BPF"}, {capPerfmon, "CAP_PERFMON"}} {
		if !p.has(c.bit) {
			lacks = append(lacks, c.name)
		}
	}
	n := Finding{Area: AreaRights, Check: "rights.capabilities", Level: OK, Text: "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are there"}
	switch {
	case p.UserNS:
		n.Level, n.bars = Blocked, everything
		n.Text = "this is a user namespace of its own: the kernel does not let its root load BPF programs"
		n.Remedy = "run Weir outside of it (a container without user namespace, with the network namespace of the switch)"
	case len(lacks) > 0 && p.Root:
		n.Level, n.bars = Blocked, everything
		n.Text = "root without " + strings.Join(lacks, ", ")
		n.Remedy = "give them to the unit or the container (docker run --cap-add BPF --cap-add NET_ADMIN --cap-add PERFMON --network host)"
	case len(lacks) > 0:
		n.Level, n.hides = Note, everything
		n.Text = "this user lacks " + strings.Join(lacks, ", ") + ": weir switch needs them, and weir doctor sees less without"
		n.Remedy = "run weir doctor as root"
	case j.refused():
		n.Level, n.bars = Blocked, everything
		n.Text = "the capabilities are there, and yet the kernel refuses BPF: a seccomp filter or a security module stands before it"
		n.Remedy = "let bpf(2) through in the container's seccomp profile, or its SELinux or AppArmor policy"
	}
	j.add(n)
	if !p.Root {
		j.add(Finding{
			Area: AreaRights, Check: "rights.root", Level: Note, Text: "not root: a lab makes network namespaces and needs it; a switch needs only the capabilities above and a writable " + bpffs + "/weir",
			Remedy: "run it with sudo", hides: []Ability{Lab},
		})
	}
	if p.Container != "" {
		j.add(Finding{
			Area: AreaRights, Check: "rights.container", Level: Note, Text: "this looks like a container (" + p.Container + "): ports of the host are seen only in the host's network namespace, and pins outlive it only on the host's " + bpffs,
			Remedy: "give it the host's network and " + bpffs + ": docker run --network host -v " + bpffs + ":" + bpffs,
		})
	}
}

// refused reports whether the kernel lets nothing be loaded.
func (j *judge) refused() bool {
	for i := range j.f.Kernel.Features {
		if errors.Is(j.f.Kernel.Features[i].Err, attach.ErrPermission) {
			return true
		}
	}
	return false
}
