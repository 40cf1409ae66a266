package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"weir/internal/testroot"
)

// hostState lists everything on the host that a run could change, one fact per line.
func hostState(t *testing.T) []string {
	t.Helper()
	var state []string
	add := func(format string, args ...any) { state = append(state, fmt.Sprintf(format, args...)) }
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		a := l.Attrs()
		add("link %d %s %s %v mtu %d flags %v master %d", a.Index, a.Name, l.Type(), a.HardwareAddr, a.MTU, a.Flags, a.MasterIndex)
		qdiscs, err := netlink.QdiscList(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range qdiscs {
			add("qdisc %v", q)
		}
	}
	for id := ebpf.ProgramID(0); ; {
		if id, err = ebpf.ProgramGetNextID(id); err != nil {
			break
		}
		add("program %d", id)
	}
	for id := ebpf.MapID(0); ; {
		if id, err = ebpf.MapGetNextID(id); err != nil {
			break
		}
		add("map %d", id)
	}
	links2 := new(link.Iterator)
	for links2.Next() {
		add("bpf link %d", links2.ID)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		add("mount %s", strings.TrimSpace(line))
	}
	for _, root := range []string{"/run/netns", "/run/weir", "/sys/fs/bpf", "/sys/fs/cgroup"} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			socket := path == "/run/weir" || strings.HasSuffix(path, ".sock") // sockets of concurrent tests' switches, and their directory
			// The machine's own groups change at any time.
			if err == nil && !socket && (root != "/sys/fs/cgroup" || d.IsDir() && strings.Contains(path, "weir")) {
				add("path %s", path)
			}
			return nil
		})
	}
	slices.Sort(state)
	return state
}

// difference returns the lines that only one state has. Maps and programs that disappeared do not count: nobody can
// remove those of another process, and the kernel frees those of an earlier test late.
func difference(before, after []string) string {
	var out []string
	for _, l := range before {
		own := strings.HasPrefix(l, "map ") || strings.HasPrefix(l, "program ")
		if !own && !slices.Contains(after, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range after {
		if !slices.Contains(before, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}

// sameHost waits until the host is as before: the kernel frees namespaces and programs a moment after their last user
// has ended.
func sameHost(t *testing.T, before []string, after string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		diff := difference(before, hostState(t))
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s the host is not as it was:\n%s", after, diff)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

const killed = `
id: killed
duration: 1s
seeds: [1]
worlds: [lab]
topology: {kind: dumbbell, senders: 4, receivers: 1, hypervisors: true}
network: {rate: 50Mbit, rtt: 200us, buffer: 60KB}
guests: {cc: reno, ecn: true, initial_rto: 300ms}
traffic:
  - {name: long, from: "sender*", to: receiver1, pattern: bulk, start: 0s, stop: 1s}
schemes: [{name: ecn, params: {threshold: 20KB}}]
measure: {ports: {bottleneck: "switch->receiver1"}}
`

// TestHostIsAsBefore runs an experiment to its end, then kills it with SIGKILL at four random moments (ten in a soak)
// and cleans up. Each time the host must be as before, to the last mount and program.
func TestHostIsAsBefore(t *testing.T) {
	testroot.Need(t, "namespaces and kernel programs")
	file := filepath.Join(t.TempDir(), "killed.yaml")
	if err := os.WriteFile(file, []byte(killed), 0o600); err != nil {
		t.Fatal(err)
	}
	before := hostState(t)
	started := time.Now()
	if out, err := exec.Command("weir", "run", file, "--world", "lab").CombinedOutput(); err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	whole := time.Since(started)
	sameHost(t, before, "after a run")

	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range rounds(4, 10) {
		after := time.Duration(rnd.Int64N(int64(whole)))
		cmd := exec.Command("weir", "run", file, "--world", "lab")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after) // the moment is the point of the test
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		// By name: the test must not remove other labs of this machine.
		lab := fmt.Sprintf("run-%d", cmd.Process.Pid)
		out, err := exec.Command("weir", "lab", "clean", lab).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "no lab ") { // killed before it had a lab
			t.Fatalf("kill %d after %v: clean: %v\n%s", n, after, err, out)
		}
		sameHost(t, before, fmt.Sprintf("after kill %d, %v into the run,", n, after))
	}
}
