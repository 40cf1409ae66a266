package lab

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// segment has the fields of a captured TCP segment.
type segment struct {
	src, dst          netip.AddrPort
	syn, ack, rst     bool
	fin               bool
	seq, acked        uint32
	dontFragment      bool
	window            uint16
	payload           int
	checksumsComplete bool
}

// capture records the TCP segments that enter a switch through one of its ports. The returned function stops it
// and returns them.
func capture(t *testing.T, l *Lab, node, port string) func() []segment {
	t.Helper()
	ifindex := 0
	for _, p := range l.plan.byName[node].ports {
		if p.name == port {
			ifindex = p.ifindex
		}
	}
	if ifindex == 0 {
		t.Fatalf("%s has no port %s", node, port)
	}
	fd := -1
	err := l.Enter(node, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifindex})
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() []segment {
		defer unix.Close(fd)
		var list []segment
		packet := make([]byte, 2048)
		for {
			n, from, err := unix.Recvfrom(fd, packet, 0)
			if err != nil {
				break
			}
			if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if s, ok := parseSegment(packet[:n]); ok {
				list = append(list, s)
			}
		}
		if stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err != nil || stats.Drops > 0 {
			t.Errorf("the capture missed %d packets: %v", stats.Drops, err)
		}
		return list
	}
}

// parseSegment parses an IPv4 packet.
func parseSegment(ip []byte) (s segment, ok bool) {
	if len(ip) < 40 || ip[0]>>4 != 4 || ip[9] != unix.IPPROTO_TCP {
		return s, false
	}
	header, length := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if length > len(ip) || length < header+20 {
		return s, false
	}
	tcp := ip[header:length]
	at := func(addr, port []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(addr)), binary.BigEndian.Uint16(port))
	}
	pseudo := append(append([]byte{}, ip[12:20]...), 0, unix.IPPROTO_TCP, byte(len(tcp)>>8), byte(len(tcp)))
	return segment{
		src: at(ip[12:16], tcp), dst: at(ip[16:20], tcp[2:]),
		syn: tcp[13]&2 != 0, ack: tcp[13]&16 != 0, rst: tcp[13]&4 != 0, fin: tcp[13]&1 != 0,
		seq: binary.BigEndian.Uint32(tcp[4:]), acked: binary.BigEndian.Uint32(tcp[8:]),
		dontFragment: ip[6]&0x40 != 0, window: binary.BigEndian.Uint16(tcp[14:]),
		payload:           len(tcp) - int(tcp[12]>>4)*4,
		checksumsComplete: fold(sum(ip[:header])) == 0xffff && fold(sum(pseudo)+sum(tcp)) == 0xffff,
	}, true
}

// sum adds 16-bit words one by one.
func sum(b []byte) (total uint32) {
	for i, x := range b {
		if i%2 == 0 {
			total += uint32(x) << 8
		} else {
			total += uint32(x)
		}
	}
	return total
}

func fold(x uint32) uint32 {
	for x > 0xffff {
		x = x>>16 + x&0xffff
	}
	return x
}
