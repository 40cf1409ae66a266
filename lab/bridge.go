package lab

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// bridge makes a switch a Linux bridge, for networks without loops. Every hypervisor is a bridge, too.
type bridge struct{}

func (bridge) check(*plan) error { return nil } // every kernel that runs labs has bridges

func (bridge) finishChecksums() bool { return false }

func (bridge) setUp(l *Lab, h *netlink.Handle, n *node) error {
	if err := makeBridge(h, n.bridgeMAC()); err != nil {
		return err
	}
	for _, port := range n.ports {
		if err := joinBridge(h, port.ifname); err != nil {
			return err
		}
	}
	return knowGuests(n, l.plan)
}

func (n *node) bridgeMAC() net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x79, byte(n.index >> 8), byte(n.index), 0, 0}
}

// makeBridge makes br0, up and forwarding at once: no spanning tree, no multicast snooping.
func makeBridge(h *netlink.Handle, mac net.HardwareAddr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = bridgeName, mac, mtu
	snooping := false
	br := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	if err := h.LinkAdd(br); err != nil {
		return fmt.Errorf("make the bridge: %w", err)
	}
	if err := bridgeTimers(br.Attrs().Index); err != nil {
		return fmt.Errorf("configure the bridge: %w", err)
	}
	return h.LinkSetUp(br)
}

// bridgeTimers disables the spanning tree and its delay, which the library cannot set.
func bridgeTimers(ifindex int) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(ifindex)
	req.AddData(msg)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_BR_STP_STATE, nl.Uint32Attr(0))
	data.AddRtAttr(nl.IFLA_BR_FORWARD_DELAY, nl.Uint32Attr(0))
	req.AddData(info)
	return sendBatch([]*nl.NetlinkRequest{req})
}

func joinBridge(h *netlink.Handle, ifname string) error {
	br, err := h.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	link, err := h.LinkByName(ifname)
	if err != nil {
		return err
	}
	if err := h.LinkSetMaster(link, br); err != nil {
		return fmt.Errorf("join %s to the bridge: %w", ifname, err)
	}
	return h.LinkSetUp(link)
}

// knowGuests adds forwarding entries for all guests, so that a bridge never floods a frame into other queues, not
// even after a guest has been silent for minutes.
func knowGuests(n *node, p *plan) error {
	var batch []*nl.NetlinkRequest
	towards := p.towards(n)
	for _, guest := range p.guests() {
		if port := towards[guest]; len(port) > 0 {
			batch = append(batch, neighbour(unix.AF_BRIDGE, port[0].ifindex, unix.NUD_NOARP, unix.NTF_MASTER, nil, guest.ports[0].mac))
		}
	}
	return sendBatch(batch)
}
