package measure

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
)

// witness counts the drops by the queues of ports at which the kernel runs a tracing program. It shares nothing with the
// recorder, so it separates the drops that the recorder missed from those that the kernel reported to no program.
type witness struct {
	counts *ebpf.Map
	keys   []portKey
}

// portKey is a port for the program: an ifindex is unique only in its namespace.
type portKey struct {
	Cookie        uint64
	Ifindex, Zero uint32
}

// watchDrops begins to count. The kernel counts the calls that it skips because one runs on that CPU (RecursionMisses).
func watchDrops(t *testing.T, ports ...Port) *witness {
	t.Helper()
	w := &witness{}
	var err error
	w.counts, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 16, ValueSize: 8, MaxEntries: uint32(len(ports))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.counts.Close() })
	for _, p := range ports {
		key := portKey{Cookie: p.NetnsCookie, Ifindex: uint32(p.Ifindex)}
		if err := w.counts.Put(key, uint64(0)); err != nil {
			t.Fatal(err)
		}
		w.keys = append(w.keys, key)
	}
	program, err := witnessProgram(w.counts)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "witness", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "kfree_skb", License: "GPL", Instructions: program,
	})
	if err != nil {
		t.Fatalf("witness of drops: %v", err)
	}
	t.Cleanup(func() { _ = prog.Close() })
	l, err := link.AttachTracing(link.TracingOptions{Program: prog})
	if err != nil {
		t.Fatalf("attach the witness of drops: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return w
}

// seen returns the drops at all ports so far.
func (w *witness) seen(t *testing.T) int {
	t.Helper()
	sum := 0
	for _, key := range w.keys {
		var n uint64
		if err := w.counts.Lookup(key, &n); err != nil {
			t.Fatal(err)
		}
		sum += int(n)
	}
	return sum
}

// witnessProgram counts a call of kfree_skb whose reason is a queue's and whose device is in the map.
func witnessProgram(counts *ebpf.Map) (asm.Instructions, error) {
	spec, err := attach.KernelTypes().Kernel()
	if err != nil {
		return nil, err
	}
	at := map[string]int16{}
	for _, m := range [][2]string{{"sk_buff", "dev"}, {"net_device", "ifindex"}, {"net_device", "nd_net"}, {"net", "net_cookie"}} {
		var s *btf.Struct
		if err := spec.TypeByName(m[0], &s); err != nil {
			return nil, err
		}
		off, ok := memberAt(s.Members, m[1])
		if !ok {
			return nil, fmt.Errorf("the kernel's %s has no %s", m[0], m[1])
		}
		at[m[1]] = int16(off)
	}
	prog := asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord),  // skb
		asm.LoadMem(asm.R7, asm.R1, 16, asm.DWord), // reason
	}
	for value, name := range dropReasons() {
		switch name {
		case "QDISC_DROP", "QDISC_OVERLIMIT", "QDISC_CONGESTED":
			prog = append(prog, asm.JEq.Imm32(asm.R7, int32(value), "queue"))
		}
	}
	return append(prog,
		asm.Ja.Label("out"),
		asm.LoadMem(asm.R2, asm.R6, at["dev"], asm.DWord).WithSymbol("queue"),
		asm.JEq.Imm(asm.R2, 0, "out"),
		asm.Mov.Imm(asm.R3, 0),
		asm.StoreMem(asm.RFP, -8, asm.R3, asm.DWord),
		asm.LoadMem(asm.R3, asm.R2, at["ifindex"], asm.Word),
		asm.StoreMem(asm.RFP, -8, asm.R3, asm.Word),
		asm.LoadMem(asm.R2, asm.R2, at["nd_net"], asm.DWord),
		asm.JEq.Imm(asm.R2, 0, "out"),
		asm.LoadMem(asm.R3, asm.R2, at["net_cookie"], asm.DWord),
		asm.StoreMem(asm.RFP, -16, asm.R3, asm.DWord),
		asm.LoadMapPtr(asm.R1, counts.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -16),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	), nil
}

// memberAt returns the offset of a member, in bytes, also within unnamed structs and unions.
func memberAt(members []btf.Member, name string) (uint32, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset.Bytes(), true
		}
		if m.Name != "" {
			continue
		}
		var within []btf.Member
		switch inner := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			within = inner.Members
		case *btf.Union:
			within = inner.Members
		}
		if off, ok := memberAt(within, name); ok {
			return m.Offset.Bytes() + off, true
		}
	}
	return 0, false
}

// allRecorded checks that the recorder has every drop at which the kernel ran its program. The kernel does not run a
// program inside itself: it skips a packet that a soft interrupt drops while the program runs on that CPU, and counts it
// (Cost.Missed, of any device). A fuzzer that runs at the same time, and frees many packets, makes that frequent. There are also
// drops at which this kernel runs no tracing program at all, and counts nothing: the witness does not see them either.
// Both appear as drops of no known flow, in bursts and on busy machines more often, so a limit on their share would judge the machine.
func allRecorded(t *testing.T, r *Recorder, w *witness) {
	t.Helper()
	recorded, keyless, skipped := 0, 0, 0
	for i := range r.drops {
		if d := &r.drops[i]; d.Law == 0 {
			recorded++
			if d.Family == 0 {
				keyless++
			}
		}
	}
	for _, c := range r.Costs() {
		if c.Program == "weir_drop" {
			skipped = int(c.Missed)
		}
	}
	seen := w.seen(t)
	t.Logf("%d drops recorded, %d by the witness, %d skipped by the kernel", recorded, seen, skipped)
	if recorded+skipped < seen || recorded == 0 {
		t.Errorf("%d drops are recorded of the %d that a second program saw, and the kernel skipped only %d", recorded, seen, skipped)
	}
	if keyless*10 > recorded { // other protocols, such as ARP
		t.Errorf("%d of %d records of drops have no flow", keyless, recorded)
	}
}

// dropReasons returns the running kernel's names of reasons. Subsystems have ranges of their own that are not in
// the enumeration.
func dropReasons() map[uint64]string {
	names := map[uint64]string{}
	spec, err := attach.KernelTypes().Kernel()
	if err != nil {
		return names
	}
	var reasons *btf.Enum
	if err := spec.TypeByName("skb_drop_reason", &reasons); err != nil {
		return names
	}
	for _, v := range reasons.Values {
		names[v.Value] = strings.TrimPrefix(v.Name, "SKB_DROP_REASON_")
	}
	return names
}
