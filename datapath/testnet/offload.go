package testnet

import (
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/internal/nic"
)

// SetOffloads turns segmentation (GSO, and the GRO that makes such packets of received ones) and
// checksum offloads of a port's device on or off.
func SetOffloads(tb testing.TB, p attach.PortRef, on bool) {
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

// settle makes sure that a port's device sends. If the far end came up later, the device drops until the
// kernel's link watch reports the link, which may take a second. Reading the link's state makes the kernel
// report it at once.
func settle(tb testing.TB, p attach.PortRef) {
	tb.Helper()
	err := p.In(func() error {
		l, err := netlink.LinkByIndex(p.Ifindex)
		if err != nil {
			return err
		}
		e, err := nic.Open()
		if err != nil {
			return err
		}
		defer e.Close()
		_, err = e.Link(l.Attrs().Name)
		return err
	})
	if err != nil {
		tb.Fatalf("settle %s: %v", p.Name, err)
	}
}
