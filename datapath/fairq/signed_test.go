package fairq_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// signedWith makes a socket sign its segments to and from a peer with TCP-MD5 (RFC 2385).
func signedWith(peer net.IP) testnet.SocketOption {
	return func(fd int) error {
		sig := &unix.TCPMD5Sig{Keylen: 5}
		copy(sig.Key[:], "mouse")
		if ip := peer.To4(); ip != nil {
			sig.Addr.Family = unix.AF_INET
			copy(sig.Addr.Data[2:], ip) // behind the port
		} else {
			sig.Addr.Family = unix.AF_INET6
			copy(sig.Addr.Data[6:], peer.To16()) // behind port and flow label
		}
		return unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, sig)
	}
}

// needMD5 skips the test on a kernel that was built without TCP-MD5, as its error shows.
func needMD5(t *testing.T, p *rwndPath) {
	t.Helper()
	err := p.Sender.Enter(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return signedWith(testnet.ReceiverIPv4)(fd)
	})
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		t.Skip("this kernel has no TCP-MD5 (CONFIG_TCP_MD5SIG)")
	case err != nil:
		t.Fatal(err)
	}
}

// Connections whose segments are signed carry data through ports that limit others. Their own windows do not
// change, and they count as flows. Connections older than the law do too.
func TestFairQ_SignedConnectionsLive(t *testing.T) {
	t.Parallel()
	for _, offloads := range []bool{true, false} {
		for _, ip := range []net.IP{testnet.ReceiverIPv4, testnet.ReceiverIPv6} {
			for name, c := range map[string]fairq.Config{
				"active": {}, "handshake": {Count: fairq.CountHandshake}, "unify": {Scale: fairq.ScaleUnify, UnifyShift: 3},
			} {
				t.Run(fmt.Sprintf("offloads=%t,%s,%s", offloads, ip, name), func(t *testing.T) {
					signedLive(t, testnet.PathOptions{GSO: offloads, ChecksumOffload: offloads}, ip, c)
				})
			}
		}
	}
}

func signedLive(t *testing.T, o testnet.PathOptions, ip net.IP, config fairq.Config) {
	const grant, bytes, scale = 23457, 200_000, 3
	p := newRwndPath(t, o)
	needMD5(t, p)
	peer := testnet.SenderIPv4
	if ip.To4() == nil {
		peer = testnet.SenderIPv6
	}
	signing := p.Listen(t, ip, testnet.WindowScale(scale), signedWith(peer))
	old := p.Dial(t, signing, testnet.WindowScale(scale), signedWith(ip))
	testnet.Send(t, old.Client, old.Server, bytes)
	testnet.Send(t, old.Server, old.Client, bytes)
	f := p.govern(t, limitedTo(grant), limitedTo(grant), config)
	plain := p.Dial(t, p.Listen(t, ip, testnet.WindowScale(scale)), testnet.WindowScale(scale))
	young := p.Dial(t, signing, testnet.WindowScale(scale), signedWith(ip))
	all := []*testnet.Pair{plain, young, old}
	for _, c := range all {
		testnet.Send(t, c.Client, c.Server, bytes)
		testnet.Send(t, c.Server, c.Client, bytes)
		// On a slow machine the port may have been without data when the last ACK passed, and then it grants nothing.
		testnet.Until(t, "both windows are as they should be", func() bool {
			testnet.Send(t, c.Client, c.Server, bytes)
			testnet.Send(t, c.Server, c.Client, bytes)
			for _, end := range [][2]*net.TCPConn{{c.Client, c.Server}, {c.Server, c.Client}} {
				// The window is the receiver's own, as far as the field reaches.
				window, want := testnet.ReadTCPInfo(t, end[0]).Snd_wnd, min(testnet.ReadTCPInfo(t, end[1]).Rcv_wnd, 65535<<scale)
				if c == plain {
					want = granted(grant, scale)
				} else if want <= grant {
					t.Fatalf("a receiver's own window is %d bytes", want)
				}
				if window != want {
					t.Logf("signed %t: window %d, want %d", c != plain, window, want)
					return false
				}
			}
			return true
		})
	}
	for _, n := range []*testnet.Namespace{p.Sender, p.Receiver} {
		for _, name := range []string{"TCPMD5NotFound", "TCPMD5Unexpected", "TCPMD5Failure"} {
			if bad := n.SNMP(t, "TcpExt", name); bad != 0 {
				t.Errorf("%s: %d segments", name, bad)
			}
		}
	}
	p.checksums(t)
	var out, in fairq.Stats
	testnet.Until(t, "all three connections count", func() bool { // on a slow machine the first is idle again when the last has sent
		for _, c := range all {
			testnet.Send(t, c.Client, c.Server, 1)
			testnet.Send(t, c.Server, c.Client, 1)
		}
		out, in = statsOfBoth(t, f)
		return out.Flows == 3 && in.Flows == 3
	})
	for _, s := range []fairq.Stats{out, in} {
		if s.Signed < 20 || s.Rewritten == 0 || s.Dropped != 0 {
			t.Errorf("%s: %d signed, %d rewritten, %d dropped", s.Port, s.Signed, s.Rewritten, s.Dropped)
		}
	}
	sources, err := f.SignedSources(10)
	if err != nil || len(sources) != 2 || sources[0].Segments+sources[1].Segments < out.Signed+in.Signed {
		t.Errorf("sources of signed segments: %+v, %v; %d signed", sources, err, out.Signed+in.Signed)
	}
}

