package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/agent/switchd"
	"weir/datapath/attach"
)

// sane is a machine on which nothing is wrong: two shaped ports of a bridge.
func sane() *Facts {
	port := func(name string, index int) Device {
		return Device{
			Name: name, Ifindex: index, Driver: "ixgbe", Bus: "0000:03:00.0", Up: true, Carrier: true, MTU: 1500, SpeedMbit: 10_000,
			TxQueues: 4, RxQueues: 4, Master: "br0", MasterKind: "bridge", GSOMax: 65536,
			Root:     Qdisc{Kind: "tbf", Bursts: 1_000_000},
			Verdict:  &Verdict{RateBits: 9_800_000_000, BufferBytes: 1_000_000, TargetBytes: 200_000, PipeBytes: 506_250},
			Offloads: map[string]bool{"rx-gro": true, "tx-generic-segmentation": true},
		}
	}
	return &Facts{
		Host:    Host{Name: "sw", Release: "6.18.5", Arch: "amd64", CPUs: 4},
		Process: Process{Root: true, Capabilities: 1<<41 - 1},
		Kernel: Kernel{
			Features: []attach.Feature{
				{Name: "tcx", Since: "6.6", Uses: []attach.Use{attach.UseSwitch, attach.UseMark, attach.UseEdge, attach.UseMeasure}},
				{Name: "tp_btf", Since: "5.5", Uses: []attach.Use{attach.UseMeasure}},
			},
			Rehearsed: true, BPFFS: bpffs, BPFDir: true, JIT: 1, JITHarden: 0, Unprivil: 2, Resolution: 1,
			Modules: map[string]ModuleState{"sch_tbf": ModuleReady, "sch_htb": ModuleReady, "veth": ModuleReady, "bridge": ModuleReady},
		},
		Devices: []Device{
			{Name: "br0", Ifindex: 9, Kind: "bridge", Up: true, Carrier: true, MTU: 1500, Root: Qdisc{Kind: "noqueue", Default: true}},
			{Name: "lo", Ifindex: 1, Loopback: true, Up: true, Carrier: true, MTU: 65536, Root: Qdisc{Kind: "noqueue", Default: true}},
			port("swp1", 2), port("swp2", 3),
		},
		TCP:    TCP{Sysctls: map[string]string{"net.ipv4.tcp_ecn": "2", "net.ipv4.tcp_rmem": "4096\t131072\t6291456", "net.mptcp.enabled": "1"}},
		Memory: Memory{Total: 16e9, Available: 12e9, Flows: 65536, Tables: 20e6, LockedUnlimited: true},
	}
}

func missing(name, since string) error {
	return fmt.Errorf("%w", &attach.MissingFeature{Feature: name, Since: since})
}

// row is one thing that can be wrong with a machine.
type row struct {
	what  string
	spoil func(f *Facts, p *Device) // p: swp1
	ports []string
	// The finding that must be there.
	check, subject string
	level          Level
	says, remedy   string
	// Words that the summary must have about FairQ, marking, edge and lab; "": those for a sane machine.
	swtch, mark, edge, lab string
}

func (r *row) run(t *testing.T) {
	t.Helper()
	f := sane()
	for i := range f.Devices {
		if f.Devices[i].Name == "swp1" {
			r.spoil(f, &f.Devices[i])
			break
		}
	}
	got := Check(f, Options{Ports: r.ports})
	found := false
	for _, n := range got.Findings {
		if n.Check == r.check && n.Subject == r.subject && strings.Contains(n.Text, r.says) {
			found = true
			if n.Level != r.level || !strings.Contains(n.Remedy, r.remedy) {
				t.Errorf("%s: %+v", r.what, n)
			}
			if n.Level != OK && n.Level != Note && n.Remedy == "" {
				t.Errorf("%s: a %s without a remedy: %s", r.what, n.Level, n.Text)
			}
		}
	}
	if !found {
		t.Errorf("%s: no finding %s of %q that says %q in %+v", r.what, r.check, r.subject, r.says, got.Findings)
	}
	changed := r.swtch + r.mark + r.edge + r.lab // then another finding may be a problem
	if bad := ranks[r.level] >= ranks[Problem]; bad && got.Fine() || !bad && changed == "" && !got.Fine() {
		t.Errorf("%s: fine is %t with %s", r.what, got.Fine(), got.Level)
	}
	for _, want := range []struct {
		a   Ability
		can string
	}{{Switching, r.swtch}, {Marking, r.mark}, {Edging, r.edge}, {Lab, r.lab}} {
		if want.can == "" {
			want.can = Yes
		}
		if c := answer(got, want.a); c.Can != want.can {
			t.Errorf("%s: %s: %+v, want %s", r.what, want.a, c, want.can)
		}
	}
}

