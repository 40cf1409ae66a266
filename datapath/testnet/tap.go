package testnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// Segment is the header of a TCP segment that passed a Tap; for a GSO packet, the header of all its segments.
type Segment struct {
	At       time.Time // when it passed, by the kernel's clock
	Out      bool      // sent by the device, not received
	From, To netip.AddrPort
	Seq, Ack uint32
	Window   uint16 // the header's field, not scaled
	Reserved uint8
	Flags    uint8
	Options  []byte
	Payload  int
}

// Flags of TCP.
const (
	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	ACK = 0x10
)

// End returns the sequence number behind the segment's data.
func (s *Segment) End() uint32 {
	n := uint32(s.Payload)
	for _, f := range []uint8{SYN, FIN} {
		if s.Flags&f != 0 {
			n++
		}
	}
	return s.Seq + n
}

// Tap records the headers of all TCP segments at a device: those it sends when they leave the stack, those it
// receives before the stack has them. So a socket is never ahead of its tap.
type Tap struct {
	fd     int
	queued uint32 // frames that were counted and not read yet
}

const tapBytes = 160 // of a frame: all headers

// NewTap opens a tap at the port's device for the length of the test. It buffers what passes until Each is
// called, up to 64 MB.
func NewTap(tb testing.TB, p attach.PortRef) *Tap {
	tb.Helper()
	return newTap(tb, p, []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: tapBytes}})
}

// NewEndsTap is NewTap for SYNs and FINs of IPv4 alone: at a busy device a tap of all segments takes as much time as the traffic.
func NewEndsTap(tb testing.TB, p attach.PortRef) *Tap {
	tb.Helper()
	return newTap(tb, p, []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 6, K: unix.ETH_P_IP},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 14 + 9},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 4, K: unix.IPPROTO_TCP},
		{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 14}, // the length of the IP header
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: 14 + 13},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jf: 1, K: SYN | FIN},
		{Code: unix.BPF_RET | unix.BPF_K, K: tapBytes},
		{Code: unix.BPF_RET | unix.BPF_K},
	})
}

func newTap(tb testing.TB, p attach.PortRef, filter []unix.SockFilter) *Tap {
	tb.Helper()
	t := &Tap{}
	err := p.In(func() (err error) {
		t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer),
			unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.SetsockoptSockFprog(t.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
			unix.Bind(t.fd, &unix.SockaddrLinklayer{Protocol: ethPAll, Ifindex: p.Ifindex}),
		)
	})
	if err != nil {
		tb.Fatalf("tap at %s: %v", p.Name, err)
	}
	tb.Cleanup(func() { closeFD(t.fd) })
	return t
}

// Each calls f for the segments that passed since the last call, in order. The test fails if the tap has missed frames.
func (t *Tap) Each(tb testing.TB, f func(s *Segment)) {
	tb.Helper()
	if missed := t.Some(tb, f); missed > 0 {
		tb.Fatalf("the tap missed %d frames: read it more often", missed)
	}
}

// Some is Each, and returns how many frames the tap has missed: it misses some if a busy machine lets the test wait. It
// reads as many frames as have passed before the call: on a slow machine more may come while it reads, without an end.
func (t *Tap) Some(tb testing.TB, f func(s *Segment)) (missed uint32) {
	tb.Helper()
	stats, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		tb.Fatal(err)
	}
	buf, oob := make([]byte, tapBytes), make([]byte, 64)
	for t.queued += stats.Packets - stats.Drops; t.queued > 0; t.queued-- {
		n, oobn, _, from, err := unix.Recvmsg(t.fd, buf, oob, 0)
		if err != nil {
			tb.Fatalf("read from the tap, which has %d frames: %v", t.queued, err)
		}
		s, ok := parseSegment(buf[:n])
		if !ok {
			continue
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok {
			s.Out = ll.Pkttype == unix.PACKET_OUTGOING
		}
		if s.At, err = timeOf(oob[:oobn]); err != nil {
			tb.Fatal(err)
		}
		f(s)
	}
	return stats.Drops
}

// timeOf reads struct timespec of SO_TIMESTAMPNS, the only control message that the tap asks for.
func timeOf(oob []byte) (time.Time, error) {
	h, data, _, err := unix.ParseOneSocketControlMessage(oob)
	if err != nil || h.Level != unix.SOL_SOCKET || h.Type != unix.SO_TIMESTAMPNS || len(data) < 16 {
		return time.Time{}, fmt.Errorf("a captured frame without its time: %v, %w", h, err)
	}
	return time.Unix(int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:]))), nil
}

// parseSegment reads an Ethernet frame without tags, with IPv4, or IPv6 without extensions.
func parseSegment(b []byte) (*Segment, bool) {
	if len(b) < 14+20+20 {
		return nil, false
	}
	s := &Segment{}
	var l4, end int
	switch ip := b[14:]; binary.BigEndian.Uint16(b[12:]) {
	case unix.ETH_P_IP:
		if ip[9] != unix.IPPROTO_TCP {
			return nil, false
		}
		l4, end = int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
		s.From = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:])), 0)
		s.To = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:])), 0)
	case unix.ETH_P_IPV6:
		if len(ip) < 60 || ip[6] != unix.IPPROTO_TCP {
			return nil, false
		}
		l4, end = 40, 40+int(binary.BigEndian.Uint16(ip[4:]))
		s.From = netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip[8:])), 0)
		s.To = netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip[24:])), 0)
	default:
		return nil, false
	}
	tcp := b[14+l4:]
	if len(tcp) < 20 || len(tcp) < int(tcp[12]>>4)*4 {
		return nil, false
	}
	header := int(tcp[12]>>4) * 4
	s.From = netip.AddrPortFrom(s.From.Addr(), binary.BigEndian.Uint16(tcp))
	s.To = netip.AddrPortFrom(s.To.Addr(), binary.BigEndian.Uint16(tcp[2:]))
	s.Seq, s.Ack = binary.BigEndian.Uint32(tcp[4:]), binary.BigEndian.Uint32(tcp[8:])
	s.Reserved, s.Flags, s.Window = tcp[12]&15, tcp[13], binary.BigEndian.Uint16(tcp[14:])
	s.Options = append([]byte(nil), tcp[20:header]...)
	s.Payload = end - l4 - header
	return s, true
}

// Option returns the body of the segment's first option of this kind, nil if there is none.
func (s *Segment) Option(kind byte) []byte {
	for o := s.Options; len(o) > 0 && o[0] != 0; {
		if o[0] == 1 {
			o = o[1:]
			continue
		}
		if len(o) < 2 || o[1] < 2 || int(o[1]) > len(o) {
			return nil
		}
		if o[0] == kind {
			return o[2:o[1]]
		}
		o = o[o[1]:]
	}
	return nil
}
