package fairq_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// Real TCP through a switch with VLANs: the sender at an access port of VLAN 10, the receiver behind a trunk. With IgnoreVLANs both
// directions are limited and counted as by other ports. Without it neither is.
func TestFairQ_AccessPortAndTrunk(t *testing.T) {
	for name, ignore := range map[string]bool{"ignore": true, "separate": false} {
		t.Run(name, func(t *testing.T) {
			p := newRwndPath(t, testnet.PathOptions{NoIPv6: true})
			p.accessAndTrunk(t)
			f := p.govern(t, limitedTo(23457), limitedTo(23457), fairq.Config{IgnoreVLANs: ignore})
			flow := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(5)), testnet.WindowScale(9))
			testnet.Send(t, flow.Client, flow.Server, 100_000)
			testnet.Send(t, flow.Server, flow.Client, 100_000)
			checkLimited(t, flow, ignore)
			stats, err := f.Stats()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range stats {
				if ignore != (s.Rewritten > 0 && s.Flows == 1) {
					t.Errorf("%s: %d rewritten, %d flows", s.Port, s.Rewritten, s.Flows)
				}
			}
		})
	}
}

// accessAndTrunk puts two bridges of Open vSwitch in the place of the path's: the hosts at access ports of VLAN 10, a trunk in between. The
// path's port is then the trunk of the sender's bridge, where packets have the tag.
func (p *rwndPath) accessAndTrunk(t *testing.T) {
	t.Helper()
	p.Switch.Must(t, func() error {
		for _, name := range []string{"in0", "out0"} {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetNoMaster(l); err != nil {
				return err
			}
		}
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "trunk0"}, PeerName: "trunk1"}); err != nil {
			return err
		}
		for _, name := range []string{"trunk1", "trunk0"} {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(l); err != nil {
				return err
			}
			p.Port = attach.PortRef{Name: "trunk", Ifindex: l.Attrs().Index, Enter: p.Switch.Enter}
		}
		return nil
	})
	testnet.SetOffloads(t, p.Port, false)
	o := testnet.NewOpenVSwitch(t, p.Switch)
	for bridge, ports := range map[string][2]string{"near": {"in0", "trunk0"}, "far": {"out0", "trunk1"}} {
		o.Vsctl(t, "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev",
			"--", "add-port", bridge, ports[0], "tag=10", "--", "add-port", bridge, ports[1], "trunks=10")
	}
	for _, port := range []attach.PortRef{p.In, p.Port} { // Open vSwitch deletes a port's queue discipline
		testnet.Shape(t, port, 200e6, 10_000_000, 2*1514)
	}
}
