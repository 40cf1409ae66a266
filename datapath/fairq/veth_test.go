package fairq_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
	"weir/internal/nic"
)

// frameNet is a switch with FairQ on both ports, and raw sockets at the devices of its two hosts. They send and
// receive whole frames, segmented or not, with checksums complete or not.
type frameNet struct {
	*testnet.Path
	fairq       *fairq.Attachment
	left, right *vnetSocket
	last        []fairq.Stats
}

// vethGrant is the window in bytes that flows are limited to on a frameNet.
const vethGrant = 20_000

// newFrameNet makes a switch whose queues are so fast and long that nothing is lost.
func newFrameNet(t *testing.T, ipv6 bool) *frameNet {
	t.Helper()
	const bps, limit, burst = 4e9, 64 << 20, 128 << 10
	n := &frameNet{Path: testnet.NewPath(t, testnet.PathOptions{
		PortBps: bps, Limit: limit, Burst: burst, MTU: 9000, NoIPv6: !ipv6, GSO: true, ChecksumOffload: true,
	})}
	testnet.Shape(t, n.In, bps, limit, burst)
	for _, p := range []attach.PortRef{n.Uplink, n.In, n.Port, n.Rx} {
		// Received packets stay as they were sent.
		setFeatures(t, p, map[string]bool{"rx-gro": false})
	}
	law := limitedTo(vethGrant)
	law.MTU = 9000
	f, err := fairq.Attach([]fairq.Port{{PortRef: n.In, Law: law}, {PortRef: n.Port, Law: law}}, fairq.Config{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	n.fairq, n.left, n.right = f, newVnetSocket(t, n.Uplink), newVnetSocket(t, n.Rx)
	n.last = make([]fairq.Stats, 2)
	return n
}

// setFeatures turns features of a port's device on or off.
func setFeatures(t *testing.T, p attach.PortRef, features map[string]bool) {
	t.Helper()
	err := p.In(func() error {
		l, err := netlink.LinkByIndex(p.Ifindex)
		if err != nil {
			return err
		}
		e, err := nic.Open()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change(l.Attrs().Name, features)
	})
	if err != nil {
		t.Fatalf("features of %s: %v", p.Name, err)
	}
}

// vnetSocket sends and receives whole frames at a device, each with the device's offload header
// (PACKET_VNET_HDR).
type vnetSocket struct {
	fd      int
	ifindex int
	buf     []byte
	oob     []byte
}

// vnetFrame is a frame and its offload header.
type vnetFrame struct {
	data    []byte
	partial bool   // the device must complete its checksum
	size    uint16 // of the segments that the device must make of it; 0: it is one
	tag     []byte // of 4 bytes, from the metadata
}

const (
	vnetHeader    = 10 // struct virtio_net_hdr
	vnetNeedsCsum = 1
	vnetTCPv4     = 1
	vnetTCPv6     = 4
)

func newVnetSocket(t *testing.T, p attach.PortRef) *vnetSocket {
	t.Helper()
	s := &vnetSocket{ifindex: p.Ifindex, buf: make([]byte, 1<<17), oob: make([]byte, 256)}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	err := p.In(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // receives nothing until it is bound
		if err != nil {
			return err
		}
		wait := unix.NsecToTimeval(int64(testnet.Patience))
		return errors.Join(
			unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20),
			unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
			unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: p.Ifindex}),
		)
	})
	if err != nil {
		t.Fatalf("raw socket at %s: %v", p.Name, err)
	}
	t.Cleanup(func() { _ = unix.Close(s.fd) })
	return s
}

func (s *vnetSocket) send(t *testing.T, f *vnetFrame) {
	t.Helper()
	b := s.buf[:vnetHeader]
	clear(b)
	v := frames.Parse(f.data)
	if f.partial {
		b[0] = vnetNeedsCsum
		binary.NativeEndian.PutUint16(b[6:], uint16(v.L4))
		binary.NativeEndian.PutUint16(b[8:], 16)
	}
	if f.size > 0 {
		b[1] = vnetTCPv4
		if f.data[v.L3]>>4 == 6 {
			b[1] = vnetTCPv6
		}
		binary.NativeEndian.PutUint16(b[2:], uint16(v.Data))
		binary.NativeEndian.PutUint16(b[4:], f.size)
	}
	if err := unix.Sendto(s.fd, append(b, f.data...), 0, &unix.SockaddrLinklayer{Ifindex: s.ifindex, Halen: 6}); err != nil {
		t.Fatalf("send %d bytes, checksum to be made %t, segments of %d: %v: %x", len(f.data), f.partial, f.size, err, f.data[:min(len(f.data), 100)])
	}
}

// receive returns the next frame.
func (s *vnetSocket) receive(t *testing.T) *vnetFrame {
	t.Helper()
	n, oobn, _, _, err := unix.Recvmsg(s.fd, s.buf, s.oob, 0)
	if err != nil {
		t.Fatalf("no frame: %v", err)
	}
	if !bytes.HasPrefix(s.buf[vnetHeader+6:n], []byte{2, 0, 0, 0}) {
		return s.receive(t) // not from this test: with IPv6 the kernel sends MLD of its own
	}
	f := &vnetFrame{data: bytes.Clone(s.buf[vnetHeader:n]), partial: s.buf[0]&vnetNeedsCsum != 0, size: binary.NativeEndian.Uint16(s.buf[4:])}
	messages, err := unix.ParseSocketControlMessage(s.oob[:oobn])
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		const statusVLAN = 1 << 4 // TP_STATUS_VLAN_VALID
		if m.Header.Type != unix.PACKET_AUXDATA || binary.NativeEndian.Uint32(m.Data)&statusVLAN == 0 {
			continue
		}
		f.tag = binary.BigEndian.AppendUint16(nil, binary.NativeEndian.Uint16(m.Data[18:]))
		f.tag = binary.BigEndian.AppendUint16(f.tag, binary.NativeEndian.Uint16(m.Data[16:]))
	}
	return f
}

// inKernel returns a frame as in the switch's kernel: the outer tag is in the metadata, not in the data.
func inKernel(frame []byte) (data, tag []byte) {
	if len(frame) < 16 || !bytes.Equal(frame[12:14], []byte{0x81, 0}) && !bytes.Equal(frame[12:14], []byte{0x88, 0xa8}) {
		return frame, nil
	}
	return append(bytes.Clone(frame[:12]), frame[16:]...), frame[12:16]
}

// fromTo returns the sockets that a frame is sent from and arrives at.
func (n *frameNet) fromTo(leftToRight bool) (from, to *vnetSocket) {
	if leftToRight {
		return n.left, n.right
	}
	return n.right, n.left
}

// counted returns the increase of both ports' counters since the last call, summed. NotTCP, and so Seen, may
// include frames of the kernel itself.
func (n *frameNet) counted(t *testing.T) (d fairq.Stats) {
	t.Helper()
	now, err := n.fairq.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for i := range now {
		since := bpftest.Minus(now[i], n.last[i])
		d.Seen += since.Seen
		d.NotTCP += since.NotTCP
		d.Tunnel += since.Tunnel
		d.Fragment += since.Fragment
		d.Short += since.Short
		d.Rewritten += since.Rewritten
		d.Smaller += since.Smaller
	}
	n.last = now
	return d
}
