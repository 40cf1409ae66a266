package host_test

import (
	"maps"
	"net/netip"
	"testing"

	"weir/datapath/host"
	"weir/datapath/internal/frames"
	"weir/internal/testroot"
	"weir/law"
)

// cameKey is a pair of a source and the VM that received.
type cameKey struct {
	vm     law.VM
	source netip.Addr
}

// came returns the marks of the next reading.
func (r *rig) came(t testing.TB) map[cameKey]uint64 {
	t.Helper()
	list, err := r.Came(nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[cameKey]uint64{}
	for _, c := range list {
		out[cameKey{c.VM, c.Source}] += c.Packets
	}
	return out
}

// Marked packets that come by the uplink are counted by source and VM, whatever they carry, and still arrive without the mark. Packets
// of a VM of the same host, and packets without CE, are not counted. Each is in one reading.
func TestCame_BySourceAndVM(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	r := newRig(t, host.Config{ECN: law.ClearAll, Marks: true})
	r.came(t)
	third := netip.MustParseAddr("10.0.0.77")
	udp := func(from, to netip.Addr, field byte) []byte {
		return frames.Packet(frames.Link{Dst: vmMAC, Src: peerMAC}, frames.IP{From: from, To: to, TOS: 0xb8 | field}, frames.UDP, make([]byte, 40))
	}
	tcp := func(ipv6 bool, tags []frames.Tag, field byte) []byte {
		s := (&talk{ipv6: ipv6, vmPort: 7000, tags: tags}).segment(true, frames.ACK, 60000, nil, 100)
		s.TOS = field
		return s.Bytes()
	}
	vlan := []frames.Tag{{TPID: frames.TypeVLAN, TCI: 7}}
	for field := range byte(4) {
		for range 3 {
			run(t, r.toVM, tcp(false, nil, field), r.uplink, 0)
		}
		run(t, r.toVM, tcp(true, nil, field), r.uplink, 0)
		run(t, r.toVM, tcp(true, vlan, field), r.uplink, 0)
		run(t, r.toVM, udp(third, vmIPv4, field), r.uplink, 0)
		run(t, r.toVM2, udp(third, otherIPv4, field), r.uplink, 0)
		neighbour := frames.Packet(frames.Link{Dst: otherMAC, Src: vmMAC}, frames.IP{From: vmIPv4, To: otherIPv4, TOS: field}, frames.UDP, make([]byte, 40))
		run(t, r.toVM2, neighbour, r.vm1, 0)
	}
	if _, out, _ := run(t, r.toVM, udp(third, vmIPv4, 3), r.uplink, 0); out[15]&3 != 0 {
		t.Errorf("the VM sees the field %d", out[15]&3)
	}
	want := map[cameKey]uint64{{1, peerIPv4}: 3, {1, peerIPv6}: 2, {1, third}: 2, {2, third}: 1}
	if got := r.came(t); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if c := statsOf(t, r.Host, 1); c.Marked != 7 {
		t.Errorf("%d packets of VM 1 are counted, want 7: %+v", c.Marked, c)
	}
	if got := r.came(t); len(got) != 0 {
		t.Errorf("counted twice: %v", got)
	}
	run(t, r.toVM, tcp(false, nil, 3), r.uplink, 0)
	want = map[cameKey]uint64{{1, peerIPv4}: 1}
	if got := r.came(t); !maps.Equal(got, want) {
		t.Errorf("then %v, want %v", got, want)
	}
	if err := r.RemoveVM(2); err != nil {
		t.Fatal(err)
	}
	run(t, r.toVM2, udp(third, otherIPv4, 3), r.uplink, 0)
	if got := r.came(t); len(got) != 0 {
		t.Errorf("marks of a VM that was removed: %v", got)
	}
}

// The table evicts pairs that were not marked recently: many sources take no place from the latest one, and a reading stays short.
func TestCame_ManySources(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	r := newRig(t, host.Config{Marks: true})
	r.came(t)
	const sources = 12_000 // of 8192 places
	send := func(i int) netip.Addr {
		from := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		run(t, r.toVM, frames.Packet(frames.Link{Dst: vmMAC, Src: peerMAC}, frames.IP{From: from, To: vmIPv4, TOS: 3}, frames.UDP, make([]byte, 10)), r.uplink, 0)
		return from
	}
	var last netip.Addr
	for i := range sources {
		last = send(i)
	}
	got := r.came(t)
	if len(got) > 8192 || len(got) < 4096 || got[cameKey{1, last}] != 1 {
		t.Errorf("%d pairs, the last source has %d", len(got), got[cameKey{1, last}])
	}
	send(sources - 1)
	if again := r.came(t); len(again) != 1 || again[cameKey{1, last}] != 1 {
		t.Errorf("then %v", again)
	}
}

// Without a law that needs them nothing is counted.
func TestCame_Off(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	r := newRig(t, host.Config{ECN: law.ClearAll})
	r.came(t)
	run(t, r.toVM, frames.Packet(frames.Link{Dst: vmMAC, Src: peerMAC}, frames.IP{From: peerIPv4, To: vmIPv4, TOS: 3}, frames.UDP, make([]byte, 40)), r.uplink, 0)
	if got := r.came(t); len(got) != 0 || statsOf(t, r.Host, 1).Marked != 0 {
		t.Errorf("%v, %+v", got, statsOf(t, r.Host, 1))
	}
}
