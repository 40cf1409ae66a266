package lab

import (
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/experiment"
	"weir/law"
	marklaw "weir/law/mark"
)

// Guests have DCTCP on a kernel with or without it. Nothing stays in the kernel after Down.
//
// If every packet is marked, the window falls to its least, 2 segments. If packets over a queue of 30 segments are marked, the window
// first grows in some 30 round trips without a mark. alpha loses a sixteenth in each, and is then below 1/4. So a reduction from 32
// segments or more leaves at least 28. Reno's leaves a half: 23 of the 45 segments to which the window grows on a busy machine.
func TestDCTCP(t *testing.T) {
	g := cubic()
	g.CC = dctcpCC
	d := &graphBuilder{}
	d.sw("switch")
	d.host("sender1", "switch", 10*mbit)
	d.host("receiver1", "switch", 5*mbit) // slower, so the flow's queue is here
	l := up(t, "dctcp", d.config(g))
	if lines := l.Unmet(); len(lines) > 0 {
		t.Errorf("unmet: %v", lines)
	}
	markOver := func(segments int64) (stop func() error) {
		stop, err := l.Enforce(t.Context(), &experiment.Run{
			Scheme: "ecn", Config: *d.config(g), Laws: []string{marklaw.ECN}, At: []string{"switch"},
			Params: map[string]any{marklaw.ECN: marklaw.Params{Threshold: law.Limit{N: segments * 1514}, NotECT: marklaw.Pass}},
		}, testWorks)
		if err != nil {
			t.Fatal(err)
		}
		return stop
	}
	stop := markOver(1)
	err := dial(l, "sender1", "receiver1", 0, func(client, server *net.TCPConn) error {
		testnet.Option(t, client, func(fd int) error { // the kernel sends on while this process waits for a processor
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20)
		})
		go func() { _, _ = io.Copy(client, zeros{}) }()
		go func() { _, _ = io.Copy(io.Discard, server) }()
		testnet.Until(t, "the flow has its least window", func() bool {
			info := testnet.ReadTCPInfo(t, client)
			return info.Delivered_ce > 0 && info.Snd_cwnd <= 4
		})
		if err := stop(); err != nil {
			t.Error(err)
		}
		stop = markOver(30)
		var left uint32
		small := func() bool { return left > 27 && left < 60 }
		marked := testnet.ReadTCPInfo(t, client).Delivered_ce
		// A lost call of the program (docs/lab.md) sends a burst, of which some 60 segments are marked.
		testnet.Until(t, "a small reduction, or 200 marks", func() bool {
			info := testnet.ReadTCPInfo(t, client)
			left = info.Snd_ssthresh
			return small() || info.Delivered_ce-marked >= 200
		})
		if !small() {
			t.Errorf("a mark leaves a window of %d segments", left)
		}
		for _, c := range []*net.TCPConn{client, server} {
			if cc := congestion(t, c); !strings.Contains(cc, dctcpCC) {
				t.Errorf("congestion control %q", cc)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := l.Down(); err != nil {
		t.Error(err)
	}
	if l.dctcp.name != "" && strings.Contains(availableCC(), l.dctcp.name) {
		t.Errorf("%q is still in the kernel", l.dctcp.name)
	}
}

func congestion(t *testing.T, c *net.TCPConn) (name string) {
	t.Helper()
	err := control(c, func(fd int) (err error) {
		name, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return name
}
