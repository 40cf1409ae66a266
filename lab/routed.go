package lab

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/experiment"
)

// routed makes each switch a router, for networks with several paths, where bridges would form loops. Ports have
// no addresses. The next hop on a link always has the address gateway: a permanent neighbour entry with the
// hardware address of the far end.
type routed struct{}

var gateway = net.IPv4(169, 254, 0, 1).To4()

func (routed) check(*plan) error { return nil } // every kernel can route

func (routed) finishChecksums() bool { return false }

func (routed) setUp(l *Lab, h *netlink.Handle, n *node) error {
	p := l.plan
	var neighbours []*nl.NetlinkRequest
	var routes []*netlink.Route
	for _, port := range n.ports {
		if port.peer.kind == experiment.Switch {
			neighbours = append(neighbours, neighbour(unix.AF_INET, port.ifindex, unix.NUD_PERMANENT, 0, gateway, port.far.mac))
		}
	}
	towards := p.towards(n)
	reached := map[int]bool{} // subnets of other switches that already have a route
	for _, guest := range p.guests() {
		ports := towards[guest]
		if len(ports) == 0 {
			return fmt.Errorf("no path to %s", guest.name)
		}
		if guest.attached != n.name && reached[guest.subnet] {
			continue
		}
		reached[guest.subnet] = guest.attached != n.name
		for profile := range p.cfg.Profiles {
			ip := net.IP(guest.addr(profile).AsSlice())
			if guest.attached == n.name {
				neighbours = append(neighbours, neighbour(unix.AF_INET, ports[0].ifindex, unix.NUD_PERMANENT, 0, ip, guest.ports[0].mac))
				routes = append(routes, &netlink.Route{
					Dst: &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)}, LinkIndex: ports[0].ifindex, Scope: netlink.SCOPE_LINK,
				})
				continue
			}
			subnet := &net.IPNet{IP: ip.Mask(net.CIDRMask(24, 32)), Mask: net.CIDRMask(24, 32)}
			routes = append(routes, viaPorts(subnet, ports))
		}
	}
	if err := sendBatch(neighbours); err != nil {
		return fmt.Errorf("neighbours: %w", err)
	}
	for _, r := range routes {
		if err := h.RouteAdd(r); err != nil {
			return fmt.Errorf("route to %v: %w", r.Dst, err)
		}
	}
	return nil
}

// viaPorts returns a route over all the ports; each flow uses one of them.
func viaPorts(dst *net.IPNet, ports []*port) *netlink.Route {
	if len(ports) == 1 {
		return &netlink.Route{Dst: dst, Gw: gateway, LinkIndex: ports[0].ifindex, Flags: int(netlink.FLAG_ONLINK)}
	}
	r := &netlink.Route{Dst: dst}
	for _, port := range ports {
		r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: port.ifindex, Gw: gateway, Flags: int(netlink.FLAG_ONLINK)})
	}
	return r
}
