package testnet

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
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

// Flood is a UDP flow that sends until the test ends.
type Flood struct{ last, longest atomic.Int64 } // the last round, and the longest time between two, in ns

// Flood sends so many packets of this many payload bytes every 10 ms. Packets that a full queue refuses are lost.
func (u *UDP) Flood(tb testing.TB, packets, bytes int) *Flood {
	f := &Flood{}
	f.last.Store(sinceBegan())
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		round := time.NewTicker(10 * time.Millisecond)
		defer round.Stop()
		b := make([]byte, bytes)
		for {
			for range packets {
				_, _ = u.Sender.WriteTo(b, u.To)
			}
			now := sinceBegan()
			f.longest.Store(max(f.longest.Load(), now-f.last.Swap(now)))
			select {
			case <-end:
				return
			case <-round.C:
			}
		}
	}()
	tb.Cleanup(func() { close(end); <-ended })
	return f
}

// Longest returns the longest time between two rounds since the last call.
func (f *Flood) Longest() time.Duration {
	longest := f.longest.Swap(0)
	return time.Duration(max(longest, sinceBegan()-f.last.Load()))
}

// Rate measures a counter of bytes over a time, and returns its rate in bit/s.
func Rate(tb testing.TB, over time.Duration, bytes func() uint64) float64 {
	tb.Helper()
	from, at := reading(tb, bytes)
	Until(tb, "the time is over", func() bool { return time.Since(at) >= over })
	to, end := reading(tb, bytes)
	return float64(to-from) * 8 / end.Sub(at).Seconds()
}

// reading reads a counter, and returns when it had this value, within a millisecond. On a busy machine a reading can take
// far longer, and is repeated.
func reading(tb testing.TB, counter func() uint64) (value uint64, at time.Time) {
	tb.Helper()
	const longest = 2 * time.Millisecond
	Until(tb, "a reading takes less than "+longest.String(), func() bool {
		begin := time.Now()
		value = counter()
		took := time.Since(begin)
		at = begin.Add(took / 2)
		return took < longest
	})
	return value, at
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
