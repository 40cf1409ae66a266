package fairq

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"weir/internal/testroot"
)

// A port has the id that it had before. A new port has an id that no port had. If there is none, it has that of
// the port that is gone for longest, whose connections are removed from it.
func TestFairQ_PortIDs(t *testing.T) {
	testroot.Need(t, "makes BPF maps")
	f, err := Attach(nil, Config{Flows: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const cookie, oldest, spare = 7, 500, 900
	for id := range uint32(maxPorts) {
		if id == spare {
			continue
		}
		p := fairqPort{TickedNs: 1000 + uint64(id), Epoch: 40, Generation: 3, Owned: 2, BacklogMax: 9}
		if id == oldest {
			p.TickedNs = 5
		}
		c := fairqPortConfig{NetnsCookie: cookie, Name: portName(fmt.Sprintf("p%d", id))}
		if err := f.maps.Ports.Put(id, p); err != nil {
			t.Fatal(err)
		}
		if err := f.maps.Configs.Put(id, &c); err != nil {
			t.Fatal(err)
		}
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.maps.Counts.Put(uint32(oldest), append(make([]fairqPortCounts, cpus-1), fairqPortCounts{Seen: 5})); err != nil {
		t.Fatal(err)
	}
	used := map[uint32]bool{}
	for _, c := range []struct {
		name   string
		cookie uint64
		want   uint32
	}{
		{"p17", cookie, 17}, // it is back
		{"p17", 8, spare},   // of another namespace: another port
		{"new", 8, oldest},  // no unused id is left
		{"p500", cookie, 0}, // another port has its id now: the next oldest
		{"p0", cookie, 1},   // the same for this one's
		{"p1023", cookie, 1023},
	} {
		id, err := f.portID(c.name, c.cookie, used)
		if err != nil || id != c.want {
			t.Errorf("%s of namespace %d has id %d, want %d (%v)", c.name, c.cookie, id, c.want, err)
		}
		used[id] = true
	}
	back, reused := f.stateOf(t, 17), f.stateOf(t, oldest)
	if back.Epoch != 40 || back.Generation != 3 || back.BacklogMax != 9 {
		t.Errorf("a port that is back begins anew: %+v", back)
	}
	if reused.Epoch != 40+8 /* FLOWS_WHEEL */ || reused.Generation != 4 || reused.Owned != 2 || reused.BacklogMax != 0 {
		t.Errorf("a port begins with what another left: %+v", reused)
	}
	if s, err := f.maps.stats(oldest); err != nil || s.Seen != 0 {
		t.Errorf("a port begins with another's counters: %+v, %v", s, err)
	}
	for id := range uint32(maxPorts) {
		used[id] = true
	}
	if id, err := f.portID("more", 8, used); err == nil {
		t.Errorf("a port more than there are ids has id %d", id)
	}
}

func (f *Attachment) stateOf(t *testing.T, id uint32) (p fairqPort) {
	t.Helper()
	if err := f.maps.Ports.Lookup(id, &p); err != nil {
		t.Fatal(err)
	}
	return p
}
