package attach

import (
	"bytes"
	"net"

	"github.com/vishvananda/netlink"
)

// The addresses of the two devices of a parking (package park): where packets enter, and where they come back. The kernel
// sets them in the step that makes the devices.
var (
	ParkIn  = net.HardwareAddr{0x02, 'W', 'e', 'i', 'r', 0x10}
	ParkOut = net.HardwareAddr{0x02, 'W', 'e', 'i', 'r', 0x11}
)

// IsParking reports whether a device is one of a parking of Weir's. Such a device is never a port.
func IsParking(l netlink.Link) bool {
	a := l.Attrs().HardwareAddr
	return l.Type() == "veth" && (bytes.Equal(a, ParkIn) || bytes.Equal(a, ParkOut))
}