// mostInFlight returns the most that any flow by a port had in flight.
func mostInFlight(t *testing.T, f *fairq.Attachment, port string) (most uint32) {
	t.Helper()
	for flow, err := range f.Flows(port) {
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, flow.InFlightBytes)
	}
	return most
}

// signed: limit. A signed connection carries all its data, and has no more in flight than the window that its
// port grants, although its sender never learns the window. (A packet that is segmented behind the switch
// counts once.)
func TestFairQ_SignedLimit(t *testing.T) {
	// The port is so slow that the first flight, 64 segments at once, waits in its queue however busy the
	// machine is.
	const grant, bytes, bps = 23457, 150_000, 2e6
	for _, offloads := range []bool{false, true} {
		for _, mode := range []fairq.Signed{fairq.SignedPass, fairq.SignedLimit} {
			t.Run(fmt.Sprintf("offloads=%t,mode=%d", offloads, mode), func(t *testing.T) {
				p := newRwndPath(t, testnet.PathOptions{PortBps: bps, GSO: offloads, ChecksumOffload: offloads})
				needMD5(t, p)
				f := p.govern(t, limitedTo(grant), limitedTo(grant), fairq.Config{Signed: mode, Watch: true})
				signing := p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(7), signedWith(testnet.SenderIPv4))
				c := p.Dial(t, signing, testnet.WindowScale(7), signedWith(testnet.ReceiverIPv4))
				testnet.Send(t, c.Client, c.Server, bytes)
				out, _ := statsOfBoth(t, f)
				most, limit := mostInFlight(t, f, out.Port), uint32(grant)
				if offloads {
					limit = 65535
				}
				limits := mode == fairq.SignedLimit
				if limits != (out.Dropped > 0) || limits && most > limit || !limits && most <= grant {
					t.Errorf("%d segments dropped, %d bytes in flight; granted %d", out.Dropped, most, grant)
				}
				for _, name := range []string{"TCPMD5NotFound", "TCPMD5Unexpected", "TCPMD5Failure"} {
					if bad := p.Receiver.SNMP(t, "TcpExt", name) + p.Sender.SNMP(t, "TcpExt", name); bad != 0 {
						t.Errorf("%s: %d segments", name, bad)
					}
				}
			})
		}
	}
}

// signed: drop. No signed connection opens and present ones stall, until the operator changes the setting;
// others continue.
func TestFairQ_SignedDrop(t *testing.T) {
	const grant, bytes = 23457, 100_000
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	needMD5(t, p)
	signing := p.Listen(t, testnet.ReceiverIPv4, signedWith(testnet.SenderIPv4))
	old := p.Dial(t, signing, signedWith(testnet.ReceiverIPv4))
	testnet.Send(t, old.Client, old.Server, bytes)
	f := p.govern(t, limitedTo(grant), limitedTo(grant), fairq.Config{Signed: fairq.SignedDrop})
	dropped := func() uint64 { out, _ := statsOfBoth(t, f); return out.Dropped }

	if _, err := old.Client.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "a segment of the old connection was dropped", func() bool { return dropped() > 0 })
	before := dropped()
	connectSigned(t, p, signing)
	testnet.Until(t, "a SYN was dropped, and the next", func() bool { return dropped() >= before+2 })
	plain := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4))
	testnet.Send(t, plain.Client, plain.Server, bytes)
	if _, err := f.Change(fairq.Config{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	late := make([]byte, 4)
	if err := old.Server.SetReadDeadline(time.Now().Add(testnet.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(old.Server, late); err != nil || string(late) != "late" {
		t.Errorf("after the change the old connection gave %q, %v", late, err)
	}
	if err := signing.SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
		t.Fatal(err)
	}
	young, err := signing.AcceptTCP()
	if err != nil {
		t.Fatalf("after the change no signed connection opens: %v", err)
	}
	_ = young.Close()
}

// connectSigned begins to open a signed connection, which lasts as long as the test.
func connectSigned(t *testing.T, p *rwndPath, l *net.TCPListener) {
	t.Helper()
	to := &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port}
	copy(to.Addr[:], testnet.ReceiverIPv4.To4())
	p.Sender.Must(t, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := signedWith(testnet.ReceiverIPv4)(fd); err != nil {
			return err
		}
		if err := unix.Connect(fd, to); !errors.Is(err, unix.EINPROGRESS) {
			return fmt.Errorf("connect: %w", err)
		}
		return nil
	})
}
