package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weir/internal/testroot"
)

const twoSenders = `
id: two-senders
duration: 500ms
worlds: [lab, sim]
topology: {kind: dumbbell, senders: 2, receivers: 1, hypervisors: false}
network: {rate: 10Mbit, rtt: 400us, buffer: 60KB}
traffic:
  - {name: long, from: "sender*", to: receiver1, pattern: bulk, start: 0s, stop: 400ms}
schemes: [{name: droptail}]
`

// weirAs runs the command as a user (0: root) and returns its output followed by the exit code.
func weirAs(t *testing.T, uid uint32, args ...string) string {
	t.Helper()
	// Only root can open the directory of the test binary, but a process can always execute itself.
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	c := &exec.Cmd{
		Path: "/proc/self/fd/3", Args: append([]string{"weir"}, args...), ExtraFiles: []*os.File{self},
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}},
	}
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%sexit %d", out, c.ProcessState.ExitCode())
}

// lab up, list and exec name a lab in the same way, and lab up prints its name if the user needs it.
func TestLabByHand(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	file := filepath.Join(t.TempDir(), "two-senders.yaml")
	if err := os.WriteFile(file, []byte(twoSenders), 0o600); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("hand-%d", os.Getpid())
	t.Cleanup(func() { weirAs(t, 0, "lab", "clean", name) })
	says := func(out, want string) {
		t.Helper()
		if !strings.Contains(out, want) {
			t.Errorf("%s\nwanted: %s", out, want)
		}
	}
	up := weirAs(t, 0, "lab", "up", file, "--name", name)
	says(up, "lab "+name+": 4 nodes, scheme droptail, up in ")
	says(up, "use it with: weir lab exec --lab "+name+" NODE -- COMMAND\nexit 0")
	for line := range strings.Lines(weirAs(t, 0, "lab", "list")) {
		if f := strings.Fields(line); f[0] == name && f[2] != "4" {
			t.Errorf("lab up has 4 nodes, lab list: %s", line)
		}
	}
	says(weirAs(t, 0, "lab", "exec", "--lab", name, "sender1", "--", "cat", "/proc/net/dev"), "eth0:")
	says(weirAs(t, 0, "lab", "exec", "--lab", name, "sender1", "--", "no-such-program"),
		`weir: no program "no-such-program" on this machine: nodes use the programs of the host; install it, or give its path`)
	says(weirAs(t, 0, "lab", "exec", "--lab", name, "sendr1", "--", "true"), `has no node "sendr1"; did you mean sender1?`)
	says(weirAs(t, 0, "lab", "exec", "--lab", "nosuch", "sender1", "--", "true"), `weir: no lab "nosuch"; labs that are up: `)
	says(weirAs(t, 0, "lab", "clean", "nosuch"), `weir: no lab "nosuch"; labs that are up: `)
	says(weirAs(t, 0, "lab", "clean", name), "removed lab "+name)
}

// A law that stays without its process is applied when lab up ends.
func TestLabUp_AppliesALawThatStays(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	file := filepath.Join(t.TempDir(), "two-senders.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(twoSenders, "{name: droptail}", "{name: deeptail, params: {more: 50KB}}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("deep-%d", os.Getpid())
	t.Cleanup(func() { weirAs(t, 0, "lab", "clean", name) })
	if up := weirAs(t, 0, "lab", "up", file, "--scheme", "deeptail", "--name", name); !strings.HasSuffix(up, "exit 0") {
		t.Fatal(up)
	}
	at, err := netns.GetFromName("weir-" + name + "-switch")
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	h, err := netlink.NewHandleAt(at, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	list, err := h.QdiscList(nil)
	if err != nil {
		t.Fatal(err)
	}
	var limits []uint32
	for _, q := range list {
		if tbf, ok := q.(*netlink.Tbf); ok {
			limits = append(limits, tbf.Limit)
		}
	}
	if !slices.Equal(limits, []uint32{110_000, 110_000, 110_000}) {
		t.Errorf("the limits of the switch's queues are %v B, want 60 KB and 50 KB more", limits)
	}
}

// enforced calls do when lab up reports that a law is enforced.
type enforced struct{ do func() }

func (w enforced) Write(p []byte) (int, error) {
	if strings.Contains(string(p), " is enforced ") {
		w.do()
	}
	return len(p), nil
}

// lab up names who keeps a namespace of the lab that it has removed.
func TestLabUp_NamesWhoStays(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	file := filepath.Join(t.TempDir(), "two-senders.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(twoSenders, "{name: droptail}", "{name: ecn, params: {threshold: 20KB}}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := planOne(file, "ecn", nil)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("stays-%d", os.Getpid())
	other := exec.Command("nsenter", "--net=/run/netns/weir-"+name+"-receiver1", "sh", "-c", "echo ready; read x")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begin := func() {
		if err := other.Start(); err != nil {
			t.Error(err)
		} else if n, err := out.Read(make([]byte, 16)); n == 0 {
			t.Error(err)
		}
		cancel()
	}
	var warned strings.Builder
	if err := labUp(ctx, name, r, enforced{begin}, &warned); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("weir: warning: lab %s is removed, but its namespaces remain until these end: %d (sh) in receiver1\n", name, other.Process.Pid); warned.String() != want {
		t.Errorf("%q, want %q", warned.String(), want)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	_ = other.Wait() // read fails at the end of its input
}

// lab up refuses a scheme whose law the lab cannot run, before anything is built.
func TestLabUp_ChecksTheLaws(t *testing.T) {
	file := filepath.Join(t.TempDir(), "two-senders.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(twoSenders, "{name: droptail}", "{name: hygenicc}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := planOne(file, "hygenicc", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a lab that is built nevertheless does not stay
	var out strings.Builder
	err = labUp(ctx, fmt.Sprintf("check-%d", os.Getpid()), r, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "set topology.hypervisors: true") || out.Len() > 0 {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// Every lab command of an unprivileged user reports that it needs root.
func TestLabNeedsRoot(t *testing.T) {
	testroot.Need(t, "changes its user")
	dir, err := os.MkdirTemp("/tmp", "weir-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "two-senders.yaml")
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(twoSenders), 0o644); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"run", file, "--world", "lab"}, {"run", file}, {"run", file, "--world", "lab,sim", "--seeds", "2"}, {"lab", "up", file},
		{"lab", "exec", "sender1", "--", "true"}, {"lab", "exec", "--lab", "nosuch", "sender1", "--", "true"},
		{"lab", "clean"}, {"lab", "clean", "nosuch"},
	} {
		out := weirAs(t, 65534, args...)
		if !strings.Contains(out, "needs root") || !strings.HasSuffix(out, "exit 1") || strings.Count(out, "\n") != 1 {
			t.Errorf("weir %v without root:\n%s", args, out)
		}
	}
	if out := weirAs(t, 65534, "run", file, "--world", "sim"); !strings.HasSuffix(out, "exit 0") {
		t.Errorf("the simulator without root:\n%s", out)
	}
}
