package host_test

import (
	"bytes"
	"fmt"
	"testing"

	"weir/datapath/host"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/datapath/native"
	"weir/internal/testroot"
	"weir/law"
)

// Every packet of a VM leaves with the ECN field of core/vmecn.h, and arrives at a VM with it; nothing else changes, and the IPv4
// checksum fits. Connections with and without ECN, IPv4 and IPv6, tagged, with all four fields.
func TestVMECN_Table(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	for mode, m := range map[string]uint8{"": native.VMECNNone, law.ClearAll: native.VMECNAll, law.ClearNotNegotiated: native.VMECNNotNegotiated} {
		r := newRig(t, host.Config{ECN: mode})
		port := uint16(7000)
		for _, shake := range []struct {
			what     string
			syn, ack byte
			agreed   bool
		}{
			{"without ECN", 0, 0, false},
			{"asked and refused", frames.ECE | frames.CWR, 0, false},
			{"agreed", frames.ECE | frames.CWR, frames.ECE, true},
			{"answered without a question", 0, frames.ECE, false},
			{"half a question", frames.ECE, frames.ECE, false},
		} {
			for _, ipv6 := range []bool{false, true} {
				for _, peerOpens := range []bool{false, true} {
					port++
					k := &talk{ipv6: ipv6, vmPort: port, peerOpens: peerOpens}
					if peerOpens {
						k.tags = []frames.Tag{{TPID: frames.TypeVLAN, TCI: 7}}
					}
					name := fmt.Sprintf("mode %q, %s, IPv6 %v, peer opens %v", mode, shake.what, ipv6, peerOpens)
					for i, flags := range []byte{frames.SYN | shake.syn, frames.SYN | frames.ACK | shake.ack} {
						r.ecn(t, name+": handshake", k, m, false, (i == 1) != peerOpens, flags, 0, 1)
					}
					for field := range byte(4) {
						for _, fromPeer := range []bool{false, true} {
							for _, data := range []int{0, 100} {
								r.ecn(t, name, k, m, shake.agreed, fromPeer, frames.ACK, data, field)
							}
						}
					}
				}
			}
		}
		udp := frames.Packet(frames.Link{Dst: peerMAC, Src: vmMAC}, frames.IP{From: vmIPv4, To: peerIPv4, TOS: 0xb8}, frames.UDP, make([]byte, 40))
		want := frames.Packet(frames.Link{Dst: peerMAC, Src: vmMAC}, frames.IP{From: vmIPv4, To: peerIPv4, TOS: 0xb8 | native.VMECNOut(m, false, true, 0)}, frames.UDP, make([]byte, 40))
		if _, out, _ := run(t, r.up, udp, r.vm1, 0); !bytes.Equal(out, want) {
			t.Errorf("mode %q, UDP:\n got  %x\n want %x", mode, out, want)
		}
		for _, row := range bareRows() { // of no VM: no switch may mark them
			if verdict, out, _ := run(t, r.up, row.in, r.vm1, 0); verdict == bpftest.TCXNext && !bytes.Equal(out, row.in) {
				t.Errorf("mode %q, %s: it was changed", mode, row.name)
			}
		}
		other := arp(frames.Link{Dst: peerMAC, Src: vmMAC}, vmMAC, vmIPv4)
		if _, out, _ := run(t, r.up, other, r.vm1, 0); !bytes.Equal(out, other) {
			t.Errorf("mode %q: ARP was changed", mode)
		}
	}
}

// ecn sends a segment of a talk, and compares what comes out with the core.
func (r *rig) ecn(t *testing.T, name string, k *talk, mode uint8, agreed, fromPeer bool, flags byte, data int, field byte) {
	t.Helper()
	in, want := k.segment(fromPeer, flags, 60000, nil, data), k.segment(fromPeer, flags, 60000, nil, data)
	in.TOS, want.TOS = 0xb8|field, 0xb8|native.VMECNOut(mode, agreed, data > 0, field)
	p, from := r.up, r.vm1
	if fromPeer {
		p, from = r.toVM, r.uplink
		want.TOS = 0xb8 | native.VMECNIn(mode, agreed, field)
	}
	verdict, out, _ := run(t, p, in.Bytes(), from, 0)
	if verdict != bpftest.TCXNext || !bytes.Equal(out, want.Bytes()) {
		t.Errorf("%s, from the peer %v, flags %#x, %d B, field %d: returned %d\n got  %x\n want %x", name, fromPeer, flags, data, field, int32(verdict), out, want.Bytes())
	}
	c := r.counted(t)
	if changed := in.TOS != want.TOS; changed != (c.ECNSet+c.ECNCleared == 1) {
		t.Errorf("%s: changed %v, counted %+v", name, changed, c)
	}
}

// The verifier walks few instructions in every mode.
func TestVMECN_Loads(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	for _, mode := range []string{"", law.ClearAll, law.ClearNotNegotiated} {
		r := newRig(t, host.Config{ECN: mode})
		bpftest.CheckVerified(t, mode+" VM's port", r.toVM.Program)
		bpftest.CheckVerified(t, mode+" uplink", r.up.Program)
	}
	if _, err := host.Open(host.Config{ECN: "some"}); err == nil {
		t.Error("an unknown mode is accepted")
	}
}
