package lab

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/internal/testroot"
)

// Connections that were cut with unacknowledged data do not keep namespaces alive.
func TestDown_EndsOrphans(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	l, err := Up(t.Context(), testName("orphans"), dumbbell(2, false).config(), Options{Owned: true, Experiment: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Down() }()
	needOrphansToEnd(t, l)
	address := net.JoinHostPort(l.Addr("receiver1", 0).String(), "7000")
	var listener net.Listener
	if err := l.Enter("receiver1", func() (err error) {
		listener, err = net.Listen("tcp4", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, sender := range []string{"sender1", "sender2"} {
		if err := cut(t.Context(), l, sender, address, listener); err != nil {
			t.Fatal(err)
		}
		if n := orphans(t, l, sender); n != 1 {
			t.Fatalf("%d connections of %s have no process, want 1", n, sender)
		}
	}
	_ = listener.Close()
	if err := l.Down(); err != nil {
		t.Error(err)
	}
	if err := l.Left(); err != nil {
		t.Error(err)
	}
}

// needOrphansToEnd skips if the kernel cannot end a connection that no process has: Down can then only wait.
func needOrphansToEnd(t *testing.T, l *Lab) {
	t.Helper()
	if err := orphansEnd(); err != nil {
		t.Skip("connections without a process cannot be ended here: ", err)
	}
	err := l.Enter("receiver1", func() error {
		if _, err := netlink.SocketDiagTCP(unix.AF_INET); errors.Is(err, unix.ENOENT) {
			return unix.EOPNOTSUPP
		}
		nobody := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
		return netlink.SocketDestroy(nobody, nobody) // there is no such connection: this tests the permission
	})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		t.Skip("this kernel is without CONFIG_INET_DIAG or CONFIG_INET_DIAG_DESTROY")
	case err != nil && !errors.Is(err, unix.ENOENT):
		t.Fatal(err)
	}
}

// cut opens a connection, takes the node's links down, writes, and closes it at both ends.
func cut(ctx context.Context, l *Lab, node, address string, listener net.Listener) error {
	var client net.Conn
	if err := l.Enter(node, func() (err error) {
		client, err = (&net.Dialer{}).DialContext(ctx, "tcp4", address)
		return err
	}); err != nil {
		return err
	}
	server, err := listener.Accept()
	if err != nil {
		return err
	}
	if err := l.Enter(node, func() error {
		for _, p := range l.Ports() {
			if p.Node != node {
				continue
			}
			link, err := netlink.LinkByName(p.Ifname)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetDown(link); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	// Less than any send buffer; the deadline limits the time if it blocks nevertheless.
	if err := client.SetWriteDeadline(time.Now().Add(testnet.Patience)); err != nil {
		return err
	}
	if _, err := client.Write(make([]byte, 8<<10)); err != nil {
		return err
	}
	if err := client.Close(); err != nil {
		return err
	}
	return server.Close()
}

// orphans returns the number of connections of a node that no process has.
func orphans(t *testing.T, l *Lab, node string) (n int) {
	t.Helper()
	if err := l.Enter(node, func() error {
		sockets, err := netlink.SocketDiagTCP(unix.AF_INET)
		for _, s := range sockets {
			if s.INode == 0 && s.State == netlink.TCP_FIN_WAIT1 {
				n++
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}
