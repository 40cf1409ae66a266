package traffic_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/experiment"
	"weir/experiment/result"
	"weir/lab/traffic"
	"weir/law"
)

// TestUnansweredSYN: a SYN without answer costs one RTO, which counts as a timeout and in the completion time.
func TestUnansweredSYN(t *testing.T) { everyTCPAtOnce(t, testUnansweredSYN) }

func testUnansweredSYN(t *testing.T, n *pairNet) {
	miss(t, n, 1)
	out := run(t, n, config(longEnough, n.item(experiment.Traffic{Pattern: "burst", Size: 1000})))
	checkDone(t, &out.Flows[0], 1000)
	if f := out.Flows[0]; f.Timeouts != 1 || f.FCT() < time.Second || f.Wrote != 0 {
		t.Errorf("%d timeouts and FCT %v with one SYN unanswered; written after %v", f.Timeouts, f.FCT(), f.Wrote)
	}
}

// TestOutOfOrder: of five segments the first is lost, so four arrive before it. netstack does not count them.
func TestOutOfOrder(t *testing.T) { everyTCPAtOnce(t, testOutOfOrder) }

func testOutOfOrder(t *testing.T, n *pairNet) {
	const size, handshake = 7000, 2
	miss(t, n, handshake+1)
	out := run(t, n, config(longEnough, n.item(experiment.Traffic{Pattern: "burst", Size: size})))
	checkDone(t, &out.Flows[0], size)
	got := out.Flows[0].OutOfOrder
	if known := len(n.guests) == 0; got.Known != known || known && (got.Segments < 4 || got.Segments > 6) { // a probe of a busy machine is one more
		t.Errorf("%+v", got)
	}
}

// TestNeverOpened: a flow that is given up before its SYN is answered never had a connection; the next one has.
func TestNeverOpened(t *testing.T) { everyTCPAtOnce(t, testNeverOpened) }

func testNeverOpened(t *testing.T, n *pairNet) {
	miss(t, n, 1)
	out := run(t, n, config(longEnough, n.item(experiment.Traffic{
		Pattern: "burst", Size: 1000, Epochs: 2, Every: law.Duration(600 * time.Millisecond), GiveUp: law.Duration(500 * time.Millisecond),
	})))
	if f := out.Flows[0]; f.Done || f.Opening != result.NeverOpened {
		t.Errorf("without an answer to its SYN: done %v, opening %d, want %d", f.Done, f.Opening, result.NeverOpened)
	}
	if f := out.Flows[1]; f.Opening != result.Opened {
		t.Errorf("with an answer: opening %d, want %d", f.Opening, result.Opened)
	}
}

func TestNothingConnects(t *testing.T) { everyTCPAtOnce(t, testNothingConnects) }

func testNothingConnects(t *testing.T, n *pairNet) {
	deafen(t, n)
	_, err := traffic.Run(context.Background(), n, config(200*time.Millisecond,
		n.item(experiment.Traffic{Pattern: "bulk"})), 1, traffic.Options{})
	if err == nil || !strings.Contains(err.Error(), "none of 1 connections opened") {
		t.Errorf("error %v", err)
	}
	_, err = traffic.Run(context.Background(), elsewhere{n}, config(200*time.Millisecond,
		n.item(experiment.Traffic{Pattern: "burst", Size: 1})), 1, traffic.Options{})
	if err == nil || !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("error %v, want that the address is not the node's", err)
	}
}

// elsewhere returns addresses that no node has.
type elsewhere struct{ traffic.Net }

func (elsewhere) Addr(string, int) netip.Addr { return netip.AddrFrom4([4]byte{10, 99, 99, 99}) }

// deafen makes node b drop all received TCP packets.
func deafen(t *testing.T, n *pairNet) {
	t.Helper()
	filterAt(t, n, asm.Instructions{asm.Mov.Imm(asm.R0, tcxDrop), asm.Return()})
}

// miss makes node b drop one TCP segment that arrives: 1 is the first, a SYN.
func miss(t *testing.T, n *pairNet, number int32) {
	t.Helper()
	arrived, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arrived.Close() })
	const etherType, protocol = 12, 23
	filterAt(t, n, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadAbs(etherType, asm.Half),
		asm.JNE.Imm(asm.R0, unix.ETH_P_IP, "pass"),
		asm.LoadAbs(protocol, asm.Byte),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_TCP, "pass"),
		asm.LoadMapValue(asm.R1, arrived.FD(), 0),
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.Add.Imm(asm.R2, 1),
		asm.StoreMem(asm.R1, 0, asm.R2, asm.Word), // the first segments arrive one after the other
		asm.JNE.Imm(asm.R2, number, "pass"),
		asm.Mov.Imm(asm.R0, tcxDrop),
		asm.Return(),
		asm.Mov.Imm(asm.R0, tcxNext).WithSymbol("pass"),
		asm.Return(),
	})
}

// Return values of a program (enum tcx_action_base).
const (
	tcxNext = -1
	tcxDrop = 2
)

// filterAt attaches a program before node b's input, for the duration of the test.
func filterAt(t *testing.T, n *pairNet, program asm.Instructions) {
	t.Helper()
	var l link.Link
	err := n.Enter("b", func() error {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: program})
		if err != nil {
			return err
		}
		defer p.Close()
		device, err := netlink.LinkByName("weirtest-b")
		if err != nil {
			return err
		}
		l, err = link.AttachTCX(link.TCXOptions{Interface: device.Attrs().Index, Program: p, Attach: ebpf.AttachTCXIngress})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}
