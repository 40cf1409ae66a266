package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/testroot"
)

const twoSpines = `
id: two-spines
duration: 500ms
seeds: [1]
worlds: [lab]
topology: {kind: leaf_spine, leaves: 2, spines: 2, servers: 2, hypervisors: false, switch: ovs}
network: {rate: 10Mbit, rtt: 400us, buffer: 60KB}
guests: {cc: reno}
traffic:
  - {name: long, from: "rack1.server*", to: "rack2.server*", pattern: bulk, start: 0s, stop: 500ms}
schemes:
  - {name: droptail}
  - {name: ecn, params: {threshold: 20KB}, guests: {ecn: true}}
  - {name: fairq}
measure: {ports: {bottleneck: "spine1->leaf2"}}
`

// A leaf-spine network of Open vSwitches runs under the lab's controller, with every law. In a manual lab the
// controller answers at its usual place, and it is removed with the lab.
func TestLabWithController(t *testing.T) {
	testroot.Need(t, "namespaces and kernel programs")
	if _, err := exec.LookPath("ovs-vswitchd"); err != nil {
		t.Skip("no Open vSwitch, so no controlled network was built: ", err)
	}
	file := filepath.Join(t.TempDir(), "two-spines.yaml")
	if err := os.WriteFile(file, []byte(twoSpines), 0o600); err != nil {
		t.Fatal(err)
	}
	weir := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("weir", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("weir %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	before := hostState(t)
	out := weir("run", file, "--world", "lab", "--json")
	if strings.Contains(out, "topology.switch ovs: ") {
		t.Errorf("a run says\n%s", out)
	}
	const lab = "test-two-spines"
	weir("lab", "up", file, "--name", lab)
	status := weir("lab", "exec", "--lab", lab, "controller", "--", "weir", "controller", "status")
	if !strings.Contains(status, "4 switches, 4 links, 4 hosts, 0 pinned flows; settled") {
		t.Errorf("by hand:\n%s", status)
	}
	weir("lab", "clean", lab)
	sameHost(t, before, "after a lab with a controller")
}
