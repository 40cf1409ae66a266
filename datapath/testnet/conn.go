package testnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SocketOption sets an option of a socket before it connects or listens.
type SocketOption func(fd int) error

// WindowScale makes the socket announce this window scale (0 .. 14), as far as net.ipv4.tcp_rmem of its
// namespace allows it. The kernel chooses the scale that the largest window needs.
func WindowScale(shift int) SocketOption {
	return func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, 65535<<shift)
	}
}

// Congestion names the socket's congestion control. The default of a Pair is cubic.
func Congestion(name string) SocketOption {
	return func(fd int) error { return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name) }
}

// Pair is a TCP connection and both its ends.
type Pair struct {
	Client *net.TCPConn // in the sender's namespace: it connected
	Server *net.TCPConn // in the receiver's
}

func options(list []SocketOption) []SocketOption {
	return append([]SocketOption{Congestion("cubic")}, list...)
}

// Listen listens in the receiver's namespace for the length of the test.
func (p *Path) Listen(tb testing.TB, ip net.IP, list ...SocketOption) *net.TCPListener {
	tb.Helper()
	var l net.Listener
	p.Receiver.Must(tb, func() (err error) {
		c := net.ListenConfig{Control: control(all(options(list)))}
		c.SetMultipathTCP(false)
		l, err = c.Listen(context.Background(), "tcp", net.JoinHostPort(ip.String(), "0"))
		return err
	})
	tb.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

// Dial connects from the sender's namespace to l, for the length of the test at most.
func (p *Path) Dial(tb testing.TB, l *net.TCPListener, list ...SocketOption) *Pair {
	tb.Helper()
	pair := &Pair{}
	p.Sender.Must(tb, func() error {
		d := net.Dialer{Control: control(all(options(list))), Timeout: Patience}
		c, err := d.DialContext(context.Background(), "tcp", l.Addr().String())
		if err == nil {
			pair.Client = c.(*net.TCPConn)
		}
		return err
	})
	tb.Cleanup(pair.Close)
	if err := l.SetDeadline(time.Now().Add(Patience)); err != nil {
		tb.Fatal(err)
	}
	c, err := l.AcceptTCP()
	if err != nil {
		tb.Fatal(err)
	}
	pair.Server = c
	return pair
}

func all(list []SocketOption) func(fd int) error {
	return func(fd int) error {
		for _, set := range list {
			if err := set(fd); err != nil {
				return err
			}
		}
		return nil
	}
}

// Close closes both ends.
func (c *Pair) Close() {
	if c.Client != nil {
		_ = c.Client.Close()
	}
	if c.Server != nil {
		_ = c.Server.Close()
	}
}

// Send sends this many bytes from one end, reads them at the other, and waits until they are acknowledged. It
// clears the deadlines of both ends.
func Send(tb testing.TB, from, to *net.TCPConn, bytes int) {
	tb.Helper()
	limit := func(deadline time.Time) error {
		return errors.Join(from.SetWriteDeadline(deadline), to.SetReadDeadline(deadline))
	}
	err := limit(time.Now().Add(Patience))
	if err == nil {
		done := make(chan error, 1)
		go func() {
			_, err := io.CopyN(from, Zeros{}, int64(bytes))
			done <- err
		}()
		_, err = io.CopyN(io.Discard, to, int64(bytes))
		err = errors.Join(err, <-done, limit(time.Time{}))
	}
	if err != nil {
		tb.Fatalf("%d bytes from %s to %s: %v", bytes, from.LocalAddr(), to.LocalAddr(), err)
	}
	// The kernel would delay the acknowledgement of the last segment.
	Option(tb, to, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) })
	Until(tb, fmt.Sprintf("all %d bytes from %s are acknowledged", bytes, from.LocalAddr()), func() bool {
		i := ReadTCPInfo(tb, from)
		return i.Unacked == 0 && i.Notsent_bytes == 0
	})
}

