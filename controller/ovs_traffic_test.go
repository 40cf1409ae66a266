package controller

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/law/forward"
)

// asks sends a datagram from one host to another and waits for it to come back.
func (r *racks) asks(a, b *host, wait time.Duration) error {
	var c *net.UDPConn
	if err := a.ns.Enter(func() (err error) {
		c, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: b.ip, Port: 7})
		return err
	}); err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	var buf [8]byte
	_, err := c.Read(buf[:])
	return err
}

// reach waits until every host reaches every other one, and gives how many had to ask again.
func (r *racks) reach(tb testing.TB) (again int) { return r.reachWithin(tb, 2*time.Second) }

// reachWithin is reach with the time that an answer may take.
func (r *racks) reachWithin(tb testing.TB, within time.Duration) (again int) {
	tb.Helper()
	var wait sync.WaitGroup
	var mu sync.Mutex
	for _, a := range r.hosts {
		wait.Go(func() {
			for _, b := range r.hosts {
				for end := time.Now().Add(testnet.Patience); a != b; {
					err := r.asks(a, b, within)
					if err == nil {
						break
					}
					mu.Lock()
					again++
					mu.Unlock()
					if time.Now().After(end) {
						tb.Errorf("%v does not reach %v: %v", a.ip, b.ip, err)
						return
					}
				}
			}
		})
	}
	wait.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
	return again
}

// transfer sends 1 MB over one connection from a given address.
func (r *racks) transfer(tb testing.TB, a *host, src *net.TCPAddr, l *net.TCPListener) {
	tb.Helper()
	const bytes = 1 << 20
	done := make(chan error, 1)
	go func() {
		c, err := l.AcceptTCP()
		if err == nil {
			defer c.Close()
			_, err = io.CopyN(io.Discard, c, bytes)
		}
		done <- err
	}()
	var c *net.TCPConn
	a.ns.Must(tb, func() (err error) {
		c, err = net.DialTCP("tcp4", src, l.Addr().(*net.TCPAddr))
		return err
	})
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
		tb.Fatal(err)
	}
	if _, err := c.Write(make([]byte, bytes)); err != nil {
		tb.Fatal(err)
	}
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
}

const spreadFlows = 3000 // connections that show how a leaf spreads them

// spineTaps opens a tap at each port of the first leaf to a spine.
func (r *racks) spineTaps(tb testing.TB) (taps []*testnet.Tap) {
	tb.Helper()
	for s := range r.spines {
		port := attach.PortRef{Name: leafSpine(1, s+1), Enter: r.fabric.Enter}
		r.fabric.Must(tb, func() error {
			link, err := netlink.LinkByName(port.Name)
			if err == nil {
				port.Ifindex = link.Attrs().Index
			}
			return err
		})
		taps = append(taps, testnet.NewTap(tb, port))
	}
	return taps
}

// connections opens this many connections to a port where nobody listens, and counts them by the spine that their SYNs
// leave the first leaf for. A SYN that was sent again counts once. On a busy machine a link can time out between a SYN and
// its repetition, which then leaves for another spine: such a connection counts at the spine that comes first in the list.
func (r *racks) connections(tb testing.TB, a, b *host, firstPort int) (got []int) {
	tb.Helper()
	taps := r.spineTaps(tb)
	dst := &net.TCPAddr{IP: b.ip, Port: 9000}
	for i := range spreadFlows {
		a.ns.Must(tb, func() error {
			c, err := net.DialTCP("tcp4", &net.TCPAddr{IP: a.ip, Port: firstPort + i}, dst)
			if errors.Is(err, syscall.ECONNREFUSED) {
				return nil
			}
			if err == nil {
				_ = c.Close()
				err = errors.New("somebody listens")
			}
			return err
		})
	}
	seen := map[netip.AddrPort]bool{}
	for _, tap := range taps {
		before := len(seen)
		tap.Each(tb, func(s *testnet.Segment) {
			if s.Out && s.To == testnet.AddrPort(dst) && s.Flags&testnet.SYN != 0 {
				seen[s.From] = true
			}
		})
		got = append(got, len(seen)-before)
	}
	return got
}

// pinnedTransfer sends 1 MB over a pinned connection. It returns how many of its segments went up and came down by each
// spine, seen from the sender's leaf.
func (r *racks) pinnedTransfer(tb testing.TB, seed int) (up, down []int) {
	tb.Helper()
	a, z := r.hosts[seed%r.perLeaf], r.hosts[r.perLeaf+seed/7%r.perLeaf]
	var l *net.TCPListener
	z.ns.Must(tb, func() (err error) { l, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: z.ip}); return err })
	defer l.Close()
	src := &net.TCPAddr{IP: a.ip, Port: 20000 + seed%10000}
	r.pin(tb, src.String(), l.Addr().String())
	taps := r.spineTaps(tb)
	r.transfer(tb, a, src, l)
	up, down = make([]int, len(taps)), make([]int, len(taps))
	for s, tap := range taps {
		tap.Each(tb, func(g *testnet.Segment) {
			switch own := testnet.AddrPort(src); {
			case g.Out && g.From == own:
				up[s]++
			case !g.Out && g.To == own:
				down[s]++
			}
		})
	}
	return up, down
}

// pin has the controller pin a connection and waits until it is, also in the caches of Open vSwitch. On a busy machine the controller forgets
// hosts for a moment when their switch is late, and their pins with them: so it asks again.
func (r *racks) pin(tb testing.TB, src, dst string) {
	tb.Helper()
	testnet.Until(tb, "the path of "+src, func() bool {
		if err := Pin(tb.Context(), "test", r.fabric.Enter, PinRequest{Proto: protoTCP, Src: src, Dst: dst, IdleSeconds: 3600}); err != nil {
			return false
		}
		s := r.status(tb)
		return s != nil && s.Forward.Settled && slices.ContainsFunc(s.Forward.Pins, func(p forward.PinStatus) bool {
			return strings.Contains(p.Flow, fmt.Sprintf("%s > %s", src, dst)) && len(p.Path) == 3
		})
	})
	// A switch has confirmed its tables, but its cache is updated only in its next round.
	if out, err := r.Env(exec.Command("ovs-appctl", "-t", r.Path("vswitchd.ctl"), "revalidator/wait")).CombinedOutput(); err != nil {
		tb.Fatalf("ovs-appctl revalidator/wait: %v: %s", err, out)
	}
}
