package forward

import (
	"encoding/binary"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"weir/law"
	"weir/law/fabric"
)

// header holds the fields of a frame that the law reads.
type header struct {
	to, from fabric.MAC
	kind     uint16 // EtherType; of a tagged frame, that of the tag
}

func readHeader(frame []byte) (h header, ok bool) {
	if len(frame) < 14 {
		return h, false
	}
	copy(h.to[:], frame)
	copy(h.from[:], frame[6:])
	h.kind = binary.BigEndian.Uint16(frame[12:])
	return h, true
}

// packetIn learns from a frame, and forwards it if no switch could.
func (l *Law) packetIn(e *fabric.PacketIn) {
	head, ok := readHeader(e.Frame)
	if !ok {
		return
	}
	if e.Kind == fabric.Probe || head.kind == typeLLDP {
		l.probeHeard(e.At, e.Frame)
		return
	}
	h := l.learn(head.from, e.At)
	l.learnAddress(h, head, e.Frame)
	switch e.Kind {
	case fabric.UnknownSource:
		if h != nil {
			l.unplaced[h.mac] = h // the switch lacks its flow
		}
	case fabric.SYN:
		l.counts.SYN++
	case fabric.FIN:
		l.counts.FIN++
	case fabric.RST:
		l.counts.RST++
	case fabric.ARP:
		l.arp(e, head)
	case fabric.Miss:
		l.forward(e, head)
	}
}

// learnAddress records the IPv4 address of a host: the sender in its ARP, or the source of its packets. A router and a load balancer
// also send packets with addresses of others.
func (l *Law) learnAddress(h *host, head header, frame []byte) {
	if h == nil {
		return
	}
	switch {
	case head.kind == typeARP && len(frame) >= 42:
		if fabric.MAC(frame[22:28]) == h.mac {
			l.owns(h, fabric.IPv4(frame[28:32]), true)
		}
	case head.kind == typeIPv4 && len(frame) >= 34:
		l.owns(h, fabric.IPv4(frame[26:30]), false)
	}
}

// arp answers a broadcast request for the address of a host that named it in ARP and can be reached, and floods other requests. One
// with a VLAN tag is flooded: the law does not know which hosts are in the VLAN.
func (l *Law) arp(e *fabric.PacketIn, head header) {
	if head.kind != typeARP {
		l.flood(e.At, e.Frame)
		return
	}
	var q layers.ARP
	if err := q.DecodeFromBytes(e.Frame[14:], gopacket.NilDecodeFeedback); err != nil ||
		q.AddrType != layers.LinkTypeEthernet || q.Protocol != layers.EthernetTypeIPv4 || q.HwAddressSize != 6 || q.ProtAddressSize != 4 {
		return
	}
	if fabric.MAC(q.SourceHwAddress) != head.from {
		return // the sender in ARP is not the sender of the frame
	}
	asked := fabric.IPv4(q.DstProtAddress)
	owner := l.owners[asked]
	target := l.hosts[owner.mac]
	announces := asked == fabric.IPv4(q.SourceProtAddress)
	if q.Operation != layers.ARPRequest || announces || target == nil || !owner.arp || target.mac == head.from || !l.reachable(target) {
		l.flood(e.At, e.Frame)
		return
	}
	answer, err := arpAnswer(target.mac, asked, head.from, fabric.IPv4(q.SourceProtAddress))
	if err != nil {
		return // impossible: all sizes are fixed
	}
	l.counts.Answered++
	l.out = append(l.out, fabric.PacketOut{Switch: e.At.Switch, Ports: []fabric.PortNo{e.At.N}, Frame: answer})
}

func (l *Law) reachable(h *host) bool {
	p := l.port(h.at)
	return p != nil && p.Up
}

func arpAnswer(mac fabric.MAC, ip fabric.IPv4, toMAC fabric.MAC, toIP fabric.IPv4) ([]byte, error) {
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{},
		&layers.Ethernet{SrcMAC: mac[:], DstMAC: toMAC[:], EthernetType: layers.EthernetTypeARP},
		&layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: layers.ARPReply, SourceHwAddress: mac[:], SourceProtAddress: ip[:], DstHwAddress: toMAC[:], DstProtAddress: toIP[:],
		})
	return b.Bytes(), err
}

// linkLocal reports whether an address is one of those that bridges do not forward: of STP, LACP, 802.1X, PTP and LLDP
// (01:80:c2:00:00:00 to 0f; IEEE 802.1Q, 8.6.3).
func linkLocal(m fabric.MAC) bool {
	return [5]byte(m[:5]) == [5]byte{0x01, 0x80, 0xc2} && m[5] < 16
}

// forward delivers a frame that a switch had no flow for, or floods it.
func (l *Law) forward(e *fabric.PacketIn, head header) {
	if linkLocal(head.to) {
		l.counts.LinkLocal++
		return
	}
	if h := l.hosts[head.to]; h != nil {
		if l.reachable(h) && h.at != e.At {
			l.counts.Delivered++
			l.out = append(l.out, fabric.PacketOut{Switch: h.at.Switch, Ports: []fabric.PortNo{h.at.N}, Frame: l.own(e.Frame)})
		}
		l.unplaced[h.mac] = h
		return
	}
	l.flood(e.At, e.Frame)
}

// own copies a borrowed frame for actions. The copy is valid until the next step.
func (l *Law) own(frame []byte) []byte {
	l.frame = append(l.frame[:0], frame...)
	return l.frame
}

// flood sends a frame from all ports of hosts except the one where it arrived. No switch floods: the controller sends each
// frame directly to the edge ports, so that no spanning tree is needed.
func (l *Law) flood(from law.Port, frame []byte) {
	p := l.port(from)
	if p == nil || p.role != edge {
		return
	}
	passed := (l.now - p.floodAt).Seconds()
	p.floodTokens = min(p.floodTokens+passed*float64(l.cfg.FloodsPerSecond), float64(l.cfg.FloodBurst))
	p.floodAt = l.now
	if p.floodTokens < 1 {
		l.counts.FloodsRefused++
		return
	}
	p.floodTokens--
	l.counts.Floods++
	frame = l.own(frame)
	for _, d := range sorted(l.switches) {
		if !d.joined {
			continue
		}
		var ports []fabric.PortNo
		for _, q := range sorted(d.ports) {
			if q.Up && q.role == edge && (law.Port{Switch: d.id, N: q.Port}) != from {
				ports = append(ports, q.Port)
			}
		}
		if len(ports) > 0 {
			l.out = append(l.out, fabric.PacketOut{Switch: d.id, Ports: ports, Frame: frame})
		}
	}
}
