package telemetry_test

import (
	"net"
	"net/netip"

	"weir/datapath/attach"
)

func ports(p ...attach.PortRef) []attach.PortRef { return p }

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