func answer(r *Report, a Ability) Can {
	for _, c := range r.Summary {
		if c.What == a {
			return c
		}
	}
	return Can{}
}

// On a machine where nothing is wrong nothing is found, and Weir can do everything.
func TestCheck_Sane(t *testing.T) {
	r := Check(sane(), Options{})
	if r.Level != OK {
		t.Errorf("level %s", r.Level)
	}
	for _, n := range r.Findings {
		if n.Level != OK || n.Text == "" || n.Area == "" || n.Check == "" {
			t.Errorf("%+v", n)
		}
	}
	for _, c := range r.Summary {
		if c.Can != Yes {
			t.Errorf("%+v", c)
		}
	}
	if c := answer(r, Switching); c.Why != "on swp1, swp2" {
		t.Errorf("switch: %s", c.Why)
	}
	if len(r.Summary) != 5 {
		t.Errorf("summary of %d", len(r.Summary))
	}
}

func TestCheck_Kernel(t *testing.T) {
	for _, r := range []row{
		{what: "an old kernel", check: "kernel.feature", subject: "tcx", level: Blocked, says: "not in this kernel, 5.15.0", remedy: "Linux 6.6 or later",
			spoil: func(f *Facts, _ *Device) {
				f.Host.Release, f.Kernel.Features[0].Err = "5.15.0", missing("tcx", "6.6")
			}, swtch: No, mark: No, edge: No, lab: No},
		{what: "no trace points", check: "kernel.feature", subject: "tp_btf", level: Note, says: "only the lab", remedy: "Linux 5.5",
			spoil: func(f *Facts, _ *Device) { f.Kernel.Features[1].Err = missing("tp_btf", "5.5") }, lab: No},
		{what: "an option is off", check: "kernel.feature", subject: "tcx", level: Blocked, remedy: "CONFIG_X",
			spoil: func(f *Facts, _ *Device) {
				f.Kernel.Features[0].Since, f.Kernel.Features[0].Err = "CONFIG_X", missing("tcx", "CONFIG_X")
			}, swtch: No, mark: No, edge: No, lab: No},
		{what: "a probe that fails", check: "kernel.feature", subject: "tcx", level: Problem, says: "could not be found out: odd", remedy: "weir switch",
			spoil: func(f *Facts, _ *Device) { f.Kernel.Features[0].Err = errors.New("odd\nlog") }, swtch: Unknown, mark: Unknown, edge: Unknown, lab: Unknown},
		{what: "the verifier refuses", check: "kernel.verifier", level: Blocked, says: "R1 invalid", remedy: "weir version",
			spoil: func(f *Facts, _ *Device) { f.Kernel.Rehearsal = errors.New("R1 invalid") }, swtch: No},
		{what: "no bpffs", check: "kernel.bpffs", level: Problem, remedy: "mount -t bpf bpf /sys/fs/bpf",
			spoil: func(f *Facts, _ *Device) { f.Kernel.BPFFS = "" }, swtch: Changes},
		{what: "bpffs elsewhere", check: "kernel.bpffs", level: Problem, says: "/run/bpf", remedy: "mount -t bpf bpf /sys/fs/bpf",
			spoil: func(f *Facts, _ *Device) { f.Kernel.BPFFS = "/run/bpf" }, swtch: Changes},
		{what: "no sysfs", check: "kernel.bpffs", level: Problem, remedy: "mount -t sysfs",
			spoil: func(f *Facts, _ *Device) { f.Kernel.BPFFS, f.Kernel.BPFDir = "", false }, swtch: Changes},
		{what: "coarse timers", check: "kernel.timers", level: Problem, says: "4ms", remedy: "CONFIG_HIGH_RES_TIMERS",
			spoil: func(f *Facts, _ *Device) { f.Kernel.Resolution = 4 * time.Millisecond }, swtch: Changes},
		{what: "no JIT", check: "kernel.jit", level: Problem, says: "interpreted", remedy: "bpf_jit_enable=1",
			spoil: func(f *Facts, _ *Device) { f.Kernel.JIT = 0 }, swtch: Changes, mark: Changes, edge: Changes},
		{what: "a talking JIT", check: "kernel.jit", level: Note, spoil: func(f *Facts, _ *Device) { f.Kernel.JIT = 2 }},
		{what: "blinded constants", check: "kernel.jit_harden", level: Note, spoil: func(f *Facts, _ *Device) { f.Kernel.JITHarden = 2 }},
		{what: "timed programs", check: "kernel.bpf_stats", level: Note, spoil: func(f *Facts, _ *Device) { f.Kernel.BPFStats = 1 }},
		{what: "BPF for all", check: "kernel.unprivileged_bpf", level: Note, spoil: func(f *Facts, _ *Device) { f.Kernel.Unprivil = 0 }},
		{what: "lockdown", check: "kernel.lockdown", level: Note, says: "confidentiality", remedy: "integrity",
			spoil: func(f *Facts, _ *Device) { f.Kernel.Lockdown = "confidentiality" }},
		{what: "mild lockdown", check: "kernel.lockdown", level: OK, says: "integrity", spoil: func(f *Facts, _ *Device) { f.Kernel.Lockdown = "integrity" }},
		{what: "real time", check: "kernel.realtime", level: Note, spoil: func(f *Facts, _ *Device) { f.Host.Realtime = true }},
		{what: "no tbf", check: "kernel.module", subject: "token bucket shaper (tbf)", level: Note, says: "CONFIG_NET_SCH_TBF",
			spoil: func(f *Facts, _ *Device) { f.Kernel.Modules["sch_tbf"] = ModuleAbsent }, lab: No},
		{what: "no shaper", check: "kernel.module", subject: "token bucket shaper (tbf)", level: Problem, remedy: "CONFIG_NET_SCH_TBF",
			spoil: func(f *Facts, _ *Device) {
				f.Kernel.Modules["sch_tbf"], f.Kernel.Modules["sch_htb"] = ModuleAbsent, ModuleAbsent
			}, lab: No},
		{what: "modules", check: "kernel.module", subject: "veth pairs", level: OK, says: "loaded when first used",
			spoil: func(f *Facts, _ *Device) { f.Kernel.Modules["veth"] = ModuleOnDisk }},
		{what: "modules not known", check: "kernel.module", subject: "bridges", level: Note, remedy: "modprobe bridge",
			spoil: func(f *Facts, _ *Device) { f.Kernel.Modules["bridge"] = ModuleUnknown }},
	} {
		r.run(t)
	}
}

