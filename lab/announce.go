package lab

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// announce makes every guest known to the controller. For each address of a guest, a frame arrives at the guest's
// switch. It is addressed to the guest's own hardware address, so only the queue of the guest's own link ever has
// one.
func (l *Lab) announce(guests []*node) error {
	for _, g := range guests {
		from := l.plan.routerPort(g).far // the port at the guest, or at its hypervisor
		err := l.Enter(from.node.name, func() error {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			for _, profile := range g.profiles {
				frame := announcement(g.ports[0].mac, g.addr(profile).AsSlice())
				if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: from.ifindex}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("announce %s: %w", g.name, err)
		}
	}
	return nil
}

// announcement is an ARP announcement (RFC 5227, 3) to the hardware address that it announces.
func announcement(mac, ip []byte) []byte {
	const request = 1
	b := slices.Concat(mac, mac)
	for _, field := range []uint16{unix.ETH_P_ARP, unix.ARPHRD_ETHER, unix.ETH_P_IP, 6<<8 | 4, request} {
		b = binary.BigEndian.AppendUint16(b, field)
	}
	b = slices.Concat(b, mac, ip, make([]byte, len(mac)), ip)
	return append(b, make([]byte, 60-len(b))...) // Ethernet's minimum frame size, without CRC
}
