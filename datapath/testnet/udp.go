package testnet

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/attach"
)

// UDP is a one-way UDP flow over a Path.
type UDP struct {
	Sender, Receiver net.PacketConn
	To               net.Addr
}

// NewUDP opens a flow from sender to receiver. tos (DSCP and ECN) is the TOS byte or traffic class of its
// packets.
func (p *Path) NewUDP(tb testing.TB, ip net.IP, tos int) *UDP {
	tb.Helper()
	u := &UDP{}
	p.Receiver.Must(tb, func() (err error) {
		c := net.ListenConfig{Control: control(func(fd int) error {
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		})}
		u.Receiver, err = c.ListenPacket(context.Background(), "udp", net.JoinHostPort(ip.String(), "0"))
		return err
	})
	p.Sender.Must(tb, func() (err error) {
		c := net.ListenConfig{Control: control(func(fd int) error {
			if ip.To4() != nil {
				return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, tos)
			}
			return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, tos)
		})}
		from := SenderIPv4
		if ip.To4() == nil {
			from = SenderIPv6
		}
		u.Sender, err = c.ListenPacket(context.Background(), "udp", net.JoinHostPort(from.String(), "0"))
		return err
	})
	u.To = u.Receiver.LocalAddr()
	tb.Cleanup(func() { _, _ = u.Sender.Close(), u.Receiver.Close() })
	return u
}

func control(f func(fd int) error) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = f(int(fd)) }), err)
	}
}

// Send sends packets of this many payload bytes as fast as possible.
func (u *UDP) Send(tb testing.TB, packets, bytes int) {
	tb.Helper()
	b := make([]byte, bytes)
	for range packets {
		// A queue at the sender that drops returns an error, although the packet was sent.
		if _, err := u.Sender.WriteTo(b, u.To); err != nil && !errors.Is(err, unix.ENOBUFS) {
			tb.Fatal(err)
		}
	}
}

// Arrived counts the packets that arrived since the last count. It waits for wanted of them, and then checks
// whether there are more.
func (u *UDP) Arrived(tb testing.TB, wanted int) (n int) {
	tb.Helper()
	b := make([]byte, 1<<16)
	for {
		// A deadline in the past reads nothing, even what has arrived: set one in the future.
		wait := 20 * time.Millisecond
		if n < wanted {
			wait = Patience
		}
		if err := u.Receiver.SetReadDeadline(time.Now().Add(wait)); err != nil {
			tb.Fatal(err)
		}
		_, _, err := u.Receiver.ReadFrom(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return n
		}
		if err != nil {
			tb.Fatal(err)
		}
		n++
	}
}

// Quiet waits until the queues of all given ports are empty and no packet passes them.
func Quiet(tb testing.TB, ports ...attach.PortRef) {
	tb.Helper()
	const same = 50 // readings in a row
	deadline := time.Now().Add(Patience)
	for _, p := range ports {
		var last attach.RootQueue
		for n := 0; n < same; n++ {
			q := Queue(tb, p)
			if q != last || q.BacklogBytes != 0 {
				last, n = q, 0
			}
			if time.Now().After(deadline) {
				tb.Fatalf("%s does not fall silent: %+v", p.Name, q)
			}
		}
	}
}

// Queue reads a port's root queue.
func Queue(tb testing.TB, p attach.PortRef) (q attach.RootQueue) {
	tb.Helper()
	err := p.In(func() (err error) {
		q, err = attach.ReadRootQueue(p.Ifindex)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return q
}
