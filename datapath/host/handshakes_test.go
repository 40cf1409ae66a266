package host_test

import (
	"testing"
	"time"

	"weir/datapath/host"
	"weir/datapath/internal/frames"
	"weir/internal/testroot"
)

// VM 1 opens more connections at once than the table of handshakes holds. A handshake of its neighbour, and one of its own that had begun
// before, are read nevertheless.
func TestHandshakes_FloodOfOneVM(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	const pending = 1024
	h := newRig(t, host.Config{Connections: 4 * pending})
	sends := func(at placed, from placed, s *frames.Segment) {
		t.Helper()
		if verdict, _, _ := run(t, at, s.Bytes(), from.at, 0); int32(verdict) != -1 {
			t.Fatalf("a handshake was dropped: %d", int32(verdict))
		}
	}
	syn := func(vm int, port, to uint16) *frames.Segment {
		s := &frames.Segment{
			Link: frames.Link{Src: vmMAC, Dst: peerMAC}, IP: frames.IP{From: vmIPv4, To: peerIPv4}, FromPort: port, ToPort: to,
			Seq: 1000, Flags: frames.SYN, Window: 60000, Options: scale7,
		}
		if vm == 2 {
			s.Src, s.From = otherMAC, otherIPv4
		}
		return s
	}
	answer := func(s *frames.Segment) *frames.Segment {
		back := *s
		back.Src, back.Dst, back.From, back.To, back.FromPort, back.ToPort = s.Dst, s.Src, s.To, s.From, s.ToPort, s.FromPort
		back.Seq, back.Ack, back.Flags = 5000, s.Seq+1, frames.SYN|frames.ACK
		return &back
	}
	vm1, vm2 := placed{at: h.vm1}, placed{at: h.vm2}
	own, neighbours := syn(1, 40000, 80), syn(2, 40000, 80)
	sends(h.up, vm1, own)
	sends(h.up, vm2, neighbours)
	const flood = 2 * pending
	begin := time.Now()
	for i := range uint16(flood) {
		sends(h.up, vm1, syn(1, 1024+i, 443))
	}
	took := time.Since(begin)
	sends(h.toVM, h.up, answer(own))
	sends(h.toVM2, h.up, answer(neighbours))
	one, two := statsOf(t, h.Host, 1), statsOf(t, h.Host, 2)
	if one.Learnt != 1 || two.Learnt != 1 || two.Unlearnt != 0 {
		t.Errorf("read: %d handshakes of VM 1, %d of VM 2, which has %d beyond its share; want 1, 1, 0", one.Learnt, two.Learnt, two.Unlearnt)
	}
	// It has a quarter of the table at once, and as much each second.
	const share = pending / 4
	most := share + 2 + uint64(share*took.Seconds())
	if passed := flood - one.Unlearnt; passed < share-2 || passed > most {
		t.Errorf("of %d SYNs in %v %d are within the share of VM 1; want %d at most", flood, took, passed, most)
	}
}

// A bridge floods SYNs for others to all VMs. They take nothing from a VM's share of handshakes.
func TestHandshakes_FloodedFrames(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	const pending = 1024
	h := newRig(t, host.Config{Connections: 4 * pending})
	vm1, vm2 := placed{at: h.vm1}, placed{at: h.vm2}
	s := &frames.Segment{
		Link: frames.Link{Src: vmMAC, Dst: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}, IP: frames.IP{From: vmIPv4, To: otherIPv4}, ToPort: 80,
		Seq: 1000, Flags: frames.SYN, Window: 60000, Options: scale7,
	}
	for i := range uint16(2 * pending) {
		s.FromPort = 1024 + i
		run(t, h.toVM2, s.Bytes(), vm1.at, 0)
	}
	own := &frames.Segment{
		Link: frames.Link{Src: otherMAC, Dst: peerMAC}, IP: frames.IP{From: otherIPv4, To: peerIPv4}, FromPort: 40000, ToPort: 80,
		Seq: 1000, Flags: frames.SYN, Window: 60000, Options: scale7,
	}
	run(t, h.up, own.Bytes(), vm2.at, 0)
	back := *own
	back.Src, back.Dst, back.From, back.To, back.FromPort, back.ToPort = own.Dst, own.Src, own.To, own.From, own.ToPort, own.FromPort
	back.Seq, back.Ack, back.Flags = 5000, own.Seq+1, frames.SYN|frames.ACK
	run(t, h.toVM2, back.Bytes(), h.up.at, 0)
	if two := statsOf(t, h.Host, 2); two.Learnt != 1 || two.Unlearnt != 0 {
		t.Errorf("%d handshakes of VM 2 are read, %d are beyond its share; want 1, 0", two.Learnt, two.Unlearnt)
	}
}
