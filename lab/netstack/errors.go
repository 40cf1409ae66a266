package netstack

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// goError returns an error in the form of the kernel's sockets, so that users of both kinds of guest see the same
// errors.
func goError(err tcpip.Error) error {
	switch err.(type) {
	case nil:
		return nil
	case *tcpip.ErrConnectionReset:
		return unix.ECONNRESET
	case *tcpip.ErrConnectionRefused:
		return unix.ECONNREFUSED
	case *tcpip.ErrConnectionAborted, *tcpip.ErrAborted:
		return unix.ECONNABORTED
	case *tcpip.ErrTimeout:
		return unix.ETIMEDOUT
	case *tcpip.ErrClosedForReceive:
		return io.EOF
	case *tcpip.ErrClosedForSend:
		return unix.EPIPE
	case *tcpip.ErrNotConnected:
		return unix.ENOTCONN
	case *tcpip.ErrPortInUse:
		return unix.EADDRINUSE
	case *tcpip.ErrNoPortAvailable, *tcpip.ErrBadLocalAddress:
		return unix.EADDRNOTAVAIL
	case *tcpip.ErrHostUnreachable:
		return unix.EHOSTUNREACH
	case *tcpip.ErrNetworkUnreachable:
		return unix.ENETUNREACH
	case *tcpip.ErrNoBufferSpace:
		return unix.ENOBUFS
	case *tcpip.ErrWouldBlock:
		return unix.EAGAIN
	}
	return errors.New(err.String())
}
