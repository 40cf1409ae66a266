package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// tree makes files under a root of the test's own: "a/b": its content; "a/b ->": where a link leads.
func tree(t *testing.T, files map[string]string) *gatherer {
	t.Helper()
	g := &gatherer{o: Options{Agent: agent()}, root: t.TempDir(), release: "6.6.1"}
	for name, content := range files {
		link, isLink := strings.CutSuffix(name, " ->")
		file := filepath.Join(g.root, link)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil && isLink {
			err = os.Symlink(content, file)
		} else if err == nil {
			err = os.WriteFile(file, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// A machine with DPDK: one NIC is a process's, one a VM's, one the kernel's; a disk is a process's too.
func TestGather_DPDK(t *testing.T) {
	const dir, driver = "sys/bus/pci/devices/", "../../../bus/pci/drivers/"
	g := tree(t, map[string]string{
		dir + "0000:3b:00.0/class": "0x020000\n", dir + "0000:3b:00.0/driver ->": driver + "vfio-pci",
		dir + "0000:3b:00.1/class": "0x020700\n", dir + "0000:3b:00.1/driver ->": driver + "uio_pci_generic",
		dir + "0000:3c:00.0/class": "0x020000\n", dir + "0000:3c:00.0/driver ->": driver + "ixgbe",
		dir + "0000:3d:00.0/class": "0x010802\n", dir + "0000:3d:00.0/driver ->": driver + "vfio-pci",
		dir + "0000:3e:00.0/class": "0x020000\n",
		"proc/1/comm":              "init\n", "proc/77/comm": "ovs-vswitchd\n", "proc/78/comm": "ovs-vswitchd\n", "proc/self/comm": "vpp\n",
		"sys/bus/vdpa/devices/vdpa0/x": "",
		"proc/thread-self/net/unix": "Num RefCount Protocol Flags Type St Inode Path\n" +
			"00000000: 00000002 00000000 00010000 0001 01 1 /run/openvswitch/vhost user-1\n" +
			"00000000: 00000002 00000000 00010000 0001 01 2 /run/vms/vhu7f2\n" +
			"00000000: 00000002 00000000 00010000 0001 01 2 /run/vms/vhu7f2\n" +
			"00000000: 00000002 00000000 00000000 0002 01 3 /var/run/dpdk/rte/mp_socket\n" +
			"00000000: 00000002 00000000 00000000 0002 01 4 /var/run/dpdk/rte/mp_socket_81_x\n" +
			"00000000: 00000003 00000000 00000000 0001 03 5\n" +
			"00000000: 00000003 00000000 00000000 0001 03 6 /run/systemd/private\n",
		"proc/thread-self/net/protocols": "protocol  size sockets  memory\nXDP  896 2 -1 NI\nMPTCPv6 1 3 4 no\nMPTCP 1 4 4 no\n",
		"dev/vhost-net":                  "",
		"proc/thread-self/net/netstat":   "TcpExt: A TCPAOGood B\nTcpExt: 1 31 5\nIpExt: TCPAOGood\nIpExt: 77\n",
	})
	f := &Facts{Devices: []Device{{Kind: "tun"}}}
	g.bypass()(f)
	b := f.Bypass
	if want := []UserDevice{{"0000:3b:00.0", "vfio-pci"}, {"0000:3b:00.1", "uio_pci_generic"}}; !slices.Equal(b.UserDrivers, want) {
		t.Errorf("driven by processes: %v", b.UserDrivers)
	}
	if !slices.Equal(b.Daemons, []string{"ovs-vswitchd"}) || !slices.Equal(b.VDPA, []string{"vdpa0"}) || !slices.Equal(b.DPDK, []string{"rte"}) {
		t.Errorf("%+v", b)
	}
	if want := []string{"/run/openvswitch/vhost user-1", "/run/vms/vhu7f2"}; !slices.Equal(b.VhostUser, want) {
		t.Errorf("vhost-user: %q", b.VhostUser)
	}
	if b.XDPSockets != 2 || !b.VhostNet || len(f.Unseen) != 0 {
		t.Errorf("%+v, %+v", b, f.Unseen)
	}
	g.tcp()(f)
	if f.TCP.MPTCPSockets != 7 || f.TCP.SignedAO != 31 {
		t.Errorf("MPTCP: %+v", f.TCP)
	}
	without := &Facts{}
	g.bypass()(without)
	if without.Bypass.VhostNet {
		t.Error("vhost-net serves nobody where there is no tap")
	}
}

// SR-IOV is read from the PCI device, whatever namespace the network device is in; a bus address that is
// none is not made a path of.
func TestGather_SRIOV(t *testing.T) {
	const dir = "sys/bus/pci/devices/"
	g := tree(t, map[string]string{
		dir + "0000:3b:00.0/sriov_numvfs": "4\n", dir + "0000:3b:00.0/sriov_totalvfs": "64\n",
		dir + "0000:3b:02.0/physfn ->": "../0000:3b:00.0",
		"sys/sriov_numvfs":             "9\n",
	})
	for _, want := range []Device{
		{Bus: "0000:3b:00.0", VFs: 4, MaxVFs: 64}, {Bus: "0000:3b:02.0", IsVF: true}, {Bus: "../../.."}, {Bus: "virtio0"}, {},
	} {
		d := Device{Bus: want.Bus}
		g.pci(&d)
		if d.VFs != want.VFs || d.MaxVFs != want.MaxVFs || d.IsVF != want.IsVF {
			t.Errorf("%q: %+v", want.Bus, d)
		}
	}
}

func TestGather_Sysfs(t *testing.T) {
	const dir = "sys/class/net/swp1/"
	g := tree(t, map[string]string{
		dir + "phys_port_name": "pf0vf3\n", dir + "ifindex": "7\n", dir + "phys_switch_id": "0a1b\n", "sys/class/net/swp2/ifindex": "99\n",
		dir + "queues/tx-0/xps_cpus": "00000000,00000003\n", dir + "queues/tx-1/xps_cpus": "00000000,00000000\n", dir + "queues/rx-0/rps_cpus": "f\n",
	})
	var tables deviceTables
	d := Device{Name: "swp1", Ifindex: 7}
	if g.sysfs(&d, &tables); d.SwitchID != "0a1b" || !d.Represents || d.XPS != 1 || tables.foreignSys {
		t.Errorf("%+v, %+v", d, tables)
	}
	d = Device{Name: "swp2", Ifindex: 8}
	if g.sysfs(&d, &tables); d.SwitchID != "" || !tables.foreignSys {
		t.Errorf("another namespace's /sys was believed: %+v", d)
	}
}

func TestGather_Process(t *testing.T) {
	g := tree(t, map[string]string{
		"proc/thread-self/status":  "Name:\tweir\nCapEff:\t0000008000001000\n",
		"proc/thread-self/uid_map": "         0       1000          1\n", ".dockerenv": "",
	})
	f := &Facts{}
	g.process()(f)
	if p := f.Process; !p.UserNS || p.Container != "docker" || !p.has(capNetAdmin) || !p.has(capBPF) || p.has(capPerfmon) || p.has(capSysAdmin) {
		t.Errorf("%+v", p)
	}
	g = tree(t, map[string]string{"proc/thread-self/status": "CapEff:\t0\n", "proc/thread-self/uid_map": "0 0 4294967295\n"})
	f = &Facts{}
	if g.process()(f); f.Process.UserNS || f.Process.Container != "" || len(f.Unseen) != 0 {
		t.Errorf("%+v, %+v", f.Process, f.Unseen)
	}
}

func TestGather_Kernel(t *testing.T) {
	g := tree(t, map[string]string{
		"sys/kernel/security/lockdown":          "none [integrity] confidentiality\n",
		"proc/sys/net/core/bpf_jit_enable":      "0\n",
		"proc/thread-self/mountinfo":            "22 1 0:21 / /sys rw - sysfs sysfs rw\n30 22 0:27 / /run/bpf rw shared:9 - bpf none rw\n31 22 0:28 / /sys/fs/bpf rw - bpf bpf rw\nshort\n",
		"lib/modules/6.6.1/modules.dep":         "kernel/net/sched/weir_no_such.ko.xz:\n",
		"lib/modules/6.6.1/modules.builtin":     "kernel/drivers/net/weir_built_in.ko\n",
		"boot/config-6.6.1":                     "CONFIG_WEIR_Y=y\nCONFIG_WEIR_M=m\n# CONFIG_WEIR_N is not set\n",
		"sys/module/weir_loaded/refcnt":         "1",
		"proc/sys/kernel/bpf_stats_enabled":     "1\n",
		"proc/sys/net/core/bpf_jit_harden":      "nonsense\n",
		"proc/sys/net/ipv4/tcp_rmem":            "1 2 3\n",
		"proc/sys/kernel/unprivileged_bpf":      "0\n",
		"sys/fs/cgroup/a/b/memory.max":          "max\n",
		"sys/fs/cgroup/a/memory.max":            "5000\n",
		"sys/fs/cgroup/a/memory.current":        "2000\n",
		"proc/thread-self/cgroup":               "0::/a/b\n",
		"proc/meminfo":                          "MemTotal: 100 kB\nMemAvailable: 50 kB\n",
		"proc/sys/net/ipv6/conf/all/forwarding": "1\n",
	})
	f := &Facts{}
	g.kernel()(f)
	k := f.Kernel
	if k.Lockdown != "integrity" || k.JIT != 0 || k.JITHarden != -1 || k.BPFStats != 1 || k.BPFFS != bpffs || k.Resolution <= 0 || k.Resolution > time.Second {
		t.Errorf("%+v", k)
	}
	find := g.moduleFinder()
	for sign, want := range map[moduleSign]ModuleState{
		{"weir_no_such", "weir_no_struct", "CONFIG_X"}: ModuleOnDisk, {"weir_built_in", "", ""}: ModuleReady, {"weir_loaded", "", ""}: ModuleReady,
		{"weir_y", "", "CONFIG_WEIR_Y"}: ModuleReady, {"weir_m", "", "CONFIG_WEIR_M"}: ModuleOnDisk, {"weir_n", "", "CONFIG_WEIR_N"}: ModuleAbsent,
	} {
		if got := find(sign); got != want {
			t.Errorf("%s: %s, want %s", sign.name, got, want)
		}
	}
	if got := tree(t, nil).moduleFinder()(moduleSign{"weir_no_such", "weir_no_struct", "CONFIG_X"}); got != ModuleUnknown {
		t.Errorf("without any list: %s", got)
	}
	g.tcp()(f)
	g.memory()(f)
	if !f.TCP.Forwarding || f.TCP.Sysctls["net.ipv4.tcp_rmem"] != "1 2 3" || f.TCP.Sysctls["net.ipv4.tcp_ecn"] != "" {
		t.Errorf("%+v", f.TCP)
	}
	if m := f.Memory; m.CgroupLimit != 5000 || m.CgroupLeft != 3000 || m.Total != 102400 || m.Available != 51200 || m.Tables == 0 {
		t.Errorf("%+v", m)
	}
}

// A part that gives no answer is left behind, and said so.
func TestGather_SectionThatHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	f := &Facts{}
	(&gatherer{}).section(ctx, f, "a driver", func() note {
		<-never
		return func(f *Facts) { f.Host.Name = "late" }
	})
	if len(f.Unseen) != 1 || f.Unseen[0].What != "a driver" || f.Host.Name != "" {
		t.Errorf("%+v", f)
	}
}

// Binary data of the kernel may be cut anywhere. It is never read beyond its end.
func FuzzParse(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 12, 0, 2, 0, 'f', 't', 0, 0, 0, 0, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = parseFlowtable(b)
		_, _ = parseEgressHook(b)
		_ = deviceNames(b)
		if _, q, ok := parseTC(b); ok {
			q.kind = "tbf"
			q.bucket()
			fl := Filter{Kind: "bpf"}
			fl.parse(q.options)
		}
		_ = clean(string(b))
		_ = lockdown(string(b))
		_ = mountType(strings.Fields(string(b)))
	})
}

func TestParseFlowtable(t *testing.T) {
	attr := func(kind byte, value ...byte) []byte {
		out := append([]byte{byte(4 + len(value)), 0, kind, 0}, value...)
		for len(out)%4 != 0 {
			out = append(out, 0)
		}
		return out
	}
	text := func(s string) []byte { return append([]byte(s), 0) }
	names := slices.Concat(attr(1, text("swp1")...), attr(1, text("swp2")...))
	hook := func(number byte, devices []byte) []byte {
		return slices.Concat(attr(hookNumber, 0, 0, 0, number), devices)
	}
	m := slices.Concat([]byte{1, 0, 0, 0}, attr(flowtableTable, text("fw")...), attr(flowtableName, text("ft")...),
		attr(flowtableHook, hook(0, attr(hookDevices, names...))...), attr(flowtableFlags, 0, 0, 0, 1))
	got, ok := parseFlowtable(m)
	if !ok || got.Table != "fw" || got.Name != "ft" || !got.Hardware || !slices.Equal(got.Devices, []string{"swp1", "swp2"}) {
		t.Errorf("%+v, %t", got, ok)
	}
	chain := func(number byte, devices []byte) []byte {
		return slices.Concat([]byte{5, 0, 0, 0}, attr(chainTable, text("fw")...), attr(chainName, text("out")...), attr(chainHook, hook(number, devices)...))
	}
	for what, m := range map[string][]byte{
		"one": chain(netdevEgress, attr(chainDevice, text("swp1")...)), "many": chain(netdevEgress, attr(chainMany, attr(1, text("swp1")...)...)),
	} {
		if h, ok := parseEgressHook(m); !ok || h.Table != "fw" || h.Name != "out" || !slices.Equal(h.Devices, []string{"swp1"}) {
			t.Errorf("%s: %+v, %t", what, h, ok)
		}
	}
	if h, ok := parseEgressHook(chain(0, attr(chainDevice, text("swp1")...))); ok {
		t.Errorf("ingress: %+v", h)
	}
}
