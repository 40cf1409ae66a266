package netstack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// sendBuffer limits a guest's data in all queues of the network.
	sendBuffer = 16 << 20
	// receiveBuffer holds the packets that arrive while this process does not run: 16 MB, which the kernel
	// doubles, are 14,000 full frames.
	receiveBuffer = 16 << 20
	// virtioHeader is the size of the header before every frame at the socket (struct virtio_net_hdr). It shows
	// whether the kernel has left a checksum to the hardware.
	virtioHeader = 10
	frameHeader  = header.EthernetMinimumSize
)

// link is the guest's end of its veth: a packet socket bound to it. Packets that it sends pass the queue of the
// veth; it receives copies of the packets that the kernel's IPv4 receives.
type link struct {
	file *os.File
	raw  syscall.RawConn
	mac  tcpip.LinkAddress
	mtu  uint32
	next func(netip.Addr) (net.HardwareAddr, bool)
	out  *Queue // may be nil
	syns synCount

	reader *reader
	tasks  sync.WaitGroup

	// One sender at a time. The arguments and results of a send are fields, so that it allocates nothing.
	sending sync.Mutex
	iovecs  []unix.Iovec
	message unix.Msghdr
	patient bool // waits for room in the socket
	errno   syscall.Errno
	send    func(fd uintptr) bool
}

// openLink opens the packet socket in the namespace of the calling thread.
func openLink(c Config) (*link, error) {
	if !c.Addr.Is4() {
		return nil, errors.New("the address must be IPv4")
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	for _, set := range []func() error{
		// The socket receives nothing before bind: so no packet bypasses the filter.
		func() error { return filterFor(fd, c.Addr) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) },
		func() error {
			return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: c.Ifindex})
		},
	} {
		if err := set(); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("set up a packet socket: %w", err)
		}
	}
	l := &link{
		file: os.NewFile(uintptr(fd), "guest"), mac: tcpip.LinkAddress(c.MAC), mtu: c.MTU, next: c.Next, out: c.Queue,
	}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		l.file.Close()
		return nil, err
	}
	l.send = l.trySend
	l.reader = newReader()
	return l, nil
}

// filterFor lets only IPv4 packets to addr, sent to this interface, reach the socket.
func filterFor(fd int, addr netip.Addr) error {
	const destination = frameHeader + 16 // in the IPv4 header
	ip := addr.As4()
	want := uint32(ip[0])<<24 | uint32(ip[1])<<16 | uint32(ip[2])<<8 | uint32(ip[3])
	packetType := int32(-0x1000 + 4) // SKF_AD_OFF + SKF_AD_PKTTYPE
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: uint32(packetType)},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PACKET_HOST, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: destination},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: want, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 18}, // the whole packet
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

func networkOrder(x uint16) uint16 { return x>>8 | x<<8 }

// lost returns how many packets found the receive buffer full since the last call.
func (l *link) lost() (int, error) {
	lost := 0
	var inner error
	err := l.raw.Control(func(fd uintptr) {
		stats, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if inner = err; err == nil {
			lost = int(stats.Drops)
		}
	})
	if err == nil {
		err = inner
	}
	return lost, err
}

// WritePackets sends packets, in order. A TCP packet waits for room in the host's queue; another packet without
// room is lost, as it would be for a socket of the kernel.
func (l *link) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	for i, pkt := range list.AsSlice() {
		if err := l.write(pkt); err != nil {
			return i, err
		}
	}
	return list.Len(), nil
}

func (l *link) write(pkt *stack.PacketBuffer) tcpip.Error {
	isTCP := pkt.TransportProtocolNumber == header.TCPProtocolNumber
	if isTCP {
		l.syns.note(pkt)
	}
	if l.out != nil && !l.out.admit(pkt.Size(), isTCP) {
		return &tcpip.ErrNoBufferSpace{}
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	l.iovecs = append(l.iovecs[:0], unix.Iovec{Base: &noOffload[0], Len: virtioHeader})
	views, skip := pkt.AsViewList()
	for v := views.Front(); v != nil; v = v.Next() {
		part := v.AsSlice()
		if skip >= len(part) {
			skip -= len(part)
			continue
		}
		part, skip = part[skip:], 0
		l.iovecs = append(l.iovecs, unix.Iovec{Base: &part[0], Len: uint64(len(part))})
	}
	l.message.Iov, l.message.Iovlen, l.patient = &l.iovecs[0], uint64(len(l.iovecs)), isTCP
	if err := l.raw.Write(l.send); err != nil {
		return &tcpip.ErrAborted{} // the guest has been closed
	}
	switch l.errno {
	case 0:
		return nil
	case unix.EMSGSIZE:
		return &tcpip.ErrMessageTooLong{}
	case unix.ENETDOWN, unix.ENXIO:
		return &tcpip.ErrNetworkUnreachable{}
	default:
		return &tcpip.ErrNoBufferSpace{}
	}
}

// noOffload is the header of a complete frame with finished checksums.
var noOffload [virtioHeader]byte

// trySend is false when there is no room; the caller then waits for it.
func (l *link) trySend(fd uintptr) bool {
	for {
		_, _, l.errno = unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&l.message)), 0)
		switch {
		case l.errno == unix.EINTR:
		case l.errno == unix.EAGAIN && l.patient:
			return false
		default:
			return true
		}
	}
}

// AddHeader writes the Ethernet header.
func (l *link) AddHeader(pkt *stack.PacketBuffer) {
	h := pkt.LinkHeader().Push(frameHeader)
	// A packet without a neighbour gets an address that no node has, and is lost at the switch.
	if mac, ok := l.next(netip.AddrFrom4(pkt.EgressRoute.RemoteAddress.As4())); ok {
		copy(h, mac)
	}
	copy(h[header.EthernetAddressSize:], l.mac)
	binary.BigEndian.PutUint16(h[2*header.EthernetAddressSize:], uint16(pkt.NetworkProtocolNumber))
}

// shut ends the link: no packet is sent or received any more.
func (l *link) shut() error {
	err := l.file.Close()
	l.tasks.Wait()
	return err
}

// Attach starts to deliver received packets.
func (l *link) Attach(d stack.NetworkDispatcher) {
	if d != nil {
		l.tasks.Go(func() { l.reader.run(l.raw, d) })
	}
}

// The other methods of stack.LinkEndpoint: those of a plain Ethernet device. It has no offloads, so netstack
// calculates and checks every checksum.

func (l *link) MTU() uint32                                  { return l.mtu }
func (l *link) SetMTU(uint32)                                {}
func (l *link) MaxHeaderLength() uint16                      { return frameHeader }
func (l *link) LinkAddress() tcpip.LinkAddress               { return l.mac }
func (l *link) SetLinkAddress(tcpip.LinkAddress)             {}
func (l *link) Capabilities() stack.LinkEndpointCapabilities { return 0 }
func (l *link) IsAttached() bool                             { return true }
func (l *link) Wait()                                        { l.tasks.Wait() }
func (l *link) ARPHardwareType() header.ARPHardwareType      { return header.ARPHardwareEther }
func (l *link) ParseHeader(*stack.PacketBuffer) bool         { return true }
func (l *link) Close()                                       {}
func (l *link) SetOnCloseAction(func())                      {}
