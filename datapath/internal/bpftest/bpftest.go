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

// PerRun returns the least of many short means, in ns. Other work on the machine adds to a mean; some means are
// short enough not to be disturbed.
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

// PerSuperPacket is PerRun for a GSO packet of so many segments. The time includes a thousandth of a system call.
func PerSuperPacket(b *testing.B, p *ebpf.Program, in []byte, segments uint32) float64 {
	b.Helper()
	const gsoSegs, gsoSize, repeat = 41, 44, 1000 // words of __sk_buff
	ctx := [45]uint32{gsoSegs: segments, gsoSize: 1448}
	best := 1e9
	for range 400 {
		begin := time.Now()
		if _, err := p.Run(&ebpf.RunOptions{Data: in, Context: &ctx, Repeat: repeat}); err != nil {
			b.Fatal(err)
		}
		best = min(best, float64(time.Since(begin).Nanoseconds())/repeat)
	}
	return best
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
