package testnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// Raw sends and receives whole frames at a device, around the network stack (AF_PACKET).
type Raw struct {
	fd      int
	ifindex int
}

// Captured is a frame that arrived at a device.
type Captured struct {
	Data []byte
	// Tag is the VLAN tag in the packet's metadata; 0: none. Kernels move the outer tag there when a frame
	// arrives.
	TPID, TCI uint16
	// Partial reports that the transport checksum was not yet complete (CHECKSUM_PARTIAL).
	Partial bool
}

const (
	ethPAll          = 0x0300 // ETH_P_ALL in network order
	tpStatusCsumNot  = 1 << 3 // TP_STATUS_CSUMNOTREADY
	tpStatusVLAN     = 1 << 4 // TP_STATUS_VLAN_VALID
	sizeofTPacketAux = 20
	captureBuffer    = 64 << 20
)

// NewRaw opens a raw socket at the port's device for the length of the test.
func NewRaw(tb testing.TB, p attach.PortRef) *Raw {
	tb.Helper()
	r := &Raw{ifindex: p.Ifindex}
	err := p.In(func() (err error) {
		// Without a protocol it receives nothing: with one it would receive frames of all devices until it is bound.
		r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		tv := unix.NsecToTimeval(int64(Patience))
		return errors.Join(
			unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer),
			unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
			unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: ethPAll, Ifindex: p.Ifindex}),
		)
	})
	if err != nil {
		tb.Fatalf("raw socket at %s: %v", p.Name, err)
	}
	tb.Cleanup(func() { closeFD(r.fd) })
	return r
}

// Send sends a frame out of the device.
func (r *Raw) Send(tb testing.TB, frame []byte) {
	tb.Helper()
	if err := r.TrySend(frame); err != nil {
		tb.Fatal(err)
	}
}

// TrySend sends a frame out of the device. Goroutines other than the test's own use it.
func (r *Raw) TrySend(frame []byte) error {
	to := &unix.SockaddrLinklayer{Ifindex: r.ifindex, Halen: 6}
	if err := unix.Sendto(r.fd, frame, 0, to); err != nil {
		return fmt.Errorf("send a frame of %d bytes: %w", len(frame), err)
	}
	return nil
}

// Receive returns the next received frame for which wanted returns true.
func (r *Raw) Receive(tb testing.TB, wanted func(frame []byte) bool) Captured {
	tb.Helper()
	buf, oob := make([]byte, 1<<16), make([]byte, 256)
	for {
		n, oobn, _, from, err := unix.Recvmsg(r.fd, buf, oob, 0)
		if errors.Is(err, unix.EINTR) { // a call with SO_RCVTIMEO is not restarted after a signal
			continue
		}
		if err != nil {
			tb.Fatalf("no frame within %s: %v", Patience, err)
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING || !wanted(buf[:n]) {
			continue
		}
		c := Captured{Data: append([]byte(nil), buf[:n]...)}
		if err := c.readAux(oob[:oobn]); err != nil {
			tb.Fatal(err)
		}
		return c
	}
}

// readAux reads struct tpacket_auxdata.
func (c *Captured) readAux(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("control message of a captured frame: %w", err)
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < sizeofTPacketAux {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data)
		c.Partial = status&tpStatusCsumNot != 0
		if status&tpStatusVLAN != 0 {
			c.TCI = binary.NativeEndian.Uint16(m.Data[16:])
			c.TPID = binary.NativeEndian.Uint16(m.Data[18:])
		}
	}
	return nil
}
