package lab

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/experiment"
	"weir/law"
	"weir/law/gcc"
	"weir/law/mark"
)

// udpFlood sends UDP from one guest to another until stop, and counts the bytes that arrive.
type udpFlood struct {
	at        netip.AddrPort // of the receiver
	received  atomic.Int64   // bytes
	datagrams atomic.Int64   // of 1400 bytes, each 5 ms
	in, out   *net.UDPConn
	ended     chan error
}

// newUDPFlood sends so many datagrams each 5 ms with this TOS. 18 are 40 Mbit/s.
func newUDPFlood(l *Lab, from, to string, datagrams int64, tos int) (*udpFlood, error) {
	f := &udpFlood{ended: make(chan error, 2)}
	f.datagrams.Store(datagrams)
	err := l.Enter(to, func() (err error) {
		f.in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(l.Addr(to, 0), 0)))
		return err
	})
	if err != nil {
		return nil, err
	}
	f.at = netip.MustParseAddrPort(f.in.LocalAddr().String())
	err = l.Enter(from, func() (err error) {
		f.out, err = net.DialUDP("udp4", &net.UDPAddr{IP: l.Addr(from, 0).AsSlice()}, net.UDPAddrFromAddrPort(f.at))
		return err
	})
	if err != nil {
		return nil, errors.Join(err, f.in.Close())
	}
	if err := f.setTOS(tos); err != nil {
		return nil, errors.Join(err, f.out.Close(), f.in.Close())
	}
	go f.receive()
	go f.send()
	return f, nil
}

func (f *udpFlood) receive() {
	b := make([]byte, 2000)
	for {
		n, err := f.in.Read(b)
		if err != nil {
			f.ended <- err
			return
		}
		f.received.Add(int64(n))
	}
}

func (f *udpFlood) send() {
	tick, b := time.NewTicker(5*time.Millisecond), make([]byte, 1400)
	defer tick.Stop()
	for range tick.C {
		for range f.datagrams.Load() {
			if _, err := f.out.Write(b); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				f.ended <- err
				return
			}
		}
	}
}

// setTOS sets the TOS, with the ECN field, of what is sent from now on.
func (f *udpFlood) setTOS(tos int) error {
	return control(f.out, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, tos) })
}

func (f *udpFlood) stop() error {
	err := errors.Join(f.out.Close(), f.in.Close())
	for range 2 {
		if e := <-f.ended; !errors.Is(e, net.ErrClosed) && !errors.Is(e, io.EOF) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// sharedLink is a lab of two senders and a receiver with slow links, so that a busy machine fills them, whose law runs.
func sharedLink(t *testing.T, name string, params any, promised ...experiment.VMGuarantee) (l *Lab, stop func() error) {
	t.Helper()
	g := &graphBuilder{hypervisors: true}
	g.sw("switch")
	for _, host := range []string{"sender1", "sender2", "receiver1"} {
		g.host(host, "switch", 20*mbit)
	}
	return marked(t, name, params, g, 15_000, promised...)
}

// marked is a lab with agents whose switch marks above a threshold in bytes, and whose law runs.
func marked(tb testing.TB, name string, params any, g *graphBuilder, threshold int64, promised ...experiment.VMGuarantee) (l *Lab, stop func() error) {
	tb.Helper()
	l = upWithAgents(tb, name, g, testAgent(tb))
	r := &experiment.Run{
		Scheme: "s", Config: *g.config(), Laws: []string{name, mark.ECN}, At: []string{"switch"},
		Params: map[string]any{name: params, mark.ECN: mark.Params{Threshold: law.Limit{N: threshold}, NotECT: mark.Drop}},
	}
	r.Config.Guarantees = promised
	if err := testWorks.Check(r); err != nil {
		tb.Fatal(err)
	}
	stop, err := l.Enforce(tb.Context(), r, testWorks)
	if err != nil {
		tb.Fatal(err)
	}
	return l, stop
}

// shareOfTCP sends so many bytes from client to server, next to UDP, and returns TCP's part of all that came.
func shareOfTCP(t *testing.T, client, server *net.TCPConn, udp *atomic.Int64, bytes int64) (share float64, err error) {
	t.Helper()
	before, begun := udp.Load(), time.Now()
	if err := send(client, server, bytes); err != nil {
		return 0, err
	}
	all := float64(bytes + udp.Load() - before)
	share = float64(bytes) / all
	t.Logf("TCP has %.0f %% of %.1f Mbit/s", 100*share, all*8/1e6/time.Since(begun).Seconds())
	return share, nil
}

// tcpBesideUDP sends by TCP next to a flood of UDP, both of the same link. TCP must have a third of what comes, and half is right. then runs
// while both go on.
func tcpBesideUDP(t *testing.T, l *Lab, then func() error) error {
	t.Helper()
	udp, err := newUDPFlood(l, "sender2", "receiver1", 18, 0)
	if err != nil {
		return err
	}
	err = dial(l, "sender1", "receiver1", 0, func(client, server *net.TCPConn) error {
		const first, bytes = 800_000, 2_000_000 // 2.2 s at half of the link
		if err := send(client, server, first); err != nil {
			return err
		}
		share, err := shareOfTCP(t, client, server, &udp.received, bytes)
		if err != nil {
			return err
		}
		if share < 0.35 {
			t.Errorf("TCP has %.0f %% of what came, want a half", 100*share)
		}
		return then()
	})
	return errors.Join(err, udp.stop())
}

// A guest that floods a link with UDP leaves another guest's TCP its share: by marks of the switch, a controller, and the shapers of both
// hypervisors.
func TestGCC_TCPHasItsShare(t *testing.T) {
	p := *gcc.Default()
	p.Gain, p.Timeout, p.MinRate, p.Increase, p.FastIncrease = 0.2, 6e6, 200e3, 6_500, 52_500
	l, stop := sharedLink(t, "gcc", p)
	err := tcpBesideUDP(t, l, func() error { return nil })
	if err := errors.Join(err, stop()); err != nil {
		t.Fatal(err)
	}
}

// A file's guarantees are policies in the store of the lab's bus. When the law runs, the VM's host has them, and no other host.
func TestGCC_GuaranteesArePolicies(t *testing.T) {
	l, stop := sharedLink(t, "gcc", *gcc.Default(), experiment.VMGuarantee{VM: "sender2", Rate: 12e6, Weight: 3})
	for guest, want := range map[string]int{"sender1": 0, "sender2": 1} {
		if got := statusOf(t, l, guest).Host.Half.Guarantees; got != want {
			t.Errorf("the host of %s has %d guarantees, want %d", guest, got, want)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