func TestCheck_Rights(t *testing.T) {
	deny := func(f *Facts) {
		f.Kernel.Rehearsed = false
		for i := range f.Kernel.Features {
			f.Kernel.Features[i].Err = attach.ErrPermission
		}
	}
	for _, r := range []row{
		{what: "a user", check: "rights.capabilities", level: Note, says: "lacks CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON", remedy: "as root",
			spoil: func(f *Facts, _ *Device) { f.Process = Process{}; deny(f) }, swtch: Unknown, mark: Unknown, edge: Unknown, lab: Unknown},
		{what: "the switch's unit", check: "rights.root", level: Note,
			spoil: func(f *Facts, _ *Device) {
				f.Process = Process{Capabilities: 1<<capNetAdmin | 1<<capBPF | 1<<capPerfmon}
			}, lab: Unknown},
		{what: "a poor root", check: "rights.capabilities", level: Blocked, says: "root without CAP_BPF, CAP_PERFMON", remedy: "--cap-add",
			spoil: func(f *Facts, _ *Device) { f.Process.Capabilities = 1 << capNetAdmin }, swtch: No, mark: No, edge: No, lab: No},
		{what: "an old root", check: "rights.capabilities", level: OK,
			spoil: func(f *Facts, _ *Device) { f.Process.Capabilities = 1<<capNetAdmin | 1<<capSysAdmin }},
		{what: "seccomp", check: "rights.capabilities", level: Blocked, says: "seccomp", remedy: "bpf(2)",
			spoil: func(f *Facts, _ *Device) { deny(f) }, swtch: No, mark: No, edge: No, lab: No},
		{what: "a user namespace", check: "rights.capabilities", level: Blocked, says: "user namespace",
			spoil: func(f *Facts, _ *Device) { f.Process.UserNS = true }, swtch: No, mark: No, edge: No, lab: No},
		{what: "a container", check: "rights.container", level: Note, says: "docker", remedy: "--network host",
			spoil: func(f *Facts, _ *Device) { f.Process.Container = "docker" }},
	} {
		r.run(t)
	}
}

