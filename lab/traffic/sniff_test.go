package traffic_test

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sniff records the TCP packets at a node's interface. The returned function stops it and returns how many
// different payload bytes entered and left the node, and the time from its first packet to the last new data
// that entered.
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
		w := watch{first: map[stream]uint32{}, seen: map[stream][]bool{}, most: map[stream]uint32{}, into: map[stream]bool{}}
		packet, control := make([]byte, 65536), make([]byte, 256)
		for {
			n, cn, _, from, err := unix.Recvmsg(fd, packet, control, 0)
			if err != nil {
				break
			}
			link, _ := from.(*unix.SockaddrLinklayer)
			if n >= 40 && packet[0]>>4 == 4 && packet[9] == unix.IPPROTO_TCP {
				w.packet(packet[:n], link != nil && link.Pkttype != unix.PACKET_OUTGOING, stamp(control[:cn]))
			}
		}
		for s, bytes := range w.most {
			if w.into[s] {
				in += int64(bytes)
			} else {
				out += int64(bytes)
			}
		}
		return in, out, time.Duration(w.end - w.begin)
	}
}

// stream is one direction of a connection.
type stream struct {
	src, dst     uint32
	sport, dport uint16
}

type watch struct {
	first      map[stream]uint32 // sequence number of the first data byte
	seen       map[stream][]bool // the bytes that entered, from the first on
	most       map[stream]uint32 // payload up to the highest sequence number seen
	into       map[stream]bool   // whether the direction is into the node
	begin, end int64
}

// packet records an IPv4 packet of TCP.
func (w *watch) packet(ip []byte, incoming bool, at int64) {
	header := int(ip[0]&15) * 4
	tcp := ip[header:]
	payload := int(binary.BigEndian.Uint16(ip[2:])) - header - int(tcp[12]>>4)*4
	s := stream{
		binary.BigEndian.Uint32(ip[12:]), binary.BigEndian.Uint32(ip[16:]),
		binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:]),
	}
	seq, syn := binary.BigEndian.Uint32(tcp[4:]), tcp[13]&2 != 0
	if w.begin == 0 {
		w.begin = at
	}
	if syn {
		w.first[s], w.into[s] = seq+1, incoming
	}
	if payload > 0 {
		w.most[s] = max(w.most[s], seq+uint32(payload)-w.first[s])
		if incoming && w.isNew(s, seq-w.first[s], payload) {
			w.end = at
		}
	}
}

// isNew reports whether some of these bytes are the first to enter: data that is sent again can arrive after a flow's end.
func (w *watch) isNew(s stream, from uint32, length int) (is bool) {
	seen := w.seen[s]
	if more := int(from) + length - len(seen); more > 0 {
		seen = append(seen, make([]bool, more)...)
		w.seen[s] = seen
	}
	for i := range length {
		is = is || !seen[int(from)+i]
		seen[int(from)+i] = true
	}
	return is
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
