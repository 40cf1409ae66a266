package fairq_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/fairq"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// lie is what a guest's receiver writes into its segments. Zero: the truth, with a window of 65535 << 7.
type lie struct {
	name       string
	mss        uint16 // of its SYN-ACK; 0: 1460
	scale      uint8  // 0: 7
	synOptions []byte // more of its SYN-ACK
	options    []byte // of every acknowledgement
	reserved   byte
	flags      byte
	ahead      bool // acknowledges data before it arrives
	fragments  bool // sends every acknowledgement in two IP fragments
	gso        uint16
	// Segments of the largest window that the liar's sender is granted; 0: more than the law allows, see
	// docs/limits.md.
	segments int
}

// liar is a receiver of TCP on a raw socket, with an address of its own at the receiver's device.
type liar struct {
	lie
	fd      int
	ifindex int
	peer    netip.AddrPort // of the sender
	mac     [6]byte        // of the sender
	next    uint32         // of the data
	later   map[uint32]uint32
	bytes   atomic.Int64 // new bytes of data that arrived
	seq     uint32
	id      uint32
}

var (
	liarIP  = netip.MustParseAddr("10.0.0.9")
	liarMAC = [6]byte{2, 0, 0, 0, 0, 0x99}
)

const (
	liarPort      = 7000
	liarSeq       = 5000
	liarOnTheWire = 1460 // bytes of a full segment
	neighbours    = 15
)

// send sends a segment to the sender.
func (l *liar) send(flags byte, ack uint32, options []byte) error {
	s := &frames.Segment{
		Link: frames.Link{Dst: l.mac, Src: liarMAC}, IP: frames.IP{From: liarIP, To: l.peer.Addr()},
		FromPort: liarPort, ToPort: l.peer.Port(), Seq: l.seq, Ack: ack, Flags: flags, Window: 65535, Reserved: l.reserved, Options: options,
	}
	list := [][]byte{s.Bytes()}
	if l.fragments && flags&frames.SYN == 0 {
		list = l.inTwo(s)
	}
	for _, b := range list {
		if err := unix.Sendto(l.fd, b, 0, &unix.SockaddrLinklayer{Ifindex: l.ifindex, Halen: 6}); err != nil {
			return err
		}
	}
	return nil
}

// inTwo returns a segment in two fragments, the first with 16 bytes of TCP: it has the window, but not the
// checksum.
func (l *liar) inTwo(s *frames.Segment) [][]byte {
	whole := s.Bytes()
	tcp := whole[34:]
	l.id++
	ip := frames.IP{From: liarIP, To: l.peer.Addr(), ID: l.id, Fragment: 0x2000}
	first := frames.Packet(s.Link, ip, frames.TCP, tcp[:16])
	ip.Fragment = 2
	return [][]byte{first, frames.Packet(s.Link, ip, frames.TCP, tcp[16:])}
}

// serve answers the sender until stop is closed.
func (l *liar) serve(stop <-chan struct{}) error {
	buf := make([]byte, 1<<16)
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		n, err := unix.Read(l.fd, buf)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		v := frames.Parse(buf[:n])
		if v.Kind != frames.KindTCP || binary.BigEndian.Uint16(v.Frame[v.L4+2:]) != liarPort || [6]byte(buf[:6]) != liarMAC {
			continue
		}
		if err := l.answer(&v); err != nil {
			return err
		}
	}
}

