package fairq_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// Real TCP, both directions of each connection busy at once, so that windows are written into packets of many
// segments too. The ports that the packets leave by make checksums and segments, or leave it to the kernel,
// each direction in its own way. The hosts' kernels find no wrong checksum, and the test's own computation
// finds none.
func TestFairQVeth_RealTCP(t *testing.T) {
	n := newFrameNet(t, true)
	for _, ip := range []net.IP{testnet.ReceiverIPv4, testnet.ReceiverIPv6} {
		for _, out := range []bool{true, false} {
			for _, in := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s,offloads=%t-%t", ip, out, in), func(t *testing.T) {
					testnet.SetOffloads(t, n.Port, out)
					testnet.SetOffloads(t, n.In, in)
					port := n.exchange(t, ip, 4, 300_000)
					n.checkKernels(t)
					n.left.checkAll(t, port, in)
					n.right.checkAll(t, port, out)
				})
			}
		}
	}
	s, err := n.fairq.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for i := range s {
		if s[i].Rewritten < 100 || s[i].Short != 0 || s[i].Unwritable != 0 {
			t.Errorf("%+v", s[i])
		}
	}
}

// exchange sends this many bytes each way over each of several connections at once, and returns their port.
func (n *frameNet) exchange(t *testing.T, ip net.IP, connections, length int) (port uint16) {
	t.Helper()
	l := n.Listen(t, ip)
	var wg sync.WaitGroup
	errs := make(chan error, 4*connections)
	for range connections {
		p := n.Dial(t, l)
		for _, c := range []*net.TCPConn{p.Client, p.Server} {
			if err := c.SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
				t.Fatal(err)
			}
			wg.Add(2)
			go func() {
				defer wg.Done()
				_, err := c.Write(pattern(length))
				errs <- err
			}()
			go func() {
				defer wg.Done()
				b := make([]byte, length)
				_, err := io.ReadFull(c, b)
				if err == nil && string(b) != string(pattern(length)) {
					err = errors.New("other bytes arrived than were sent")
				}
				errs <- err
			}()
		}
		defer p.Close()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return testnet.AddrPort(l.Addr()).Port()
}

// checkKernels fails if the hosts' kernels dropped segments.
func (n *frameNet) checkKernels(t *testing.T) {
	t.Helper()
	for _, host := range []*testnet.Namespace{n.Sender, n.Receiver} {
		for _, c := range [][2]string{{"Tcp", "InCsumErrors"}, {"Tcp", "InErrs"}, {"IpExt", "InCsumErrors"}, {"Ip", "InHdrErrors"}, {"", "Ip6InHdrErrors"}} {
			if bad := host.SNMP(t, c[0], c[1]); bad != 0 {
				t.Errorf("%s %s = %d", c[0], c[1], bad)
			}
		}
	}
}

// checkAll reads what has arrived and checks each TCP checksum of connections to a port. super: packets of many
// segments must be among it.
func (s *vnetSocket) checkAll(t *testing.T, port uint16, super bool) {
	t.Helper()
	segments, large := 0, 0
	for {
		length, _, _, _, err := unix.Recvmsg(s.fd, s.buf, nil, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		v := frames.Parse(s.buf[vnetHeader:length])
		if v.Kind != frames.KindTCP || v.Ports()[0] != port && v.Ports()[1] != port {
			continue
		}
		segments++
		if s.buf[1] != 0 {
			large++
		}
		if partial := s.buf[0]&vnetNeedsCsum != 0; partial {
			if v.Checksum() != v.PartialChecksum() || !super {
				t.Fatalf("checksum to be made begins with %#x, not %#x: %x", v.Checksum(), v.PartialChecksum(), v.Frame[:v.Data])
			}
		} else if v.ChecksumError() != 0 {
			t.Fatalf("checksum is off by %#x: %x", v.ChecksumError(), v.Frame)
		}
	}
	if segments < 50 || (large > 0) != super {
		t.Errorf("%d packets arrived, %d of many segments (expected: %t)", segments, large, super)
	}
}
