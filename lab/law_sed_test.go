package lab

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/datapath/testnet"
	"weir/deadline"
	"weir/experiment"
	"weir/law/sed"
)

// without is a flow without deadline, which sends until stop. Its bytes that arrive are counted.
func without(t *testing.T, l *Lab, from, to string, received *atomic.Int64, body func() error) error {
	t.Helper()
	return dial(l, from, to, 0, func(client, server *net.TCPConn) error {
		ahead(t, client, server)
		return sending(client, counting{server, received}, body)
	})
}

// ahead gives a connection buffers for some seconds of a slow link. So it goes on, in the kernel, while a busy machine keeps this process
// waiting.
func ahead(t *testing.T, client, server *net.TCPConn) {
	t.Helper()
	for _, c := range []*net.TCPConn{client, server} {
		testnet.Option(t, c, testnet.Buffers(8<<20))
	}
}

func sedRun(t *testing.T, g *graphBuilder) *experiment.Run {
	t.Helper()
	p := *sed.Default()
	// On a busy machine, agents and controller wait for a processor now and then. A window must outlast that.
	p.Period, p.RTT, p.Lease = 4e6, 2e6, 1e9
	r := &experiment.Run{Scheme: "s", Config: *g.config(), Laws: []string{"sed"}, At: []string{"switch"}, Params: map[string]any{"sed": p}}
	if err := testWorks.Check(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Two flows fill a link, and a message needs more than half of it. With a deadline, which a program declares to its host's agent, the
// message gets that by windows that the controller grants. Without one it gets a third. Then the controller is killed: windows are
// released, and the flow ends.
func TestSED_DeadlineOnTheWire(t *testing.T) {
	g := &graphBuilder{hypervisors: true} // slow links, so that a busy machine fills them
	g.sw("switch")
	for _, host := range []string{"sender1", "sender2", "sender3", "receiver1"} {
		g.host(host, "switch", 20*mbit)
	}
	l := upWithAgents(t, "sed", g, testAgent(t))
	r := sedRun(t, g)
	stop, err := l.Enforce(t.Context(), r, testWorks)
	if err != nil {
		t.Fatal(err)
	}
	var pause testnet.Pause
	ended := make(chan struct{})
	go pause.Watch(ended)
	defer close(ended)
	var others atomic.Int64
	// share sends a message, and returns its part of what arrived meanwhile.
	share := func(client, server *net.TCPConn, bytes int64) float64 {
		before := others.Load()
		if err := send(client, server, bytes); err != nil {
			t.Error(err)
		}
		part := float64(bytes) / float64(bytes+others.Load()-before)
		return part
	}
	const bytes = 6_000_000
	// declared sends a message without a deadline and one with it, and reports whether the second had its part.
	declared := func(client, server *net.TCPConn) (what deadline.Declaration, met bool, err error) {
		plain := share(client, server, bytes/4)
		what = deadline.Declaration{
			Source: testnet.AddrPort(client.LocalAddr()), Destination: testnet.AddrPort(client.RemoteAddr()), Within: 4500 * time.Millisecond, Bytes: bytes,
		}
		if err := l.declare()("sender1", what); err != nil {
			return what, false, err
		}
		begun := time.Now()
		urgent := share(client, server, bytes)
		t.Logf("%.0f %% of the link without deadline, %.0f %% with one of %v, after %v", 100*plain, 100*urgent, what.Within, time.Since(begun))
		return what, plain < 0.45 && urgent > 0.5, nil
	}
	// released kills the controller in the middle of a message.
	released := func(client, server *net.TCPConn, what deadline.Declaration) error {
		what.Within = time.Minute
		if err := l.declare()("sender1", what); err != nil {
			return err
		}
		c := l.laws[0].Attached.(*controlled)
		if err := c.controller.Kill(); err != nil {
			return err
		}
		<-c.controller.ended
		if err := send(client, server, bytes/4); err != nil {
			return err
		}
		testnet.Until(t, "windows are not limited", func() bool {
			return errors.Join(send(client, server, 200_000)) == nil && testnet.ReadTCPInfo(t, client).Snd_wnd > 60_000
		})
		return nil
	}
	// Agents and controller are kept from running where this process is. Then grants expire, windows grow, and the message is late. Each try
	// has a connection of its own: a flow whose deadline has passed keeps the least window.
	const calm = 50 * time.Millisecond
	met, calmTries, tried := false, 0, 0
	tries := func() (err error) {
		for began := time.Now(); err == nil && !met && time.Since(began) < testnet.Patience; tried++ {
			err = dial(l, "sender1", "receiver1", 0, func(client, server *net.TCPConn) (err error) {
				ahead(t, client, server)
				pause.Mark()
				var what deadline.Declaration
				if what, met, err = declared(client, server); pause.Longest() < calm {
					calmTries++
				}
				if err != nil || !met {
					return err
				}
				return released(client, server, what)
			})
		}
		return err
	}
	err = without(t, l, "sender2", "receiver1", &others, func() error { return without(t, l, "sender3", "receiver1", &others, tries) })
	if err := errors.Join(err, stop()); err != nil {
		t.Fatal(err)
	}
	unmet := l.unmet.lines()
	if !slices.ContainsFunc(unmet, func(s string) bool { return strings.HasPrefix(s, "sed.pause hold on all hosts") }) {
		t.Errorf("what hosts cannot do is not reported: %q", unmet)
	}
	switch {
	case !met && calmTries > 0:
		t.Errorf("the message with a deadline never had half of the link, or the one without had as much, in %d tries, %d of them on a calm machine", tried, calmTries)
	case !met:
		t.Skipf("the message with a deadline never had its share, in %d tries, in each of which this process was kept from running for %v or more", tried, calm)
	}
}

// Parameters that hosts of the lab cannot carry out are refused.
func TestSED_Refuses(t *testing.T) {
	g := dumbbell(1, true)
	r := sedRun(t, g)
	p := *sed.Default()
	p.Pause = sed.PauseZero
	r.Params["sed"] = p
	if err := testWorks.Check(r); err == nil || !strings.Contains(err.Error(), "choose hold or floor") {
		t.Error(err)
	}
	r.Params["sed"] = *sed.Default()
	r.Config = *dumbbell(1, false).config()
	if err := testWorks.Check(r); err == nil || !strings.Contains(err.Error(), "hypervisors") {
		t.Error(err)
	}
}
