package controller

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// connections opens a thousand connections to a port where nobody listens, and counts the frames of each
// uplink of the first leaf. Probes of links are among them, a few.
func (r *racks) connections(tb testing.TB, a, b *host, firstPort int) [2]uint64 {
	tb.Helper()
	var before, got [2]uint64
	for s := range before {
		before[s] = r.sent(tb, leafSpine(1, s+1))
	}
	for i := range spreadFlows {
		a.ns.Must(tb, func() error {
			c, err := net.DialTCP("tcp4", &net.TCPAddr{IP: a.ip, Port: firstPort + i}, &net.TCPAddr{IP: b.ip, Port: 9000})
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
	testnet.Until(tb, "all frames", func() bool {
		for s := range got {
			got[s] = r.sent(tb, leafSpine(1, s+1)) - before[s]
		}
		return got[0]+got[1] >= spreadFlows
	})
	return got
}

// pinnedTransfer sends 1 MB over a pinned connection, and gives how many frames went up and came down by each
// spine, seen from the sender's leaf; probes of links are among them.
func (r *racks) pinnedTransfer(tb testing.TB, seed int) (up, down []uint64) {
	tb.Helper()
	a, z := r.hosts[seed%r.perLeaf], r.hosts[r.perLeaf+seed/7%r.perLeaf]
	var l *net.TCPListener
	z.ns.Must(tb, func() (err error) { l, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: z.ip}); return err })
	defer l.Close()
	src := &net.TCPAddr{IP: a.ip, Port: 20000 + seed%10000}
	r.pin(tb, src.String(), l.Addr().String())
	count := func() (u, d []uint64) {
		for s := 1; s <= r.spines; s++ {
			u, d = append(u, r.sent(tb, leafSpine(1, s))), append(d, r.sent(tb, spineLeaf(s, 1)))
		}
		return u, d
	}
	up, down = count()
	r.transfer(tb, a, src, l)
	u, d := count()
	for s := range u {
		up[s], down[s] = u[s]-up[s], d[s]-down[s]
	}
	return up, down
}

// pin has the controller pin a connection and waits until it is.
func (r *racks) pin(tb testing.TB, src, dst string) {
	tb.Helper()
	if err := Pin(tb.Context(), "test", r.fabric.Enter, PinRequest{Proto: protoTCP, Src: src, Dst: dst, IdleSeconds: 60}); err != nil {
		tb.Fatal(err)
	}
	testnet.Until(tb, "the path of "+src, func() bool {
		s := r.status(tb)
		return s != nil && s.Forward.Settled && slices.ContainsFunc(s.Forward.Pins, func(p forward.PinStatus) bool {
			return strings.Contains(p.Flow, fmt.Sprintf("%s > %s", src, dst)) && len(p.Path) == 3
		})
	})
}
