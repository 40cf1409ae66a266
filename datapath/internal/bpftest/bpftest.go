// Package bpftest has what the tests of kernel programs share.
package bpftest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// verifiedMax is the most instructions that the verifier may walk for one program. It is far below the kernel's
// limit of a million, so that a load takes milliseconds and the verifiers of other kernels have room.
const verifiedMax = 48_000

// CheckVerified fails the test if the verifier walked too many instructions for a loaded program.
func CheckVerified(t *testing.T, name string, p *ebpf.Program) {
	t.Helper()
	CheckVerifiedBelow(t, name, p, verifiedMax)
}

// CheckVerifiedBelow is CheckVerified with a limit of the program's own.
func CheckVerifiedBelow(t *testing.T, name string, p *ebpf.Program, most uint32) {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := info.VerifiedInstructions()
	if !ok || n > most {
		t.Errorf("%s: %d instructions verified, want %d at most", name, n, most)
	}
	t.Logf("%s: %d", name, n)
}

// A Bench times programs with BPF_PROG_TEST_RUN. Empty does nothing, and Lookup does one hash lookup with a 16-byte key.
type Bench struct{ Empty, Lookup *ebpf.Program }

// runs is how often a program runs in one system call, whose own time is so divided.
const runs = 1000

// Times returns how long one run of each program takes, in ns: the least of many means of 1000 runs. Other work on the machine
// adds to a mean. The programs take turns for as long as the benchmark lasts, so that none of them has only slow moments.
func Times(b *testing.B, o ebpf.RunOptions, programs ...*ebpf.Program) []float64 {
	b.Helper()
	o.Repeat = runs
	least := make([]float64, len(programs))
	for b.Loop() {
		for i, p := range programs {
			begin := time.Now()
			if _, err := p.Run(&o); err != nil {
				b.Fatal(err)
			}
			if mean := float64(time.Since(begin).Nanoseconds()) / runs; least[i] == 0 || mean < least[i] {
				least[i] = mean
			}
		}
	}
	return least
}

// Report reports the time of a program in addition to that of above, in ns for each of so many packets that one run handles, and in
// lookups.
func (u *Bench) Report(b *testing.B, o ebpf.RunOptions, program, above *ebpf.Program, packets float64) {
	b.Helper()
	t := Times(b, o, u.Empty, u.Lookup, program, above)
	Cost(b, (t[2]-t[3])/packets, t[1]-t[0])
}

// Cost reports a cost in ns and in lookups.
func Cost(b *testing.B, cost, lookup float64) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(cost, "ns/packet")
	b.ReportMetric(cost/lookup, "lookups")
}

// GSO returns the context of a packet of so many segments.
func GSO(segments uint32) any {
	const gsoSegs, gsoSize = 41, 44 // words of __sk_buff
	return &[45]uint32{gsoSegs: segments, gsoSize: 1448}
}

// Once runs a program once.
func Once(tb testing.TB, p *ebpf.Program, in []byte) {
	tb.Helper()
	if _, err := p.Run(&ebpf.RunOptions{Data: in}); err != nil {
		tb.Fatal(err)
	}
}

// Minus returns the increase of the counters from last to now, each a struct of them.
func Minus[T any](now, last T) (d T) {
	from, to, out := reflect.ValueOf(last), reflect.ValueOf(now), reflect.ValueOf(&d).Elem()
	for i := range out.NumField() {
		if f := out.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(to.Field(i).Uint() - from.Field(i).Uint())
		}
	}
	return d
}

// Refused reports whether BPF_PROG_TEST_RUN refused such a frame.
func Refused(err error) bool { return errors.Is(err, unix.EINVAL) }

// ChecksumComplete makes the kernel compute a CHECKSUM_COMPLETE sum of the packet. The run fails with EBADMSG
// if the sum is wrong after the program (BPF_F_TEST_SKB_CHECKSUM_COMPLETE).
const ChecksumComplete = 4

// Return values of tcx programs.
const (
	TCXNext = 0xffffffff
	TCXDrop = 2
)