func TestCheck_MemoryAndState(t *testing.T) {
	managed := []SwitchPort{{Name: "swp1", Local: true}, {Name: "swp2", Local: true}}
	for _, r := range []row{
		{what: "a small control group", check: "memory.tables", level: Problem, says: "left to this control group", remedy: "MemoryMax",
			spoil: func(f *Facts, _ *Device) { f.Memory.CgroupLimit, f.Memory.CgroupLeft = 64e6, 30e6 }, swtch: Changes},
		{what: "locked memory", check: "memory.locked", level: OK, says: "8.4MB",
			spoil: func(f *Facts, _ *Device) { f.Memory.LockedUnlimited, f.Memory.LockedLimit = false, 8<<20 }},
		{what: "running", check: "weir.switch", subject: "default", level: OK, says: "running on swp1, swp2: process 7",
			spoil: func(f *Facts, _ *Device) {
				f.Switches = []Switch{{Name: "default", Alive: true, Holder: "process 7", Ports: managed}}
			}},
		{what: "stale", check: "weir.switch", subject: "default", level: Problem, says: "1m0s ago", remedy: "weir switch --purge --name default",
			spoil: func(f *Facts, _ *Device) {
				f.Switches = []Switch{{Name: "default", Holder: "process 7", Age: time.Minute, Ports: managed}}
			}},
		{what: "stopped", check: "weir.switch", subject: "default", level: Note, says: "stopped",
			spoil: func(f *Facts, _ *Device) { f.Switches = []Switch{{Name: "default"}} }},
		{what: "another layout", check: "weir.switch", subject: "old", level: Problem, says: "another version's", remedy: "--renew",
			spoil: func(f *Facts, _ *Device) { f.Switches = []Switch{{Name: "old", Other: true, Refused: "layout 1"}} }},
		{what: "unreadable", check: "weir.switch", subject: "x", level: Problem, says: "cannot be read: odd",
			spoil: func(f *Facts, _ *Device) { f.Switches = []Switch{{Name: "x", Refused: "odd"}} }},
		{what: "a port gone", check: "weir.port_gone", subject: "swp9", level: Note, says: "switch default",
			spoil: func(f *Facts, _ *Device) {
				f.Switches = []Switch{{Name: "default", Alive: true, Ports: []SwitchPort{{Name: "swp9", Gone: true}}}}
			}},
		{what: "not pinned", check: "weir.unpinned", subject: "swp1", level: Note,
			spoil: func(_ *Facts, p *Device) { p.Egress = []Program{{ID: 5, Name: "weir_fairq", Ours: true}} }},
		{what: "a parking", check: "weir.parking", subject: "weir-park0", level: OK, says: "the parking of switch default: packets wait",
			spoil: func(f *Facts, _ *Device) {
				f.Switches = []Switch{{Name: "default", Alive: true, Holder: "process 7", Ports: managed}}
				f.Devices = append(f.Devices, Device{Name: "weir-park0", Kind: "veth", Parking: true, Alias: "weir park weir switch default"})
			}},
		{what: "a parking that was left", check: "weir.parking", subject: "weir-park0", level: Note, says: "switch default, which is not running", remedy: "weir switch --purge --name default",
			spoil: func(f *Facts, _ *Device) {
				f.Devices = append(f.Devices, Device{Name: "weir-park0", Kind: "veth", Parking: true, Alias: "weir park weir switch default"})
			}},
		{what: "a parking of nobody", check: "weir.parking", subject: "weir-park0", level: Note, says: "no switch's", remedy: "ip link del weir-park0",
			spoil: func(f *Facts, _ *Device) {
				f.Devices = append(f.Devices, Device{Name: "weir-park0", Kind: "veth", Parking: true, Alias: "weir park weir switch"})
			}},
		{what: "too many devices", check: "unseen.devices", level: Note, says: "7 more", spoil: func(f *Facts, _ *Device) { f.DevicesLeft = 7 }},
		{what: "not seen", check: "unseen", subject: "filters of tc", level: Note, says: "denied",
			spoil: func(f *Facts, _ *Device) { f.Unseen = []Unseen{{What: "filters of tc", Why: "denied", Root: true}} }},
	} {
		r.run(t)
	}
}

