package metadata_test

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/internal/frames"
	"weir/datapath/metadata"
	"weir/datapath/testnet"
)

// The address in a VLAN of the guest is another host's: frames with a tag are not taken.
func TestTagged_Passes(t *testing.T) {
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	m := open(t, n, 0)
	guest := attach.PortRef{Name: "eth0", Enter: n.Guests[0].Enter}
	n.Guests[0].Must(t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			guest.Ifindex = l.Attrs().Index
		}
		return err
	})
	syn := frames.Segment{
		Link: frames.Link{Dst: [6]byte{0x02, 0, 0, 0, 0, 9}, Src: [6]byte(n.MACs[0])},
		IP:   frames.IP{From: netip.MustParseAddr("10.77.0.1"), To: ipv4}, FromPort: 4000, ToPort: 80, Flags: frames.SYN, Window: 60000,
	}
	raw := testnet.NewRaw(t, guest)
	plain := syn.Bytes()
	syn.Tags = []frames.Tag{{TPID: 0x8100, TCI: 7}}
	raw.Send(t, syn.Bytes())
	raw.Send(t, plain)
	var c metadata.Counts
	testnet.Until(t, "the frame without a tag is taken", func() (taken bool) {
		var err error
		if c, err = m.Counts(); err != nil {
			t.Fatal(err)
		}
		return c.Taken > 0
	})
	if c != (metadata.Counts{Taken: 1}) {
		t.Errorf("counted %+v, want one frame that is taken", c)
	}
}
