package fairq

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"weir/internal/testroot"
)

// The reported memory of the tables is near the kernel's own count.
func TestFairQMemory(t *testing.T) {
	testroot.Need(t, "makes tables")
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	for _, flows := range []uint32{1024, 65536, 100_000} {
		source, err := newSource(&Config{Flows: flows})
		if err != nil {
			t.Fatal(err)
		}
		maps, err := source.openMaps()
		if err != nil {
			t.Fatal(err)
		}
		var counted uint64
		for _, m := range []*ebpf.Map{maps.Controls, maps.Configs, maps.Ports, maps.Counts, maps.Near, maps.Flows, maps.Pending, maps.Timers, maps.Groups, maps.Credits, maps.RepairConfigs, maps.RepairPorts, maps.RepairStats, maps.RepairFlows} { // an empty scope takes nothing
			info, err := m.Info()
			if err != nil {
				t.Fatal(err)
			}
			bytes, known := info.Memlock()
			if !known || bytes == 0 {
				t.Fatalf("%v: this kernel does not report what it takes (%d, %t)", m, bytes, known)
			}
			counted += bytes
		}
		if err := maps.Close(); err != nil {
			t.Error(err)
		}
		said, err := Memory(flows, cpus)
		if ratio := float64(said) / float64(counted); err != nil || ratio < 0.9 || ratio > 1.1 {
			t.Errorf("%d connections: said %d, the kernel counts %d, %v", flows, said, counted, err)
		}
	}
	// Apart from a constant for every table, 16 times the connections take 16 times as much.
	some, err1 := Memory(1<<16, 1)
	twice, err2 := Memory(1<<17, 1)
	many, err3 := Memory(1<<20, 1)
	ratio := float64(many-some) / float64(twice-some)
	if err := errors.Join(err1, err2, err3); err != nil || ratio < 14.9 || ratio > 15.1 || many < 10*some {
		t.Errorf("for 2 and 16 times the connections: %d, %d and %d bytes, %v", some, twice, many, err)
	}
}

// A process that takes over makes no second table of connections to check its programs. With Renew it does, because the
// pinned tables are then replaced.
func TestFairQMemory_OfATrial(t *testing.T) {
	const flows = 1 << 20
	for _, renew := range []bool{false, true} {
		source, err := newSource(&Config{Flows: flows, Pin: "/sys/fs/bpf/weir/switch/a", Renew: renew})
		if err != nil {
			t.Fatal(err)
		}
		trial, want := source.trial(), uint32(trialFlows)
		if renew {
			want = flows
		}
		if n := trial.spec.Maps[fairqMapFlows].MaxEntries; n != want || trial.cfg.Pin != "" {
			t.Errorf("renew %t: the trial's table has %d connections, want %d; pins %q", renew, n, want, trial.cfg.Pin)
		}
		if n := source.spec.Maps[fairqMapFlows].MaxEntries; n != flows {
			t.Errorf("renew %t: the trial changed the table itself to %d connections", renew, n)
		}
	}
}
