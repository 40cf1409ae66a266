package traffic

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is one end of a TCP connection, served by Go's poller.
//
// A socket belongs for ever to the network namespace it was made in, and can be used from any
// thread. Received bytes are thrown away in the kernel (MSG_TRUNC): the programs count them, and
// neither a buffer nor a copy is needed.
type socket struct {
	file *os.File
	raw  syscall.RawConn
	rtos atomic.Int32 // as last seen

	// discard's arguments and results; kept here so that a read allocates nothing.
	want    int
	got     int
	readErr error
	reader  func(fd uintptr) bool
}

// newSocket takes over fd, which must be non-blocking and connected or connecting.
func newSocket(fd int) (*socket, error) {
	file := os.NewFile(uintptr(fd), "tcp")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	s := &socket{file: file, raw: raw}
	s.rtos.Store(-1)
	s.reader = s.tryDiscard
	return s, nil
}

func (s *socket) tryDiscard(fd uintptr) bool {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, fd, 0, uintptr(s.want), unix.MSG_TRUNC, 0, 0)
		switch errno {
		case 0:
			s.got, s.readErr = int(n), nil
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		default:
			s.got, s.readErr = 0, errno
		}
		return true
	}
}

// discard waits for data and throws away at most want bytes of it; io.EOF when the peer has
// closed. Only one goroutine at a time may read.
func (s *socket) discard(want int) (int, error) {
	s.want = want
	if err := s.raw.Read(s.reader); err != nil {
		return 0, err
	}
	if s.readErr == nil && s.got == 0 {
		return 0, io.EOF
	}
	return s.got, s.readErr
}

// discardAll throws away exactly n bytes.
func (s *socket) discardAll(n int) error {
	for n > 0 {
		got, err := s.discard(n)
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

// drain throws data away until the peer closes.
func (s *socket) drain() error {
	for {
		if _, err := s.discard(maxRead); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// control runs f on the descriptor; nothing happens once the socket is closed.
func (s *socket) control(f func(fd int)) {
	// The only error says that the socket is closed.
	_ = s.raw.Control(func(fd uintptr) { f(int(fd)) })
}

// timeouts is the number of RTO events of this end so far, also after close; -1: not known.
func (s *socket) timeouts() int {
	s.control(func(fd int) { s.rtos.Store(int32(totalRTO(fd))) })
	return int(s.rtos.Load())
}

// finish says that nothing more will be sent.
func (s *socket) finish() {
	s.control(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) }) // fails only if the connection is gone
}

// close ends the connection in the normal way (FIN).
func (s *socket) close() {
	s.timeouts()
	s.file.Close()
}

// abort ends the connection with a reset and wakes whoever reads or writes.
func (s *socket) abort() {
	s.timeouts()
	s.control(func(fd int) { lingerZero(fd) })
	s.file.Close()
}

// lingerZero makes close() send a reset.
func lingerZero(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // cannot fail on a socket
}

// maxRead bounds one discarding read: far above any receive buffer.
const maxRead = 1 << 30

// newTCP makes a non-blocking TCP socket in the namespace of the calling thread.
func newTCP() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, err
	}
	// Nagle's algorithm would hold the last part of a flow back until all before it is
	// acknowledged; servers of short transfers turn it off, too.
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	in, ok := sa.(*unix.SockaddrInet4)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
}

// localAddr is the address a socket is bound to.
func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return addrPort(sa), nil
}
