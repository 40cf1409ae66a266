package testnet

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func namespaceFD() (int, error) {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the thread's network namespace: %w", err)
	}
	return fd, nil
}

func closeFD(fd int) { _ = unix.Close(fd) }

// congestionControl chooses a socket's congestion control: the kernel's default varies.
func congestionControl(name string) func(network, address string, c syscall.RawConn) error {
	return control(func(fd int) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	})
}

// Flow is one finished TCP transfer.
type Flow struct{ Sender, Receiver net.Addr }

// Transfer sends this many bytes over each of several concurrent TCP connections, from sender to receiver, and
// checks that they arrive. cc names the sender's congestion control.
func (p *Path) Transfer(tb testing.TB, ip net.IP, cc string, flows, bytes int) []Flow {
	tb.Helper()
	var listener net.Listener
	p.Receiver.Must(tb, func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
		return err
	})
	defer listener.Close()
	ends := make([]Flow, flows)
	errs := make(chan error, 2*flows)
	var wg sync.WaitGroup
	for i := range flows {
		wg.Add(2)
		go func() {
			defer wg.Done()
			errs <- receive(listener, bytes)
		}()
		var c net.Conn
		p.Sender.Must(tb, func() (err error) {
			d := net.Dialer{Control: congestionControl(cc)}
			c, err = d.DialContext(context.Background(), "tcp", listener.Addr().String())
			return err
		})
		ends[i] = Flow{c.LocalAddr(), c.RemoteAddr()}
		go func() {
			defer wg.Done()
			errs <- send(c, bytes)
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			tb.Fatal(err)
		}
	}
	return ends
}

func send(c net.Conn, bytes int) error {
	defer c.Close()
	_, err := io.Copy(c, io.LimitReader(Zeros{}, int64(bytes)))
	return err
}

// Zeros is read without an end.
type Zeros struct{}

func (Zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func receive(l net.Listener, bytes int) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := io.Copy(io.Discard, c)
	if err == nil && n != int64(bytes) {
		err = fmt.Errorf("%d bytes arrived of %d", n, bytes)
	}
	return err
}
