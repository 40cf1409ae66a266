package traffic

import (
	"io"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is one end of a TCP connection of the kernel, through Go's poller.
//
// A socket belongs permanently to the network namespace where it was opened, and can be used from any thread. The
// kernel discards received bytes (MSG_TRUNC): the programs only count them, so no buffer and no copy is needed.
type socket struct {
	file *os.File
	raw  syscall.RawConn
	last atomic.Pointer[counts] // last known values

	// discard's arguments and results; fields, so that a read allocates nothing.
	want    int
	got     int
	readErr error
	reader  func(fd uintptr) bool
}

// newSocket takes ownership of fd, which must be non-blocking and connected or connecting.
func newSocket(fd int) (*socket, error) {
	file := os.NewFile(uintptr(fd), "tcp")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	s := &socket{file: file, raw: raw}
	s.last.Store(&unknownCounts)
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

// connected waits until the connection is open and returns that time, the earliest for a first write. Not ok: it
// failed, or a SYN was lost, so that the time is not the program's.
func (s *socket) connected(c clock) (now int64, ok bool) {
	err := s.raw.Write(func(fd uintptr) bool {
		_, _, errno := unix.Syscall6(unix.SYS_SENDTO, fd, 0, 0, 0, 0, 0) // sends no byte: it only waits
		return errno != unix.EAGAIN
	})
	return c.now(), err == nil && s.counts().timeouts == 0
}

// Write is end.Write.
func (s *socket) Write(p []byte) (int, error) { return s.file.Write(p) }

// StopWriting is end.StopWriting.
func (s *socket) StopWriting() {
	// A time in the past: it wakes a writer, and later writes fail. It fails only if the socket is closed.
	_ = s.file.SetWriteDeadline(time.Unix(1, 0))
}

// limitUnsent limits the data that the kernel accepts beyond what it has sent. It is an optimisation: without it a
// stopped flow takes longer to drain.
func (s *socket) limitUnsent(bytes int) {
	s.control(func(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes) })
}

// Discard is end.Discard.
func (s *socket) Discard(want int) (int, error) {
	s.want = want
	if err := s.raw.Read(s.reader); err != nil {
		return 0, err
	}
	if s.readErr == nil && s.got == 0 {
		return 0, io.EOF
	}
	return s.got, s.readErr
}

// control runs f on the descriptor; it does nothing once the socket is closed.
func (s *socket) control(f func(fd int)) {
	// The only error means that the socket is closed.
	_ = s.raw.Control(func(fd uintptr) { f(int(fd)) })
}

// counts is end.counts.
func (s *socket) counts() counts {
	s.control(func(fd int) { now := readCounts(fd); s.last.Store(&now) })
	return *s.last.Load()
}

// CloseWrite is end.CloseWrite.
func (s *socket) CloseWrite() {
	s.control(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) }) // fails only if the connection is gone
}

// Close is end.Close.
func (s *socket) Close() {
	s.counts()
	s.file.Close()
}

// Abort is end.Abort.
func (s *socket) Abort() {
	s.counts()
	s.control(func(fd int) { lingerZero(fd) })
	s.file.Close()
}

// lingerZero makes close() send a reset.
func lingerZero(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // cannot fail on a socket
}

// maxRead limits one discarding read: far above any receive buffer.
const maxRead = 1 << 30

// newTCP opens a non-blocking TCP socket in the namespace of the calling thread.
func newTCP() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, err
	}
	// Nagle's algorithm would delay the last part of a flow until everything before it is acknowledged; servers of
	// short transfers turn it off, too.
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

// localAddr returns the address that a socket is bound to.
func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return addrPort(sa), nil
}