// Of what could not be seen nothing good is said, and nothing bad.
func TestCheck_WhatIsNotSeen(t *testing.T) {
	for _, hidden := range []string{seeProcess, seeKernel, seeBPF, seeDevices, seePrograms, seeBypass, seeTCP, seeMemory, seeSwitches} {
		f := sane()
		f.Unseen = []Unseen{{What: hidden, Why: "no answer"}}
		for what, empty := range map[string]func(){
			seeProcess: func() { f.Process = Process{} }, seeKernel: func() { f.Kernel = Kernel{Features: f.Kernel.Features} },
			seeBPF:     func() { f.Kernel.Features, f.Kernel.Rehearsed = nil, false },
			seeDevices: func() { f.Devices = nil }, seeTCP: func() { f.TCP = TCP{} }, seeMemory: func() { f.Memory = Memory{} },
		} {
			if what == hidden {
				empty()
			}
		}
		r := Check(f, Options{})
		if r.Level != Note {
			t.Errorf("%s is not seen: %s: %+v", hidden, r.Level, r.Findings)
		}
		for _, n := range r.Findings {
			gone := map[string]string{
				seePrograms: "programs", seeDevices: "programs", seeBypass: "bypass", seeSwitches: "weir.switch", seeProcess: "rights.capabilities",
				seeKernel: "kernel.bpffs", seeBPF: "kernel.verifier", seeTCP: "tcp.ecn", seeMemory: "memory.tables",
			}
			if n.Check == gone[hidden] {
				t.Errorf("%s is not seen, and yet: %+v", hidden, n)
			}
		}
		want := Yes
		if hidden == seeProcess || hidden == seeKernel || hidden == seeBPF || hidden == seeDevices {
			want = Unknown
		}
		if c := answer(r, Switching); c.Can != want {
			t.Errorf("%s is not seen: %+v", hidden, c)
		}
	}
}

