package metadata_test

import (
	"errors"
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/metadata"
	"weir/datapath/testnet"
)

// The address in a VLAN of the guest is another host's: frames with a tag are not taken.
func TestTagged_Passes(t *testing.T) {
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	m := open(t, n, 0)
	guest := n.Guests[0]
	guest.Must(t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		v := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "eth0.7", ParentIndex: l.Attrs().Index}, VlanId: 7}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		at := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 77, 0, 1), Mask: net.CIDRMask(24, 32)}}
		to := &netlink.Route{LinkIndex: v.Index, Dst: &net.IPNet{IP: ipv4.AsSlice(), Mask: net.CIDRMask(32, 32)}, Scope: netlink.SCOPE_LINK}
		return errors.Join(netlink.AddrAdd(v, at), netlink.LinkSetUp(v), netlink.RouteAdd(to))
	})
	if got, err := client(guest).Get(urlIPv4); err == nil { // it ends when ARP has no answer
		got.Body.Close()
		t.Error("a request with a VLAN tag was answered")
	}
	if c, err := m.Counts(); err != nil || c != (metadata.Counts{}) {
		t.Errorf("counted %+v, %v, want nothing", c, err)
	}
}