// SendUnread writes bytes of zeros at one end, waits until all are acknowledged, and only then reads them at the other end.
// The buffers of both must hold them.
func SendUnread(tb testing.TB, from, to *net.TCPConn, bytes int) {
	tb.Helper()
	err := errors.Join(from.SetWriteDeadline(time.Now().Add(Patience)), to.SetReadDeadline(time.Now().Add(2*Patience)))
	if err == nil {
		_, err = io.CopyN(from, Zeros{}, int64(bytes))
	}
	if err == nil {
		Until(tb, fmt.Sprintf("all %d bytes from %s are acknowledged", bytes, from.LocalAddr()), func() bool {
			i := ReadTCPInfo(tb, from)
			return i.Unacked == 0 && i.Notsent_bytes == 0
		})
		_, err = io.CopyN(io.Discard, to, int64(bytes))
	}
	err = errors.Join(err, from.SetWriteDeadline(time.Time{}), to.SetReadDeadline(time.Time{}))
	if err != nil {
		tb.Fatalf("%d bytes from %s to %s: %v", bytes, from.LocalAddr(), to.LocalAddr(), err)
	}
}

// Option sets an option of a connection's socket.
func Option(tb testing.TB, c *net.TCPConn, set SocketOption) {
	tb.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = control(set)("", "", raw)
	}
	if err != nil {
		tb.Fatalf("option of the socket %s: %v", c.LocalAddr(), err)
	}
}

// TCPInfo is the kernel's TCP_INFO, with the window scales of both ends, which x/sys leaves out.
type TCPInfo struct {
	unix.TCPInfo
	PeerScale, OwnScale uint8 // tcpi_snd_wscale, tcpi_rcv_wscale
}

// ReadTCPInfo reads TCP_INFO of a connection.
func ReadTCPInfo(tb testing.TB, c *net.TCPConn) (info TCPInfo) {
	tb.Helper()
	Option(tb, c, func(fd int) error {
		i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return err
		}
		info.TCPInfo = *i
		// Two bit fields of 4 follow the options, where x/sys has padding.
		scales := (*[8]byte)(unsafe.Pointer(i))[6]
		info.PeerScale, info.OwnScale = scales&15, scales>>4
		return nil
	})
	return info
}

// AddrPort converts an address to package netip's, IPv4 addresses to IPv4.
func AddrPort(a net.Addr) netip.AddrPort {
	p := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

// Patience is how long a test waits for an event. Only a failure takes so long. On a busy machine, or with a quota of
// processor time, an event that needs 10 ms may take seconds, and one that needs seconds minutes.
const Patience = 10 * time.Minute

const (
	lookLeast = 200 * time.Microsecond // between two looks at a condition
	lookMost  = 10 * time.Millisecond  // if looks cost nothing
	lastWords = 5 * time.Second        // of a test before its deadline, to report what it waited for
)

// looks paces the looks at a condition. The looks take at most half of a processor, which others need, and notice the
// condition late by at most a sixteenth of the wait.
type looks struct{ began, ended, end time.Time }

func newLooks(tb testing.TB) *looks {
	now := time.Now()
	l := &looks{began: now, ended: now, end: now.Add(Patience)}
	if t, ok := tb.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := t.Deadline(); ok && end.Add(-lastWords).Before(l.end) {
			l.end = end.Add(-lastWords)
		}
	}
	return l
}

// wait waits until the time of the next look. It reports whether Patience, or the test's time, is over.
func (l *looks) wait() (over bool) {
	now := time.Now()
	if now.After(l.end) {
		return true
	}
	waited, cost := now.Sub(l.began), now.Sub(l.ended)
	<-time.After(max(lookLeast, cost, min(waited/16, lookMost)))
	l.ended = time.Now()
	return false
}

// Until waits for a condition, and fails if it does not become true within Patience.
func Until(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for l := newLooks(tb); !condition(); {
		if l.wait() {
			tb.Fatalf("not within %v: %s", time.Since(l.began).Round(time.Second), what)
		}
	}
}