func (l *liar) answer(v *frames.View) error {
	seq, size := binary.BigEndian.Uint32(v.Frame[v.L4+4:]), uint32(v.End-v.Data)
	if v.Flags()&frames.SYN != 0 {
		l.mac = [6]byte(v.Frame[6:12])
		l.peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte(v.Frame[v.L3+12:])), binary.BigEndian.Uint16(v.Frame[v.L4:]))
		l.next, l.later, l.seq = seq+1, map[uint32]uint32{}, liarSeq
		mss, scale := l.mss, l.scale
		if mss == 0 {
			mss = 1460
		}
		if scale == 0 {
			scale = 7
		}
		return l.send(frames.SYN|frames.ACK, l.next, frames.List(frames.OptionNop, frames.MSS(mss), frames.Scale(scale), l.synOptions))
	}
	l.seq = liarSeq + 1
	if size == 0 || binary.BigEndian.Uint16(v.Frame[v.L4:]) != l.peer.Port() { // late, of the lie before
		return nil
	}
	switch ahead := seq - l.next; {
	case l.ahead: // it never asks again for what is lost
		l.bytes.Add(int64(size))
		if end := seq + size; int32(end-l.next) > 0 {
			l.next = end
		}
		// Each ACK that is accepted makes the sender send one more segment, which the next ACK acknowledges.
		// Further ones are not accepted.
		for more := range uint32(32) {
			if err := l.send(frames.ACK|l.flags, l.next+more*liarOnTheWire, l.options); err != nil {
				return err
			}
		}
		return nil
	case ahead == 0:
		l.bytes.Add(int64(size))
		for l.next += size; l.later[l.next] > 0; l.next += l.later[l.next] {
		}
	case ahead < 1<<24 && l.later[seq] == 0:
		l.bytes.Add(int64(size))
		l.later[seq] = size
	}
	return l.send(frames.ACK|l.flags, l.next, l.options)
}

// liars is what all lies share: a port that 15 honest flows fill, so that all windows are one segment.
type liars struct {
	*testnet.Path
	fairq  *fairq.Attachment
	honest *testnet.Streams
	vnet   *vnetSocket
}

func newLiars(t *testing.T, c fairq.Config) *liars {
	t.Helper()
	const bps, limit = 50e6, 250_000
	n := &liars{Path: testnet.NewPath(t, testnet.PathOptions{PortBps: bps, Limit: limit, NoIPv6: true, GSO: true, ChecksumOffload: true})}
	testnet.Shape(t, n.In, bps, limit, 2*1514)
	law := fairq.Law{
		TargetBytes: 10_000, BufferBytes: limit, Tick: time.Millisecond, Period: 10 * time.Millisecond, CapBytes: 2000,
		Active: 4 * time.Second, // however slow the machine is, all of them count
	}
	c.Lease = time.Hour
	f, err := fairq.Attach([]fairq.Port{{PortRef: n.Port, Law: law}, {PortRef: n.In, Law: law}}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	n.fairq = f
	n.Sender.Must(t, func() error {
		link, err := netlink.LinkByIndex(n.Uplink.Ifindex)
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.IP(liarIP.AsSlice()), HardwareAddr: liarMAC[:],
		})
	})
	n.vnet = newVnetSocket(t, n.Uplink)
	n.honest = n.NewStreams(t, testnet.ReceiverIPv4, neighbours)
	return n
}