// With a configuration its ports are judged, and by what it makes of them.
func TestCheck_Config(t *testing.T) {
	f := sane()
	for i := range f.Devices {
		switch d := &f.Devices[i]; d.Name {
		case "swp1":
			d.Root, d.Verdict = Qdisc{Kind: "mqprio"}, &Verdict{Refusal: `port swp1: somebody set its queue discipline "mqprio"`}
		case "swp2":
			d.Root, d.Verdict = Qdisc{Kind: "bfifo"}, &Verdict{RateBits: 1e9, BufferBytes: 100_000, TargetBytes: 20_000, PipeBytes: 51_250}
		}
	}
	c := &switchd.Config{Ports: []switchd.PortRule{{Match: []string{"swp1", "swp7"}}, {Match: []string{"swp[2-9]"}}}}
	r := Check(f, Options{Config: c})
	for _, want := range []struct {
		check, subject, says, remedy string
		level                        Level
	}{
		{"port.queue", "swp1", `would not take it: somebody set its queue discipline "mqprio"`, "if nobody needs what is there: tc qdisc replace dev swp1", Problem},
		{"port.queue", "swp2", "bfifo keeps the queue: 1Gbit/s, buffer 100KB, target 20KB", "", OK},
		{"port.missing", "swp7", "waits for it (--wait, -f)", "spelling", Problem},
	} {
		if n := finding(t, r, want.check, want.subject, want.says); n.Level != want.level || !strings.Contains(n.Remedy, want.remedy) {
			t.Errorf("%+v", n)
		}
	}
	if c := answer(r, Switching); c.Can != Changes || c.Why != "on swp2; after a change (see ports) on swp1" {
		t.Errorf("%+v", c)
	}
	if r = Check(f, Options{Config: c, Ports: []string{"swp2"}}); !r.Fine() {
		t.Errorf("one port of it: %+v", r.Findings)
	}
}

// The report on a host with many containers has few lines.
func TestPrint_ManyOfAKind(t *testing.T) {
	f := sane()
	like := f.Devices[2]
	like.Root, like.Verdict = Qdisc{Kind: "noqueue", Default: true}, nil
	for i := range 500 {
		like.Name = fmt.Sprintf("veth%d", i)
		f.Devices = append(f.Devices, like)
	}
	var out strings.Builder
	r := Check(f, Options{})
	if err := r.Print(&out, true); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n > 60 {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
	for _, want := range []string{
		"problem  veth0, veth1, veth2, veth3, veth4, veth5 and 494 more: no queue at all", "0 blocked, 500 problems",
		"after a change (see ports) on veth0, veth1, veth2, veth3, veth4, veth5 and 494 more",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// Print lists problems first. It counts the findings that are well, and lists them only on request.
func TestPrint_ProblemsFirst(t *testing.T) {
	r := &Report{Findings: []Finding{
		{Area: AreaKernel, Level: OK, Text: "the kernel has it"},
		{Area: AreaKernel, Level: Note, Text: "a note of the kernel"},
		{Area: AreaPorts, Level: Problem, Text: "a problem of ports"},
		{Area: AreaMTU, Level: OK, Text: "the MTU is right"},
		{Area: AreaMemory, Level: Blocked, Text: "no memory"},
	}}
	order := func(all bool) (found []string) {
		t.Helper()
		var out strings.Builder
		if err := r.Print(&out, all); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			for i := range r.Findings {
				if strings.HasSuffix(strings.TrimSpace(line), r.Findings[i].Text) {
					found = append(found, r.Findings[i].Text)
				}
			}
		}
		if want := map[bool]string{false: "1 problem, 1 note, 2 ok (-v lists them)\n", true: "1 problem, 1 note, 2 ok\n"}[all]; !strings.HasSuffix(out.String(), want) {
			t.Errorf("it does not end with %q:\n%s", want, out.String())
		}
		return found
	}
	if got, want := order(false), []string{"no memory", "a problem of ports", "a note of the kernel"}; !slices.Equal(got, want) {
		t.Errorf("reported: %q, not %q", got, want)
	}
	if got, want := order(true), []string{"no memory", "a problem of ports", "the kernel has it", "a note of the kernel", "the MTU is right"}; !slices.Equal(got, want) {
		t.Errorf("all: %q, not %q", got, want)
	}
}
