package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/experiment"
	"weir/internal/testroot"
	"weir/law"
)

func ptr[T any](v T) *T { return &v }

func cubic() experiment.Guests {
	return experiment.Guests{
		Stack: "linux", CC: "cubic", ECN: ptr(false), InitialWindow: ptr(10), RTOMin: ptr(law.Duration(200 * time.Millisecond)),
		InitialRTO: ptr(law.Duration(time.Second)), DelayedACK: ptr(true), SACK: ptr(true),
	}
}

// testName returns a lab name that no other process uses.
func testName(suffix string) string { return fmt.Sprintf("t%d-%s", os.Getpid(), suffix) }

// up builds a lab that ends with the test.
func up(t *testing.T, suffix string, cfg *experiment.Config) *Lab {
	t.Helper()
	testroot.Need(t, "makes network namespaces")
	l, err := Up(t.Context(), testName(suffix), cfg, Options{Owned: true, Experiment: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// dial connects two guests of a lab over TCP and passes both ends, and the bytes received, to look.
func dial(l *Lab, from, to string, profile int, look func(client, server *net.TCPConn) error) error {
	var ln net.Listener
	err := l.Enter(to, func() (err error) {
		ln, err = net.Listen("tcp4", netip.AddrPortFrom(l.Addr(to, profile), 0).String())
		return err
	})
	if err != nil {
		return err
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			close(accepted)
			return
		}
		accepted <- conn
	}()
	var client net.Conn
	err = l.Enter(from, func() (err error) {
		d := net.Dialer{Timeout: testnet.Patience, LocalAddr: &net.TCPAddr{IP: l.Addr(from, profile).AsSlice()}}
		client, err = d.Dial("tcp4", ln.Addr().String())
		return err
	})
	if err != nil {
		return err
	}
	defer client.Close()
	server, ok := <-accepted
	if !ok {
		return errors.New("nothing accepted")
	}
	defer server.Close()
	return look(client.(*net.TCPConn), server.(*net.TCPConn))
}

// talk sends some bytes both ways between two guests.
func talk(l *Lab, from, to string, profile int) error {
	err := dial(l, from, to, profile, func(client, server *net.TCPConn) error {
		for _, way := range [][2]*net.TCPConn{{client, server}, {server, client}} {
			message := strings.Repeat("x", 20000)
			go func() { _, _ = io.WriteString(way[0], message) }() // the reader reports errors
			got := make([]byte, len(message))
			if err := way[1].SetReadDeadline(time.Now().Add(testnet.Patience)); err != nil {
				return err
			}
			if _, err := io.ReadFull(way[1], got); err != nil {
				return err
			}
			if string(got) != message {
				return errors.New("not what was sent")
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s to %s, profile %d: %w", from, to, profile, err)
	}
	return nil
}

// control runs f with the descriptor of a connection.
func control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(err, inner)
}

func TestGuestsReachEachOther(t *testing.T) {
	shapes := map[string]func(hv bool) *graphBuilder{
		"dumbbell": func(hv bool) *graphBuilder { return dumbbell(2, hv) },
		"racks":    func(hv bool) *graphBuilder { return racks(2, 2, hv) },
		"chain":    func(hv bool) *graphBuilder { return chain(3, hv) },
		"leaf":     func(hv bool) *graphBuilder { return leafSpine(3, 2, hv) },
	}
	for name, shape := range shapes {
		for _, hv := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s hypervisors=%v", name, hv), func(t *testing.T) {
				ecn := cubic()
				ecn.ECN = ptr(true)
				l := up(t, name, shape(hv).config(cubic(), ecn))
				guests := l.plan.guests()
				for i, from := range guests {
					for j, to := range guests {
						if i == j {
							continue
						}
						if err := talk(l, from.name, to.name, (i+j)%2); err != nil {
							t.Error(err)
						}
					}
				}
				if lines := l.Unmet(); len(lines) > 0 {
					t.Errorf("unmet: %v", lines)
				}
			})
		}
	}
}

// Only traffic crosses the queues: the neighbours are known and bridges need not flood.
func TestQueuesHoldOnlyWhatIsSent(t *testing.T) {
	for _, g := range []*graphBuilder{racks(2, 2, true), leafSpine(2, 2, false)} {
		l := up(t, "quiet", g.config())
		before := sentByPort(t, l)
		from, to := l.plan.guests()[0], l.plan.guests()[3]
		if err := talk(l, from.name, to.name, 0); err != nil {
			t.Fatal(err)
		}
		var moved []string
		for name, sent := range sentByPort(t, l) {
			if sent != before[name] {
				moved = append(moved, name)
			}
		}
		for _, name := range moved {
			for _, other := range l.plan.guests() {
				if other != from && other != to && strings.Contains(name, other.name) {
					t.Errorf("%s carried frames between %s and %s", name, from.name, to.name)
				}
			}
		}
		if len(moved) == 0 {
			t.Error("no port carried anything: the check sees nothing")
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	}
}

// An idle lab is silent: no queue sends anything while it is built.
func TestIdleLabIsSilent(t *testing.T) {
	l := up(t, "idle", racks(2, 2, true).config())
	for name, sent := range sentByPort(t, l) {
		if sent != 0 {
			t.Errorf("%s sent %d bytes", name, sent)
		}
	}
}

func TestTwoLabsDoNotMeet(t *testing.T) {
	a := up(t, "a", dumbbell(1, true).config())
	b := up(t, "b", dumbbell(1, true).config())
	for _, l := range []*Lab{a, b} {
		if err := talk(l, "sender1", "receiver1", 0); err != nil {
			t.Fatal(err)
		}
	}
	var ln net.Listener
	err := a.Enter("receiver1", func() (err error) {
		ln, err = net.Listen("tcp4", netip.AddrPortFrom(a.Addr("receiver1", 0), 7000).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = b.Enter("sender1", func() error {
		_, err := net.DialTimeout("tcp4", ln.Addr().String(), testnet.Patience)
		return err
	})
	// The same address exists in lab b, but nothing listens there.
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("from lab b to a listener of lab a: %v, want connection refused by b's own receiver", err)
	}
}

func TestManagementNetworkJoinsSwitchesAndHosts(t *testing.T) {
	l := up(t, "mgmt", dumbbell(1, true).config())
	controller := l.plan.byName[controllerNode].mgmt
	var ln net.Listener
	err := l.Enter(controllerNode, func() (err error) {
		ln, err = net.Listen("tcp4", netip.AddrPortFrom(controller, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, node := range []string{"switch", "sender1.hv", "receiver1.hv"} {
		err := l.Enter(node, func() error {
			c, err := net.DialTimeout("tcp4", ln.Addr().String(), testnet.Patience)
			if err == nil {
				c.Close()
			}
			return err
		})
		if err != nil {
			t.Errorf("%s to the controller: %v", node, err)
		}
	}
	err = l.Enter("sender1", func() error {
		_, err := net.DialTimeout("tcp4", ln.Addr().String(), testnet.Patience)
		return err
	})
	if !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("a guest to the controller: %v, want network unreachable", err)
	}
}

func TestFlowsSpreadOverEqualPaths(t *testing.T) {
	l := up(t, "ecmp", leafSpine(2, 1, false).config())
	for range 24 {
		if err := talk(l, "leaf1.server1", "leaf2.server1", 0); err != nil {
			t.Fatal(err)
		}
	}
	sent := sentByPort(t, l)
	// 24 flows on one of two paths by chance: 1 in 8 million.
	for _, name := range []string{"leaf1->spine1", "leaf1->spine2"} {
		if sent[name] < 20000 {
			t.Errorf("%s sent %d bytes: its share of 24 flows is missing", name, sent[name])
		}
	}
}

func TestSinglePathWhenAskedFor(t *testing.T) {
	g := leafSpine(2, 1, false)
	g.Multipath = false // routing: single, although there are loops
	l := up(t, "single", g.config())
	for range 24 {
		if err := talk(l, "leaf1.server1", "leaf2.server1", 0); err != nil {
			t.Fatal(err)
		}
	}
	if sent := sentByPort(t, l)["leaf1->spine2"]; sent != 0 {
		t.Errorf("leaf1->spine2 sent %d bytes with one path", sent)
	}
}

func TestUpRefuses(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	many := dumbbell(300, false)
	rtl := dumbbell(1, false).config()
	rtl.Switch = "rtl"
	both := cubic()
	both.Stack, both.ToStack = "netstack", "linux"
	chained := dumbbell(2, false).config(both)
	chained.Items = []experiment.Item{{Pairs: []experiment.Pair{{Src: "sender1", Dst: "sender2"}, {Src: "sender2", Dst: "receiver1"}}}}
	clash := dumbbell(1, false)
	clash.host("controller", "switch", mbit)
	for _, c := range []struct {
		name string
		cfg  *experiment.Config
		want string
	}{
		{"Upper", dumbbell(1, false).config(), "use 1 to 20 of a-z"},
		{"a-name-longer-than-twenty", dumbbell(1, false).config(), "use 1 to 20 of a-z"},
		{testName("r"), rtl, "the ports of switch have 400 Mbit/s together, and the model carries 64"},
		{testName("r"), chained, "guest sender2 would need the stacks linux and netstack at once"},
		{testName("r"), many.config(), "switch has more than 250 guests"},
		{testName("r"), clash.config(), `node name "controller" is taken`},
	} {
		_, err := Up(context.Background(), c.name, c.cfg, Options{Owned: true})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", c.name, err)
		}
	}
}
