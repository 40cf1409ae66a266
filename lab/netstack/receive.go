package netstack

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// batch is how many frames are read at once.
	batch = 32
	// frameRoom is the buffer for one frame; longer frames do not occur on a veth of the lab and are truncated, so
	// that their checksum is wrong.
	frameRoom = 2048
	// shortFrame is the size up to which a frame is copied, so that its buffer can be reused: most frames at a
	// sender are ACKs.
	shortFrame = 256
)

// multiHeader is struct mmsghdr.
type multiHeader struct {
	unix.Msghdr
	length uint32
	_      uint32
}

// reader reads frames from the socket and delivers them to the stack.
type reader struct {
	virtio  [batch][virtioHeader]byte
	rooms   [batch]*buffer.View
	iovecs  [batch][2]unix.Iovec
	headers [batch]multiHeader
	got     int
	errno   syscall.Errno
}

func newReader() *reader {
	r := &reader{}
	for i := range batch {
		r.renew(i)
	}
	return r
}

// renew gives message i a new buffer.
func (r *reader) renew(i int) {
	r.rooms[i] = buffer.NewViewSize(frameRoom)
	r.iovecs[i] = [2]unix.Iovec{
		{Base: &r.virtio[i][0], Len: virtioHeader},
		{Base: &r.rooms[i].AsSlice()[0], Len: frameRoom},
	}
	r.headers[i].Iov, r.headers[i].Iovlen = &r.iovecs[i][0], 2
}

// run delivers frames until the socket is closed.
func (r *reader) run(raw syscall.RawConn, d stack.NetworkDispatcher) {
	fetch := r.fetch
	for raw.Read(fetch) == nil {
		if r.errno != 0 {
			continue // the interface was down for a moment; the socket reports it once
		}
		for i := range r.got {
			if pkt := r.take(i); pkt != nil {
				d.DeliverNetworkPacket(header.IPv4ProtocolNumber, pkt)
				pkt.DecRef()
			}
		}
	}
	for _, room := range r.rooms {
		room.Release()
	}
}

// fetch is false when nothing has arrived.
func (r *reader) fetch(fd uintptr) bool {
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&r.headers[0])), batch, unix.MSG_DONTWAIT, 0, 0)
	r.got, r.errno = int(n), errno
	return errno != unix.EAGAIN && errno != unix.EINTR
}

// take makes a packet from message i.
func (r *reader) take(i int) *stack.PacketBuffer {
	n := int(r.headers[i].length) - virtioHeader
	if n < frameHeader+header.IPv4MinimumSize || n > frameRoom {
		return nil
	}
	finishChecksum(r.virtio[i][:], r.rooms[i].AsSlice()[:n])
	var view *buffer.View
	if n <= shortFrame {
		view = buffer.NewViewWithData(r.rooms[i].AsSlice()[:n])
	} else {
		view = r.rooms[i]
		view.CapLength(n)
		r.renew(i)
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(view)})
	pkt.LinkHeader().Consume(frameHeader) // there are enough bytes: n was checked
	pkt.NetworkProtocolNumber = header.IPv4ProtocolNumber
	return pkt
}

// finishChecksum does the work of a network card for the kernel that sent the frame: within one machine a checksum
// may be unfinished. netstack then checks all of it.
func finishChecksum(virtio, frame []byte) {
	if virtio[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM == 0 {
		return
	}
	start := int(binary.NativeEndian.Uint16(virtio[6:]))
	at := start + int(binary.NativeEndian.Uint16(virtio[8:]))
	if at+2 > len(frame) {
		return // the checksum is wrong, and netstack drops the packet
	}
	// The field contains the sum of the pseudo header, which is so included.
	sum := ^checksum.Checksum(frame[start:], 0)
	if sum == 0 {
		sum = 0xffff // for UDP, 0 would mean: no checksum
	}
	binary.BigEndian.PutUint16(frame[at:], sum)
}
