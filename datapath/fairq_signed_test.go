package datapath_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"weir/datapath"
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

// needMD5 skips the test on a kernel that was built without TCP-MD5, which is what this error says.
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

// Connections whose segments are signed carry data through ports that hold others to their windows: their
// own are never touched, and they are not counted. So are those that began before the law.
func TestFairQ_SignedConnectionsLive(t *testing.T) {
	t.Parallel()
	for _, offloads := range []bool{true, false} {
		for _, ip := range []net.IP{testnet.ReceiverIPv4, testnet.ReceiverIPv6} {
			for name, c := range map[string]datapath.FairQConfig{
				"active": {}, "handshake": {Count: datapath.FairQCountHandshake}, "unify": {Scale: datapath.FairQScaleUnify, UnifyShift: 3},
			} {
				t.Run(fmt.Sprintf("offloads=%t,%s,%s", offloads, ip, name), func(t *testing.T) {
					signedLive(t, testnet.PathOptions{GSO: offloads, ChecksumOffload: offloads}, ip, c)
				})
			}
		}
	}
}

func signedLive(t *testing.T, o testnet.PathOptions, ip net.IP, config datapath.FairQConfig) {
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
	f := p.govern(t, held(grant), held(grant), config)
	plain := p.Dial(t, p.Listen(t, ip, testnet.WindowScale(scale)), testnet.WindowScale(scale))
	young := p.Dial(t, signing, testnet.WindowScale(scale), signedWith(ip))
	for _, c := range []*testnet.Pair{plain, young, old} {
		testnet.Send(t, c.Client, c.Server, bytes)
		testnet.Send(t, c.Server, c.Client, bytes)
		for _, end := range [][2]*net.TCPConn{{c.Client, c.Server}, {c.Server, c.Client}} {
			// The receiver's own, as far as the field goes.
			window, want := testnet.ReadTCPInfo(t, end[0]).Snd_wnd, min(testnet.ReadTCPInfo(t, end[1]).Rcv_wnd, 65535<<scale)
			if c == plain {
				want = granted(grant, scale)
			}
			if window != want || c != plain && want <= grant {
				t.Errorf("signed %t: window %d, want %d", c != plain, window, want)
			}
		}
	}
	for _, n := range []*testnet.Namespace{p.Sender, p.Receiver} {
		for _, name := range []string{"TCPMD5NotFound", "TCPMD5Unexpected", "TCPMD5Failure"} {
			if bad := n.SNMP(t, "TcpExt", name); bad != 0 {
				t.Errorf("%s: %d segments", name, bad)
			}
		}
	}
	p.checksums(t)
	out, in := fairQStats(t, f)
	for _, s := range []datapath.FairQStats{out, in} {
		if s.Signed < 20 || s.Flows != 1 || s.Rewritten == 0 {
			t.Errorf("%s: %d signed, %d flows, %d rewritten", s.Port, s.Signed, s.Flows, s.Rewritten)
		}
	}
}
