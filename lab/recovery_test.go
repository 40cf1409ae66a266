package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/controller"
	"weir/datapath/testnet"
	"weir/experiment"
)

// setLink takes the device of a port down or up, as a cut and a repaired cable would.
func (l *Lab) setLink(tb testing.TB, node, ifname string, up bool) {
	tb.Helper()
	err := l.Enter(node, func() error {
		link, err := netlink.LinkByName(ifname)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(link)
		}
		return netlink.LinkSetDown(link)
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// signalSwitch sends a signal to the forwarding daemon. After a kill it waits until the daemon has ended.
func (l *Lab) signalSwitch(tb testing.TB, node string, signal unix.Signal) {
	tb.Helper()
	d, err := l.ovsDaemons(l.plan.byName[node])
	if err != nil {
		tb.Fatal(err)
	}
	pid, err := d.pid(forwarder)
	if err == nil {
		err = unix.Kill(pid, signal)
	}
	if err != nil {
		tb.Fatal(err)
	}
	if signal == unix.SIGKILL {
		testnet.Until(tb, node+" is gone", func() bool { _, err := d.pid(forwarder); return err != nil })
	}
}

func (l *Lab) restart(tb testing.TB, node string) {
	tb.Helper()
	if err := l.RestartSwitch(node); err != nil {
		tb.Fatal(err)
	}
}

// knows waits until the controller misses this many switches and links, and has set up the others.
func (l *Lab) knows(tb testing.TB, without, linksLess int) {
	tb.Helper()
	testnet.Until(tb, fmt.Sprintf("the controller misses %d switches and %d links", without, linksLess), func() bool {
		u, err := l.unknown(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		return len(u.switches) == without && len(u.links) == linksLess && !u.unsettled
	})
}

func (l *Lab) controllerAgain(tb testing.TB) {
	tb.Helper()
	if err := l.startController(); err != nil {
		tb.Fatal(err)
	}
	if err := l.awaitController(tb.Context(), func(string) {}); err != nil {
		tb.Fatal(err)
	}
}

// Existing connections continue, and new ones can be opened, after each fault of the network.
func TestController_FlowsGoOn(t *testing.T) {
	t.Parallel()
	l := upControlled(t, "goon", leafSpine(3, 1, false))
	err := l.withFlows(func(alive func(when string)) error {
		alive("at first")
		l.setLink(t, "leaf1", "p2", false)
		l.knows(t, 0, 1)
		alive("after a link was cut")
		l.setLink(t, "leaf1", "p2", true)
		l.knows(t, 0, 0)
		alive("after it was mended")
		l.signalSwitch(t, "spine1", unix.SIGKILL)
		l.knows(t, 1, 3)
		alive("without a spine")
		l.restart(t, "spine1")
		l.knows(t, 0, 0)
		alive("after it began again")
		l.signalSwitch(t, "leaf2", unix.SIGKILL)
		l.knows(t, 1, 2)
		l.restart(t, "leaf2")
		l.knows(t, 0, 0)
		alive("after a leaf began again")
		l.controller.kill(t)
		alive("without the controller")
		l.controllerAgain(t)
		alive("with another controller")
		return nil
	}, t)
	if err != nil {
		t.Fatal(err)
	}
}

// withFlows connects every guest to every other one; alive exchanges data over each of these connections and over
// new ones.
func (l *Lab) withFlows(f func(alive func(when string)) error, t *testing.T) error {
	type flow struct {
		name           string
		client, server *net.TCPConn
	}
	var flows []flow
	alive := func(when string) {
		t.Helper()
		for _, c := range flows {
			if err := both(c.client, c.server, 3000); err != nil {
				t.Errorf("%s: %s: %v", when, c.name, err)
			}
		}
		for _, from := range l.plan.guests() {
			for _, to := range l.plan.guests() {
				if from != to {
					if err := talk(l, from.name, to.name, 0); err != nil {
						t.Errorf("%s: %v", when, err)
					}
				}
			}
		}
	}
	var open func(pairs [][2]string) error
	open = func(pairs [][2]string) error {
		if len(pairs) == 0 {
			return f(alive)
		}
		from, to := pairs[0][0], pairs[0][1]
		return dial(l, from, to, 0, func(client, server *net.TCPConn) error {
			flows = append(flows, flow{from + " to " + to, client, server})
			return open(pairs[1:])
		})
	}
	var pairs [][2]string
	for _, from := range l.plan.guests() {
		for _, to := range l.plan.guests() {
			if from != to {
				pairs = append(pairs, [2]string{from.name, to.name})
			}
		}
	}
	return open(pairs)
}

// Four racks of seven: every guest reaches every other, a thousand connections split over the spines within 10 %,
// and the acknowledgements of a pinned one return over its data's spine.
func TestController_FourRacks(t *testing.T) {
	t.Parallel()
	l := upControlled(t, "racks", leafSpine(4, 7, false))
	for _, from := range l.plan.guests() {
		for _, to := range l.plan.guests() {
			if from == to {
				continue
			}
			if err := dial(l, from.name, to.name, 0, func(_, _ *net.TCPConn) error { return nil }); err != nil {
				t.Fatalf("%s to %s: %v", from.name, to.name, err)
			}
		}
	}
	taps := l.spineTaps(t)
	got, all := l.spread(t, taps, "leaf1.server1", "leaf2.server1")
	t.Logf("%d connections: %d by spine1, %d by spine2", spreadConnections, got[0], got[1])
	if all != spreadConnections {
		t.Errorf("%d of %d connections left by the spines: %d by spine1, %d by spine2", all, spreadConnections, got[0], got[1])
	}
	// Half of them, with a standard deviation of 27: 10 % off is 5.5 of them, once in 25 million runs.
	const fewest, most = spreadConnections * 45 / 100, spreadConnections * 55 / 100
	for s, n := range got {
		if n < fewest || n > most {
			t.Errorf("spine%d got %d of %d connections", s+1, n, spreadConnections)
		}
	}
	up, down := l.pinned(t, taps, "leaf1.server2", "leaf3.server3", 9001) // no client has such a port: ip_local_port_range
	t.Logf("a pinned connection of 1 MB: segments up %v, down %v", up, down)
	way := 0
	if up[1] > up[0] {
		way = 1
	}
	// 1 MB is 725 segments; there is at least one acknowledgement for every 64 KB.
	if up[way] < 700 || up[1-way] != 0 || down[way] < 16 || down[1-way] != 0 {
		t.Errorf("by spine1 and spine2: segments of data %v, back %v: all should pass the same one", up, down)
	}
}

// spineTaps opens a tap at each port of leaf1 to a spine.
func (l *Lab) spineTaps(tb testing.TB) (taps [2]*testnet.Tap) {
	tb.Helper()
	for s := range taps {
		taps[s] = testnet.NewTap(tb, portOf(tb, l, fmt.Sprintf("leaf1->spine%d", s+1)))
	}
	return taps
}

const spreadConnections = 3000

// spread opens this many connections to a port where nothing listens, and counts them by the spine that their SYNs
// leave leaf1 for. A SYN that was sent again counts once at a spine. all: the connections, also if one passed both spines because a switch
// was away for a moment.
func (l *Lab) spread(tb testing.TB, taps [2]*testnet.Tap, from, to string) (got [2]int, all int) {
	tb.Helper()
	dst := netip.AddrPortFrom(l.Addr(to, 0), 9000)
	for range spreadConnections {
		err := l.Enter(from, func() error {
			c, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(dst))
			if errors.Is(err, syscall.ECONNREFUSED) {
				return nil
			}
			if err == nil {
				_ = c.Close()
				err = errors.New("somebody listens")
			}
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	type connection struct {
		from netip.AddrPort
		seq  uint32 // a later connection may have the same port
	}
	distinct := map[connection]bool{}
	for s, tap := range taps {
		seen := map[connection]bool{}
		tap.Each(tb, func(g *testnet.Segment) {
			if g.Out && g.To == dst && g.Flags&testnet.SYN != 0 {
				seen[connection{g.From, g.Seq}] = true
			}
		})
		got[s] = len(seen)
		maps.Copy(distinct, seen)
	}
	return got, len(distinct)
}

// pinned sends 1 MB over a pinned connection, and counts its segments by the spine that they pass, up and down.
func (l *Lab) pinned(tb testing.TB, taps [2]*testnet.Tap, from, to string, port int) (up, down [2]int) {
	tb.Helper()
	src := &net.TCPAddr{IP: l.Addr(from, 0).AsSlice(), Port: port}
	var ln *net.TCPListener
	err := l.Enter(to, func() (err error) {
		ln, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: l.Addr(to, 0).AsSlice()})
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	request := controller.PinRequest{Proto: unix.IPPROTO_TCP, Src: src.String(), Dst: ln.Addr().String(), IdleSeconds: 3600}
	if err := controller.Pin(context.Background(), controllerName, l.enterController, request); err != nil {
		tb.Fatal(err)
	}
	testnet.Until(tb, "the flow is pinned", func() bool {
		s := l.status(tb)
		return s.Forward.Settled && len(s.Forward.Pins) == 1 && len(s.Forward.Pins[0].Path) == 3 && strings.Contains(s.Forward.Pins[0].Flow, src.String())
	})
	// A switch has confirmed its tables, but its cache is updated only in its next round.
	for _, n := range l.plan.nodes {
		if n.kind == experiment.Switch {
			askOVS(tb, l, n.name, "revalidator/wait")
		}
	}
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		c, _ := ln.AcceptTCP() // its error is the dial's, too
		accepted <- c
	}()
	var client *net.TCPConn
	err = l.Enter(from, func() (err error) {
		d := net.Dialer{Timeout: testnet.Patience, LocalAddr: src}
		c, err := d.Dial("tcp4", ln.Addr().String())
		if err == nil {
			client = c.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	defer client.Close()
	server := <-accepted
	defer server.Close()
	if err := send(client, server, 1<<20); err != nil {
		tb.Fatal(err)
	}
	for s, tap := range taps {
		tap.Each(tb, func(g *testnet.Segment) {
			switch own := testnet.AddrPort(client.LocalAddr()); {
			case g.Out && g.From == own:
				up[s]++
			case !g.Out && g.To == own:
				down[s]++
			}
		})
	}
	request.Drop = true
	if err := controller.Pin(context.Background(), controllerName, l.enterController, request); err != nil {
		tb.Fatal(err)
	}
	return up, down
}
