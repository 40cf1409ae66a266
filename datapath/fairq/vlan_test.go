package fairq

import (
	"testing"

	"weir/datapath/internal/frames"
)

// A bridge that filters VLANs tags what leaves by a trunk, and nothing at an access port. With vlans_ignored both directions are one
// connection; without it each has a connection of its own, and no ACK is limited.
func TestFairQFrames_TagsOfOneDirection(t *testing.T) {
	one, two := []frames.Tag{{TPID: frames.TypeVLAN, TCI: 5}}, []frames.Tag{{TPID: frames.TypeQinQ, TCI: 5}, {TPID: frames.TypeVLAN, TCI: 6}}
	for _, ignored := range []bool{true, false} {
		f := newFrameTable(t, frameConfig{vlansIgnored: ignored})
		for _, tags := range [][]frames.Tag{one, two} {
			for name, ip := range map[string]frames.IP{"IPv4": {}, "IPv6": {From: rightIPv6, To: leftIPv6}} {
				c := f.conn(ip)
				syn, synAck := c.back(), c.segment()
				syn.Flags, syn.Seq, syn.Ack, syn.Options, syn.Tags = frames.SYN, 3000, 0, c.syn, tags
				synAck.Flags, synAck.Seq, synAck.Options = frames.SYN|frames.ACK, 7000, c.synAck
				data := c.back()
				data.Payload, data.Tags = []byte("data"), tags
				f.mustRun(t, 1, syn.Bytes())
				f.mustRun(t, 0, synAck.Bytes())
				f.mustRun(t, 1, data.Bytes())
				f.setGrant(t, 0, 0)
				f.setGrant(t, 1, rowGrant)
				if ignored {
					f.rewritten(t, name, c.segment(), rowField, fairqPortCounts{})
					continue
				}
				f.counted(t, 0)
				f.mustRun(t, 0, c.segment().Bytes())
				if got := f.counted(t, 0); got.Rewritten != 0 {
					t.Errorf("%s, tags count: %+v, want no rewritten ACK", name, got)
				}
			}
		}
	}
}

// With vlans_ignored, connections with equal addresses in two VLANs are one, as the documentation warns; by default they are two.
func TestFairQFrames_EqualAddressesInTwoVLANs(t *testing.T) {
	for _, ignored := range []bool{true, false} {
		f := newFrameTable(t, frameConfig{vlansIgnored: ignored})
		c := f.conn(frames.IP{})
		want := 2
		if ignored {
			want = 1
		}
		for _, vlan := range []uint16{7, 8} {
			c.link.Tags = []frames.Tag{{TPID: frames.TypeVLAN, TCI: vlan}}
			c.open(t, f.frameSwitch)
		}
		if got := len(f.contents(t)); got != want {
			t.Errorf("vlans ignored %v: %d connections, want %d", ignored, got, want)
		}
	}
}
