package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/testnet"
)

// egress names the programs at the egress of the data's port, in their order.
func (m *machine) egress() (names []string) {
	m.t.Helper()
	m.Switch.Must(m.t, func() error {
		dev, err := netlink.LinkByName("out0")
		if err != nil {
			return err
		}
		chain, err := attach.ProgramsAt(dev.Attrs().Index, ebpf.AttachTCXEgress)
		if err != nil {
			return err
		}
		for _, p := range chain {
			prog, err := ebpf.NewProgramFromID(p.ID)
			if err != nil {
				return err
			}
			info, err := prog.Info()
			_ = prog.Close()
			if err != nil {
				return err
			}
			names = append(names, info.Name)
		}
		return nil
	})
	return names
}

// The messages to systemd: ready, alive, reloading, ready again, stopping.
func TestSwitch_NotifiesSystemd(t *testing.T) {
	m := newMachine(t)
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "600000")
	heard := make(chan string, 1000)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := socket.Read(b)
			if err != nil {
				return
			}
			heard <- string(b[:n])
		}
	}()
	var all []string
	await := func(what string, wanted ...string) {
		t.Helper()
		deadline := time.After(testnet.Patience)
		for {
			select {
			case text := <-heard:
				all = append(all, text)
				found := true
				for _, w := range wanted {
					found = found && strings.Contains(text, w)
				}
				if found {
					return
				}
			case <-deadline:
				t.Fatalf("%s: not reported: %q", what, all)
			}
		}
	}
	c := m.switchFrom(both)
	await("begun", "READY=1", "STATUS=FairQ on 2 ports")
	await("alive", "WATCHDOG=1")
	await("still alive", "WATCHDOG=1")
	c.applied(variants[1])
	await("a reload", "RELOADING=1", "MONOTONIC_USEC=")
	await("applied", "READY=1", "STATUS=FairQ on 2 ports")
	if code, _ := c.reload("kind: Switch\n"); code != exitError {
		t.Errorf("reload ends with %d", code)
	}
	await("another reload", "RELOADING=1")
	await("refused", "READY=1", "last reload refused")
	c.p.signal(syscall.SIGTERM)
	await("ending", "STOPPING=1")
	if code := c.p.wait(); code != 0 {
		t.Errorf("ended with %d", code)
	}
}

// leastCapabilities are those of the unit in deploy/systemd.
func leastCapabilities(t *testing.T) (names []string) {
	t.Helper()
	unit, err := os.ReadFile("../../deploy/systemd/weir-switch.service")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(unit)) {
		if list, ok := strings.CutPrefix(strings.TrimSpace(line), "CapabilityBoundingSet="); ok {
			return strings.Fields(list)
		}
	}
	t.Fatal("the unit gives no capabilities")
	return nil
}

var capabilities = map[string]uintptr{
	"CAP_BPF": unix.CAP_BPF, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_PERFMON": unix.CAP_PERFMON,
	"CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_SYS_RESOURCE": unix.CAP_SYS_RESOURCE, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE,
	"CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
}

// confined is a command of the tests: `weir-confined CAP,CAP... ARGS` runs `weir ARGS` as root with only these
// capabilities.
func confined() {
	keep := map[uintptr]bool{}
	for _, name := range strings.Split(os.Args[1], ",") {
		keep[capabilities[name]] = true
	}
	last := uintptr(unix.CAP_LAST_CAP)
	if text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			last = uintptr(n)
		}
	}
	for c := range last + 1 {
		if keep[c] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			fmt.Fprintln(os.Stderr, "drop capability", c, err)
			os.Exit(1)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "no new privileges:", err)
		os.Exit(1)
	}
	weir, err := exec.LookPath("weir")
	if err == nil {
		err = unix.Exec(weir, append([]string{"weir"}, os.Args[2:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "exec weir:", err)
	os.Exit(1)
}

// capabilitiesOf returns the effective capabilities of a process.
func capabilitiesOf(t *testing.T, pid int) uint64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
	}
	t.Fatal("no CapEff")
	return 0
}

// With exactly the capabilities of the unit everything works: attach, shape, mark, reload, status, take over, end.
// Without any one of them something fails, so each is needed.
func TestSwitch_LeastCapabilities(t *testing.T) {
	parallel(t)
	m := newMachine(t)
	m.unshaped()
	chains := m.chains()
	all := leastCapabilities(t)
	path := filepath.Join(t.TempDir(), "switch.yaml")
	c := &configured{machine: m, path: path}
	c.write(strings.Replace(shaped, "125KB", "125KB, mark: {threshold: 50KB}", 1))
	for i := range all {
		some := append(append([]string{}, all[:i]...), all[i+1:]...)
		p := m.start("weir-confined", strings.Join(some, ","), "switch", "-f", path)
		if code := p.wait(); code == 0 {
			t.Errorf("without %s it runs, and ends with 0", all[i])
		}
		if now := m.chains(); len(now) != len(chains) {
			t.Errorf("without %s it leaves something:\n%s", all[i], difference(chains, now))
		}
	}
	confine := strings.Join(all, ",")
	up := func(args ...string) {
		c.p = m.start("weir-confined", append([]string{confine, "switch", "-f", path}, args...)...)
		m.until(c.p, "weir switch is attached", func() bool {
			s := m.read()
			return strings.Contains(c.p.log.String(), "begun") && s != nil && s.Holder.PID == c.p.cmd.Process.Pid && s.Alive() && len(s.Ports) == 2
		})
	}
	up()
	var want uint64
	for _, name := range all {
		want |= 1 << capabilities[name]
	}
	if got := capabilitiesOf(t, c.p.cmd.Process.Pid); got != want {
		t.Fatalf("it has the capabilities %x, wanted %x: the test shows nothing", got, want)
	}
	streams := m.NewStreams(t, testnet.ReceiverIPv4, 4)
	m.until(c.p, "windows are limited", m.limited)
	c.write(strings.Replace(shaped, "125KB", "100KB, mark: {threshold: 40KB}", 1) + "fairq: {scale: shim}\n")
	p := m.start("weir-confined", confine, "switch", "reload")
	if code := p.wait(); code != 0 {
		t.Errorf("reload ends with %d: %s", code, p.log)
	}
	p = m.start("weir-confined", confine, "status", "--json")
	if p.wait(); !strings.Contains(p.log.String(), `"switches":[{"name":"default"`) {
		t.Errorf("status: %s", p.log)
	}
	before := c.p
	up("--take-over")
	before.wait()
	streams.Progress(t, 100_000)
	c.p.kill()
	up("--purge")
	m.until(c.p, "windows are limited", m.limited)
	c.p.signal(syscall.SIGTERM)
	if code := c.p.wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, c.p.log)
	}
	if now := m.chains(); len(now) != len(chains) || len(m.pins()) != 0 {
		t.Errorf("left something:\n%s\n%v", difference(chains, now), m.pins())
	}
}
