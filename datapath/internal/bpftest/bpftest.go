// Package bpftest is what the tests of kernel programs share.
package bpftest

import (
	"errors"
	"reflect"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// verifiedMax is how many instructions the verifier may walk for one program: far below the million that
// it allows, so that a load takes milliseconds and another kernel's verifier finds room.
const verifiedMax = 50_000

// CheckVerified fails the test if the verifier walked too many instructions for a loaded program.
func CheckVerified(t *testing.T, name string, p *ebpf.Program) {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := info.VerifiedInstructions()
	if !ok || n > verifiedMax {
		t.Errorf("%s: %d instructions verified, want %d at most", name, n, verifiedMax)
	}
	t.Logf("%s: %d", name, n)
}

// PerRun is the least of many short means, in ns: what other work on the machine adds is not the program's,
// and some of them are too short to be disturbed.
func PerRun(b *testing.B, p *ebpf.Program, in []byte) float64 {
	b.Helper()
	best := 1e9
	for range 400 {
		_, d, err := p.Benchmark(in, 1000, nil)
		if err != nil {
			b.Fatal(err)
		}
		best = min(best, float64(d.Nanoseconds()))
	}
	return best
}

// Minus gives what the counters of now, a struct of them, count more than those of last.
func Minus[T any](now, last T) (d T) {
	from, to, out := reflect.ValueOf(last), reflect.ValueOf(now), reflect.ValueOf(&d).Elem()
	for i := range out.NumField() {
		if f := out.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(to.Field(i).Uint() - from.Field(i).Uint())
		}
	}
	return d
}

// Refused says that BPF_PROG_TEST_RUN does not take such a frame.
func Refused(err error) bool { return errors.Is(err, unix.EINVAL) }

// ChecksumComplete makes the kernel give the packet a CHECKSUM_COMPLETE sum and fail with
// EBADMSG when it is not right after the program (BPF_F_TEST_SKB_CHECKSUM_COMPLETE).
const ChecksumComplete = 4

// What tcx programs return.
const (
	TCXNext = 0xffffffff
	TCXDrop = 2
)
