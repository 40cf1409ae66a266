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

// Guests have DCTCP on a kernel with or without it. Where a queue of more than a segment is marked, a long flow comes to its least
// window, 2 segments. Nothing stays in the kernel after Down.
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
	stop, err := l.Enforce(&experiment.Run{
		Scheme: "ecn", Config: *d.config(g), Laws: []string{marklaw.ECN}, At: []string{"switch"},
		Params: map[string]any{marklaw.ECN: marklaw.Params{Threshold: law.Limit{N: 1500}, NotECT: marklaw.Pass}},
	}, testWorks)
	if err != nil {
		t.Fatal(err)
	}
	err = dial(l, "sender1", "receiver1", 0, func(client, server *net.TCPConn) error {
		testnet.Option(t, client, func(fd int) error { // the kernel sends on while this process waits for a processor
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20)
		})
		go func() { _, _ = io.Copy(client, zeros{}) }()
		go func() { _, _ = io.Copy(io.Discard, server) }()
		testnet.Until(t, "the flow has its least window", func() bool {
			info := testnet.ReadTCPInfo(t, client)
			return info.Delivered_ce > 0 && info.Snd_cwnd <= 4
		})
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
