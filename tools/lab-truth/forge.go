package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/lab"
)

const (
	forgedBatch = 64  // frames per system call
	forgedBytes = 128 // room for one
	flagFIN     = 1
	flagSYN     = 2
	flagRST     = 4
	flagPSH     = 8
	flagACK     = 16
)

// forged is a TCP segment with a false source address. Addresses are IPv4.
type forged struct {
	from, to netip.AddrPort
	seq, ack uint32
	flags    byte
	options  []byte // length is a multiple of 4
	payload  []byte
}

// forger sends complete frames from a node's device, bypassing its queue and its TCP.
type forger struct {
	fd   int
	mac  net.HardwareAddr
	macs map[netip.Addr]net.HardwareAddr // of the nodes that it can send to

	buffer   []byte
	iovecs   []unix.Iovec
	messages []message
}

// message is struct mmsghdr.
type message struct {
	header unix.Msghdr
	sent   uint32
	_      uint32
}

func newForger(l *lab.Lab, node string) (*forger, error) {
	f := &forger{fd: -1, macs: map[netip.Addr]net.HardwareAddr{}}
	err := l.Enter(node, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		f.mac = link.Attrs().HardwareAddr
		neighbours, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, n := range neighbours {
			if a, ok := netip.AddrFromSlice(n.IP.To4()); ok {
				f.macs[a] = n.HardwareAddr
			}
		}
		f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // protocol 0: sends only
		if err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(f.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
			unix.Bind(f.fd, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}),
		)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket in %s: %w", node, err), f.close())
	}
	f.buffer = make([]byte, forgedBatch*forgedBytes)
	f.iovecs, f.messages = make([]unix.Iovec, forgedBatch), make([]message, forgedBatch)
	for i := range f.messages {
		f.iovecs[i].Base = &f.buffer[i*forgedBytes]
		f.messages[i].header.Iov = &f.iovecs[i]
		f.messages[i].header.SetIovlen(1)
	}
	return f, nil
}

func (f *forger) close() error {
	if f.fd < 0 {
		return nil
	}
	err := unix.Close(f.fd)
	f.fd = -1
	return err
}

// flood sends segments until ctx is done, at most this many a second (0: as many as possible) and at most this
// many in total (0: no limit). fill sets each.
func (f *forger) flood(ctx context.Context, perSecond, most int, fill func(*rand.Rand, *forged)) (sent int, err error) {
	runtime.LockOSThread() // its own thread: it is mostly in system calls
	defer runtime.UnlockOSThread()
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	start := time.Now()
	for ctx.Err() == nil && (most == 0 || sent < most) {
		n := forgedBatch
		if most > 0 {
			n = min(n, most-sent)
		}
		for i := range n {
			s := forged{seq: random.Uint32(), ack: random.Uint32()}
			fill(random, &s)
			b, err := f.write(f.buffer[i*forgedBytes:i*forgedBytes:(i+1)*forgedBytes], &s)
			if err != nil {
				return sent, err
			}
			f.iovecs[i].SetLen(len(b))
		}
		done, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(f.fd), uintptr(unsafe.Pointer(&f.messages[0])), uintptr(n), 0, 0, 0)
		switch {
		case errno == 0:
			sent += int(done)
		case errno != unix.ENOBUFS && errno != unix.EAGAIN && errno != unix.EINTR:
			return sent, fmt.Errorf("send forged frames: %w", errno)
		}
		if perSecond > 0 {
			time.Sleep(time.Duration(float64(sent)/float64(perSecond)*1e9) - time.Since(start))
		}
	}
	return sent, nil
}

// write builds the frame: Ethernet, IPv4, TCP, with correct checksums.
func (f *forger) write(b []byte, s *forged) ([]byte, error) {
	mac := f.macs[s.to.Addr()]
	if mac == nil {
		return nil, fmt.Errorf("no neighbour has the address %v", s.to.Addr())
	}
	const eth, ip, tcp = 14, 20, 20
	b = append(append(append(b, mac...), f.mac...), 0x08, 0x00)
	length := ip + tcp + len(s.options) + len(s.payload)
	if eth+length > cap(b) {
		return nil, fmt.Errorf("a frame of %d bytes is too long: at most %d", eth+length, cap(b))
	}
	from, to := s.from.Addr().As4(), s.to.Addr().As4()
	b = append(b, 0x45, 0, byte(length>>8), byte(length), 0, 0, 0x40, 0, 64, unix.IPPROTO_TCP, 0, 0)
	b = append(append(b, from[:]...), to[:]...)
	b = binary.BigEndian.AppendUint16(b, s.from.Port())
	b = binary.BigEndian.AppendUint16(b, s.to.Port())
	b = binary.BigEndian.AppendUint32(b, s.seq)
	b = binary.BigEndian.AppendUint32(b, s.ack)
	b = append(b, byte(tcp+len(s.options))/4<<4, s.flags, 0x10, 0, 0, 0, 0, 0)
	b = append(append(b, s.options...), s.payload...)
	binary.BigEndian.PutUint16(b[eth+10:], ^sum16(b[eth:eth+ip], 0))
	pseudo := uint32(unix.IPPROTO_TCP + length - ip)
	pseudo += uint32(sum16(b[eth+12:eth+ip], 0))
	binary.BigEndian.PutUint16(b[eth+ip+16:], ^sum16(b[eth+ip:], pseudo))
	return b, nil
}

// sum16 returns the one's complement sum of the 16-bit words of b.
func sum16(b []byte, sum uint32) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// strangers are the addresses 198.18.0.0/15, which no node has.
var strangers = net.IPNet{IP: net.IPv4(198, 18, 0, 0).To4(), Mask: net.CIDRMask(15, 32)}

func stranger(r *rand.Rand) netip.AddrPort {
	v := r.Uint32()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18 | byte(v>>16&1), byte(v >> 8), byte(v)}), uint16(1+r.IntN(65535)))
}

// answerStrangers routes a node's answers to strangers to the forging node, which drops them.
func answerStrangers(l *lab.Lab, node, forger string) error {
	err := l.Enter(node, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: &strangers, Gw: l.Addr(forger, 0).AsSlice(), Flags: int(netlink.FLAG_ONLINK),
		})
	})
	if err != nil {
		return fmt.Errorf("route to strangers in %s: %w", node, err)
	}
	return nil
}
