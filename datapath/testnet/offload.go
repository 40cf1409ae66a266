package testnet

import (
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath"
)

// SetOffloads turns segmentation (GSO, and the GRO that makes such packets of received ones) and
// checksum offloads of a port's device on or off.
func SetOffloads(tb testing.TB, p datapath.PortRef, on bool) {
	tb.Helper()
	err := p.In(func() error {
		l, err := netlink.LinkByIndex(p.Ifindex)
		if err != nil {
			return err
		}
		return offloads(l.Attrs().Name, PathOptions{GSO: on, ChecksumOffload: on})
	})
	if err != nil {
		tb.Fatalf("offloads of %s: %v", p.Name, err)
	}
}
