//go:build cgo

package fairq_test

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"weir/datapath/fairq"
	"weir/datapath/fairq/lawtrace"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// Two CPUs handle ACKs of one end at the same time, in edge mode. Each may change the end from which the other decides.
// The native core still agrees, because each decision reads the copy of the end that the trace recorded. If decisions
// read the end itself, the replay finds about three differences in 80,000 ACKs.
func TestDifferential_EdgeOnTwoCPUs(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 100e6, Limit: 125_000, NoIPv6: true})
	testnet.Shape(t, p.In, 100e6, 125_000, 3028)
	recorder, err := lawtrace.New()
	if err != nil {
		t.Fatal(err)
	}
	law := tracedLaw()
	law.Active = fairq.MaxActive
	f, err := fairq.Attach([]fairq.Port{{PortRef: p.Port, Law: law}, {PortRef: p.In, Law: law}}, fairq.Config{
		Trace: recorder, Lease: time.Hour, Edge: fairq.EdgeMode{Interval: fairq.EdgeInterval},
	})
	if err != nil {
		t.Fatal(err)
	}
	pair := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4))
	testnet.Send(t, pair.Client, pair.Server, 100_000)
	program := programAt(t, p.In, ebpf.AttachTCXEgress)
	done := make(chan error, 2)
	for cpu := range 2 {
		go func() { done <- acksOnCPU(program, cpu%runtime.NumCPU(), pair) }()
	}
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	trace, err := recorder.Stop()
	if err != nil {
		t.Fatal(err)
	}
	r := agreed(t, trace)
	for _, what := range []string{"ACKs left to the edge", "ACKs that advertised a window to the edge"} {
		if n := callsOf(r, what); n < 1000 {
			t.Errorf("%d %s, want 1000 at least", n, what)
		}
	}
}

// acksOnCPU sends ACKs of the server through a program, on one CPU. Every second one advertises, one of two windows in turn.
func acksOnCPU(program *ebpf.Program, cpu int, pair *testnet.Pair) error {
	runtime.LockOSThread() // and the thread ends with the goroutine: it stays on the CPU
	var only unix.CPUSet
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return err
	}
	from, to := pair.Server.LocalAddr().String(), pair.Server.RemoteAddr().String()
	ack := func(window uint16, reserved byte) []byte {
		a, b := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
		s := frames.Segment{IP: frames.IP{From: a.Addr(), To: b.Addr()}, FromPort: a.Port(), ToPort: b.Port(), Flags: frames.ACK, Window: window, Reserved: reserved}
		return s.Bytes()
	}
	list := [][]byte{ack(60, flagged), ack(500, 0), ack(90, flagged), ack(500, 0)}
	for i := range 40_000 {
		if _, err := program.Run(&ebpf.RunOptions{Data: list[(i+cpu)%len(list)]}); err != nil {
			return err
		}
	}
	return nil
}
