package traffic_test

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var net10 = net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}

// sniff watches the TCP packets at a node's interface. The function returned stops it and gives
// how many different payload bytes went into the node and out of it, and the time from its first
// packet to the last data into it.
func sniff(t *testing.T, n *pairNet, node string) func() (in, out int64, span time.Duration) {
	t.Helper()
	fd := -1
	if err := n.Enter(node, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return func() (in, out int64, span time.Duration) {
		defer unix.Close(fd)
		type stream struct {
			src, dst uint32
			sport    uint16
			dport    uint16
		}
		first := map[stream]uint32{} // sequence number of the first data byte
		most := map[stream]uint32{}
		into := map[stream]bool{}
		var begin, end int64
		packet, control := make([]byte, 65536), make([]byte, 256)
		for {
			n, cn, _, from, err := unix.Recvmsg(fd, packet, control, 0)
			if err != nil {
				break
			}
			ip := packet[:n]
			if n < 40 || ip[0]>>4 != 4 || ip[9] != unix.IPPROTO_TCP {
				continue
			}
			header := int(ip[0]&15) * 4
			tcp := ip[header:]
			payload := int(binary.BigEndian.Uint16(ip[2:])) - header - int(tcp[12]>>4)*4
			s := stream{
				binary.BigEndian.Uint32(ip[12:]), binary.BigEndian.Uint32(ip[16:]),
				binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:]),
			}
			seq, syn := binary.BigEndian.Uint32(tcp[4:]), tcp[13]&2 != 0
			link, _ := from.(*unix.SockaddrLinklayer)
			incoming := link != nil && link.Pkttype != unix.PACKET_OUTGOING
			at := stamp(control[:cn])
			if begin == 0 {
				begin = at
			}
			if syn {
				first[s], into[s] = seq+1, incoming
			}
			if payload > 0 {
				most[s] = max(most[s], seq+uint32(payload)-first[s])
				if incoming {
					end = at
				}
			}
		}
		for s, bytes := range most {
			if into[s] {
				in += int64(bytes)
			} else {
				out += int64(bytes)
			}
		}
		return in, out, time.Duration(end - begin)
	}
}

func stamp(control []byte) int64 {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			return int64(binary.NativeEndian.Uint64(m.Data))*1e9 + int64(binary.NativeEndian.Uint64(m.Data[8:]))
		}
	}
	return 0
}
