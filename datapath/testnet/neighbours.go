package testnet

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
)

// Know enters the MAC address of other IP addresses at a device, so that its kernel does not ask for it. Answers stay in a table of
// 1024 entries that all namespaces of a machine share. If others fill it, connections would fail.
func Know(tb testing.TB, at attach.PortRef, mac net.HardwareAddr, addresses ...net.IP) {
	tb.Helper()
	err := at.In(func() error {
		for _, ip := range addresses {
			if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: at.Ifindex, State: netlink.NUD_PERMANENT, IP: ip, HardwareAddr: mac}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("neighbours of %s: %v", at.Name, err)
	}
}
