package doctor

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/mark"
)

func (g *gatherer) host() note {
	var u unix.Utsname
	_ = unix.Uname(&u)
	name, _ := os.Hostname()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		cpus = runtime.NumCPU()
	}
	h := Host{
		Name: name, Release: unix.ByteSliceToString(u.Release[:]), Arch: runtime.GOARCH, CPUs: cpus,
		Realtime: g.line("sys/kernel/realtime") == "1", Namespaces: len(g.names("run/netns")),
	}
	return func(f *Facts) { f.Host = h }
}

func (g *gatherer) process() note {
	p := Process{Root: os.Geteuid() == 0}
	err := g.lines(func(f []string) bool {
		if len(f) == 2 && f[0] == "CapEff:" {
			p.Capabilities, _ = strconv.ParseUint(f[1], 16, 64)
		}
		return true
	}, "proc/thread-self/status")
	whole := false
	errMap := g.lines(func(f []string) bool {
		whole = whole || len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295"
		return true
	}, "proc/thread-self/uid_map")
	p.UserNS = errMap == nil && !whole
	switch {
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		p.Container = "kubernetes"
	case g.exists(".dockerenv"):
		p.Container = "docker"
	case g.exists("run/.containerenv"):
		p.Container = "podman"
	default:
		p.Container = g.line("run/systemd/container")
	}
	return func(f *Facts) {
		g.rights = p
		f.Process = p
		f.unseen("capabilities of this process", err)
	}
}

func (g *gatherer) kernel() note {
	k := Kernel{
		JIT: g.number(-1, "proc/sys/net/core/bpf_jit_enable"), JITHarden: g.number(-1, "proc/sys/net/core/bpf_jit_harden"),
		Unprivil: g.number(-1, "proc/sys/kernel/unprivileged_bpf_disabled"), BPFStats: g.number(-1, "proc/sys/kernel/bpf_stats_enabled"),
		BPFDir: g.exists(bpffs), Lockdown: lockdown(g.line("sys/kernel/security/lockdown")), Modules: map[string]ModuleState{},
	}
	err := g.lines(func(f []string) bool {
		if k.BPFFS != bpffs && mountType(f) == "bpf" {
			k.BPFFS = f[4]
		}
		return true
	}, "proc/thread-self/mountinfo")
	var t unix.Timespec
	if unix.ClockGetres(unix.CLOCK_MONOTONIC, &t) == nil {
		k.Resolution = time.Duration(t.Nano())
	}
	look := g.moduleFinder()
	for _, m := range []moduleSign{
		{"sch_tbf", "tbf_sched_data", "CONFIG_NET_SCH_TBF"}, {"sch_htb", "htb_sched", "CONFIG_NET_SCH_HTB"},
		{"veth", "veth_priv", "CONFIG_VETH"}, {"bridge", "net_bridge_fdb_entry", "CONFIG_BRIDGE"},
	} {
		k.Modules[m.name] = look(m)
	}
	return func(f *Facts) {
		k.Features, k.Rehearsed, k.Rehearsal = f.Kernel.Features, f.Kernel.Rehearsed, f.Kernel.Rehearsal
		f.Kernel = k
		f.unseen("mounted file systems", err)
	}
}

// mountType is the kind of the file system that a line of mountinfo is about: behind a lone dash.
func mountType(f []string) string {
	for i := 5; i+1 < len(f); i++ {
		if f[i] == "-" {
			return f[i+1]
		}
	}
	return ""
}

// lockdown is the word in brackets: "none [integrity] confidentiality".
func lockdown(line string) string {
	_, rest, ok := strings.Cut(line, "[")
	word, _, closed := strings.Cut(rest, "]")
	if !ok || !closed || word == "none" {
		return ""
	}
	return word
}

// features asks the kernel about BPF. The programs are rehearsed only where all features are there, for
// otherwise the answer is known, and longer.
func (g *gatherer) features() note {
	features := attach.Features(append(g.o.Agent.Needs(), mark.Needs(), attach.MeasureNeeds())...)
	rehearse := true
	for i := range features {
		for _, u := range features[i].Uses {
			rehearse = rehearse && (u != attach.UseSwitch || features[i].Err == nil)
		}
	}
	var err error
	if rehearse {
		err = g.o.Agent.Rehearse()
	}
	return func(f *Facts) {
		f.Kernel.Features, f.Kernel.Rehearsed, f.Kernel.Rehearsal = features, rehearse, err
	}
}

// moduleSign has the signs that a part of the kernel is present.
type moduleSign struct{ name, btfType, option string }

// moduleFinder reads the lists of modules once.
func (g *gatherer) moduleFinder() func(moduleSign) ModuleState {
	spec, btfErr := attach.KernelTypes().Kernel()
	lists := map[string]string{}
	for _, name := range []string{"modules.builtin", "modules.dep"} {
		if b, err := g.read("lib/modules", g.release, name); err == nil {
			lists[name] = string(b)
		}
	}
	config := g.config()
	return func(m moduleSign) ModuleState {
		if btfErr == nil {
			var found *btf.Struct
			if err := spec.TypeByName(m.btfType, &found); err == nil || errors.Is(err, btf.ErrMultipleMatches) {
				return ModuleReady
			}
		}
		file := "/" + m.name + ".ko"
		switch {
		case g.exists("sys/module", m.name), strings.Contains(lists["modules.builtin"], file), strings.Contains(config, "\n"+m.option+"=y\n"):
			return ModuleReady
		case strings.Contains(lists["modules.dep"], file), strings.Contains(config, "\n"+m.option+"=m\n"):
			return ModuleOnDisk
		case config != "" || lists["modules.dep"] != "":
			return ModuleAbsent
		}
		return ModuleUnknown
	}
}

// config returns the kernel's configuration; "" if it is not available.
func (g *gatherer) config() string {
	if file, err := os.Open(g.path("proc/config.gz")); err == nil {
		defer func() { _ = file.Close() }()
		if z, err := gzip.NewReader(file); err == nil {
			if b, err := io.ReadAll(io.LimitReader(z, fileMax)); err == nil {
				return "\n" + string(b)
			}
		}
	}
	if b, err := g.read("boot", "config-"+g.release); err == nil {
		return "\n" + string(b)
	}
	return ""
}
