package fairq

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
	"weir/datapath/internal/frames"
	"weir/internal/testroot"
)

// Another seed gives another key of the hash, so that no sender can know which connections collide.
func TestDigestKey_IsTheSeeds(t *testing.T) {
	keys := map[[20]uint32]bool{}
	for _, seed := range [][16]byte{{}, {1}, {15: 1}, {1}} {
		spec, err := loadFairq()
		if err != nil {
			t.Fatal(err)
		}
		if err := attach.SetDigestKey(spec, seed); err != nil {
			t.Fatal(err)
		}
		var key [20]uint32
		if err := spec.Variables["flow_digest_key"].Get(&key); err != nil {
			t.Fatal(err)
		}
		keys[key] = true
	}
	if len(keys) != 3 {
		t.Errorf("three seeds give %d keys", len(keys))
	}
	if err := attach.SetDigestKey(&ebpf.CollectionSpec{}, [16]byte{}); err == nil {
		t.Error("a program without the constant has it set")
	}
}

// The keys of IPv6 connections that differ in one bit of one end differ in both words. Each connection has one
// entry, whichever end sends, and the entry has its ends.
func TestFairQFrames_KeysOfConnections(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	f := newFrameTable(t, frameConfig{})
	from, to := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:1::2")
	sent := map[netip.Addr]bool{}
	for bit := range 128 {
		b := from.As16()
		b[bit/8] ^= 1 << (bit % 8)
		if b[0] == 0xff { // a group
			continue
		}
		ip := frames.IP{From: netip.AddrFrom16(b), To: to}
		f.conn(ip).open(t, f.frameSwitch)
		sent[ip.From] = true
	}
	words := [2]map[uint64]bool{{}, {}}
	f.walk(t, func(k *fairqFlowKey, c *fairqConnection) {
		for i, w := range k.Word {
			words[i][w] = true
		}
		one, other := c.Ends.end(0).Addr(), c.Ends.end(1).Addr()
		if one == to {
			one, other = other, one
		}
		if !sent[one] || other != to {
			t.Errorf("an entry of %v and %v, which nobody sent", one, other)
		}
		delete(sent, one)
	})
	if len(sent) != 0 || len(words[0]) < 120 || len(words[1]) != len(words[0]) {
		t.Errorf("%d connections have no entry; %d and %d different words of keys", len(sent), len(words[0]), len(words[1]))
	}
}
