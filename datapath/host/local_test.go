package host_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/frames"
	"weir/datapath/internal/hosttest"
	"weir/internal/testroot"
)

// Packets to another VM of the same host pass no uplink. They are in no class of it, and Sent leaves them out: they make a VM neither
// active nor its marked packets a smaller part of what it sends.
func TestGuest_LocalIsNotOfTheUplink(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	h := newBench(t)
	in := frames.Packet(frames.Link{Dst: otherMAC, Src: vmMAC}, frames.IP{From: vmIPv4, To: otherIPv4}, frames.UDP, make([]byte, 40))
	spoofed := frames.Packet(frames.Link{Dst: otherMAC, Src: otherMAC}, frames.IP{From: vmIPv4, To: otherIPv4}, frames.UDP, make([]byte, 40))
	var ctx context
	ctx[atIngress] = benchPort
	for _, one := range []struct {
		p       *ebpf.Program
		in      []byte
		relaxed uint64
	}{{h.WeirHostVm, in, 0}, {h.WeirHostVm, spoofed, 0}, {h.WeirHostUp, in, 1}} {
		if _, err := one.p.Run(&ebpf.RunOptions{Data: one.in, Context: ctx}); err != nil {
			t.Fatal(err)
		}
		var sent uint64
		relaxed := h.counted(t, func(c *hosttest.HostHostCounts) uint64 { sent += c.Sent; return c.Relaxed + c.InClass })
		if sent != 1 || relaxed != one.relaxed {
			t.Errorf("%v: %d packets sent, %d of them by the uplink; want 1, %d", one.p, sent, relaxed, one.relaxed)
		}
	}
}