// try makes a sender send to a liar. It returns the largest window that the sender was granted, and the liar's
// share, relative to an honest neighbour's.
func (n *liars) try(t *testing.T, what lie) (window uint32, share float64) {
	t.Helper()
	l := &liar{lie: what, ifindex: n.Rx.Ifindex}
	err := n.Rx.In(func() (err error) {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		l.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // receives nothing until it is bound
		if err != nil {
			return err
		}
		wait := unix.NsecToTimeval(int64(50 * time.Millisecond))
		return errors.Join(
			unix.SetsockoptInt(l.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.SetsockoptTimeval(l.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
			unix.Bind(l.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: n.Rx.Ifindex}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := l.serve(stop); err != nil {
			t.Errorf("the liar: %v", err)
		}
	})
	defer func() {
		close(stop)
		serving.Wait()
		_ = unix.Close(l.fd)
	}()
	var conn *net.TCPConn
	n.Sender.Must(t, func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(liarIP, liarPort).String(), testnet.Patience)
		if err == nil {
			conn = c.(*net.TCPConn)
		}
		return err
	})
	defer func() { _ = conn.SetLinger(0); _ = conn.Close() }()
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		for b := make([]byte, 64<<10); ; {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	}()
	testnet.Until(t, what.name+": the liar has data", func() bool { return l.bytes.Load() > 50_000 })
	if what.gso > 0 {
		n.sendGSO(t, conn, what.gso)
	}
	honest, own := n.honest.Bytes(), l.bytes.Load()
	testnet.Until(t, what.name+": 3 MB of the neighbours' data came", func() bool {
		window = max(window, testnet.ReadTCPInfo(t, conn).Snd_wnd)
		return n.honest.Bytes()-honest > 3_000_000
	})
	share = float64(l.bytes.Load()-own) * neighbours / float64(n.honest.Bytes()-honest)
	_ = conn.SetWriteDeadline(time.Unix(1, 0))
	<-sending
	return window, share
}

// sendGSO sends a packet in the name of a connection, which must be cut into segments of this size.
func (n *liars) sendGSO(t *testing.T, c *net.TCPConn, size uint16) {
	t.Helper()
	s := &frames.Segment{
		Link: frames.Link{Dst: liarMAC, Src: [6]byte{2, 0, 0, 0, 0, 7}}, IP: frames.IP{From: netip.AddrFrom4([4]byte(testnet.SenderIPv4.To4())), To: liarIP},
		FromPort: testnet.AddrPort(c.LocalAddr()).Port(), ToPort: liarPort, Flags: frames.ACK, Seq: 1, Ack: liarSeq + 1, Payload: make([]byte, 30_000),
	}
	n.vnet.send(t, &vnetFrame{data: s.Bytes(), partial: true, size: size})
}

// A receiver lies against 15 honest flows of the same port, on the kernel's TCP: docs/limits.md has the table.
// The test checks the window that its sender is granted; the share is measured and printed.
func TestFairQ_Liars(t *testing.T) {
	ao := frames.Option(frames.OptionAO, make([]byte, 14)...)
	for name, c := range map[string]fairq.Config{
		"learn": {}, "unify": {Scale: fairq.ScaleUnify, UnifyShift: 7},
	} {
		t.Run(name, func(t *testing.T) {
			n := newLiars(t, c)
			n.tryAll(t, lie{name: "the truth", segments: 2})
			if c.Scale == fairq.ScaleUnify {
				n.tryAll(t, lie{name: "window scale 14", scale: 14, segments: 2})
				return
			}
			n.tryAll(t, []lie{
				{name: "option 29 in every ACK", options: frames.List(frames.OptionNop, ao), segments: 2},
				{name: "option 29 in SYN-ACK and every ACK", synOptions: ao, options: frames.List(frames.OptionNop, ao), segments: 2}, // option 19 Linux discards
				{name: "MSS 65535", mss: 65535, segments: 2},
				{name: "gso_size 9000 of its sender", gso: 9000, segments: 2},
				{name: "window scale 14", scale: 14, segments: 12}, // a step of 1 << 14 bytes
				{name: "window scale 255", scale: 255, segments: 12},
				{name: "reserved bits", reserved: 0xf, segments: 2},
				{name: "ECE, CWR, URG, PSH", flags: frames.ECE | frames.CWR | frames.URG | frames.PSH, segments: 2},
				{name: "SACK of what did not come", options: frames.List(frames.OptionNop, frames.SACK(1, 1)), segments: 2},
				{name: "timestamps that were not asked for", options: frames.List(frames.OptionNop, frames.Timestamps(1, 1<<31)), segments: 2},
				{name: "acknowledges ahead", ahead: true},
				{name: "ACKs in fragments", fragments: true},
			}...)
		})
	}
}

// tryAll tries lies one after another.
func (n *liars) tryAll(t *testing.T, list ...lie) {
	t.Helper()
	for _, l := range list {
		window, share := n.try(t, l)
		t.Logf("%-36s window %8d bytes, %5.2f of a neighbour's share", l.name, window, share)
		if most := uint32(l.segments * liarOnTheWire); l.segments > 0 && window > most {
			t.Errorf("%s: its sender was granted %d bytes, at most %d", l.name, window, most)
		}
	}
}
