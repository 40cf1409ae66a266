package host_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/frames"
	"weir/datapath/internal/hosttest"
	"weir/internal/testroot"
)

// A bridge that filters VLANs tags what leaves by the uplink, and takes the tag away at the VM's port. A connection is one there, too:
// its window scale is known, and its ACKs are limited.
func TestClamp_TagsOfTheUplinkOnly(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	h := newBench(t)
	grants := hosttest.HostHostGrants{MssMax: 1460, Windows: 1, Window: benchGrants(20000)}
	vm := hosttest.HostHostVm{}
	if err := h.Vms.Lookup(uint32(0), &vm); err != nil {
		t.Fatal(err)
	}
	vm.Address[1].Address, vm.Address[1].Mask, vm.Addresses = benchWords(vmIPv6), vm.Address[0].Mask, 2
	for _, err := range []error{h.Vms.Put(uint32(0), vm), h.VmGrants.Put(uint32(0), grants)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	one, two := []frames.Tag{{TPID: frames.TypeVLAN, TCI: 5}}, []frames.Tag{{TPID: frames.TypeQinQ, TCI: 5}, {TPID: frames.TypeVLAN, TCI: 6}}
	port := uint16(2000)
	for _, tags := range [][]frames.Tag{one, two} {
		for _, ipv6 := range []bool{false, true} {
			for _, peerOpens := range []bool{false, true} {
				port++
				k := talk{vmPort: port, ipv6: ipv6, peerOpens: peerOpens}
				for i, flags := range []byte{frames.SYN, frames.SYN | frames.ACK, frames.ACK} {
					var ctx context
					fromPeer := i == 2 || (i == 1) != peerOpens
					p, options := h.WeirHostVm, scale7
					k.tags, ctx[atIngress] = nil, benchUplink
					if !fromPeer {
						p, k.tags, ctx[atIngress] = h.WeirHostUp, tags, benchPort
					}
					if i == 2 {
						options = nil
					}
					in := k.segment(fromPeer, flags, 60000, options, 0).Bytes()
					if verdict, err := p.Run(&ebpf.RunOptions{Data: in, Context: ctx}); err != nil || int32(verdict) != -1 {
						t.Fatalf("packet %d: returned %d, %v", i, int32(verdict), err)
					}
				}
				var unknown uint64
				want := uint64(1)
				if !peerOpens {
					want = 2 // the SYN-ACK is an ACK, too
				}
				limited := h.counted(t, func(c *hosttest.HostHostCounts) uint64 { unknown += c.Unknown; return c.Limited })
				if limited != want || unknown != 0 {
					t.Errorf("%d tags at the uplink, IPv6 %v, the peer opens %v: %d ACKs limited, %d of an unknown connection; want %d, 0", len(tags), ipv6, peerOpens, limited, unknown, want)
				}
			}
		}
	}
}
