package metadata_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/metadata"
	"weir/datapath/testnet"
)

const (
	urlIPv4 = "http://169.254.169.253/"
	urlIPv6 = "http://[fe80::a9fe:a9fd%25eth0]/"
)

// ask returns the answer to a guest: its number.
func ask(t testing.TB, ns *testnet.Namespace, url string, body int) string {
	t.Helper()
	got, err := client(ns).Post(url, "text/plain", strings.NewReader(strings.Repeat("x", body)))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Two guests with the same IPv4 address each get their own answer, with offloads and without, by IPv4 and IPv6, also with a request of
// several segments. The host has no new device and no new address.
func TestAnswer_ByPort(t *testing.T) {
	for _, offload := range []bool{false, true} {
		t.Run(fmt.Sprintf("offloads=%t", offload), func(t *testing.T) {
			n := testnet.NewHypervisor(t, 2, 1, testnet.PathOptions{GSO: offload, ChecksumOffload: offload})
			twin(t, n)
			before := devices(t, n.Host)
			open(t, n, 0, 1)
			for i, guest := range n.Guests {
				route(t, guest, nil)
				for _, url := range []string{urlIPv4, urlIPv6} {
					for _, body := range []int{10, 6000} {
						if got := ask(t, guest, url, body); got != strconv.Itoa(i) {
							t.Errorf("%s, %d B: guest %d gets the answer of %s", url, body, i, got)
						}
					}
				}
			}
			if after := devices(t, n.Host); after != before {
				t.Errorf("devices and addresses were %s, and are %s", before, after)
			}
		})
	}
}

// twin gives guest 1 the IPv4 address of guest 0, and no other.
func twin(t *testing.T, n *testnet.Hypervisor) {
	t.Helper()
	n.Guests[1].Must(t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		mask := net.CIDRMask(16, 32)
		return errors.Join(netlink.AddrDel(l, &netlink.Addr{IPNet: &net.IPNet{IP: testnet.GuestIPv4(1), Mask: mask}}),
			netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: testnet.GuestIPv4(0), Mask: mask}}))
	})
}

func devices(t *testing.T, ns *testnet.Namespace) (out string) {
	t.Helper()
	ns.Must(t, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			addresses, err := netlink.AddrList(l, netlink.FAMILY_V4)
			if err != nil {
				return err
			}
			out += fmt.Sprint(l.Attrs().Name, addresses, " ")
		}
		return nil
	})
	return out
}

// A guest whose route to the address is a gateway's sends to the MAC of the gateway, without ARP for the address. Its other traffic passes
// the gateway's port as before. The network sees no frame of the address.
func TestAnswer_ByGateway(t *testing.T) {
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	open(t, n, 0)
	seen := testnet.NewRaw(t, n.Far)
	route(t, n.Guests[0], testnet.PeerIPv4(0))
	if got := ask(t, n.Guests[0], urlIPv4, 10); got != "0" {
		t.Errorf("%q", got)
	}
	if got := ask(t, n.Guests[0], urlIPv6, 10); got != "0" {
		t.Errorf("%q", got)
	}
	p := n.Path(0)
	c := p.Dial(t, p.Listen(t, testnet.PeerIPv4(0)))
	testnet.Send(t, c.Client, c.Server, 10_000)
	last := c.Client.LocalAddr().(*net.TCPAddr).Port
	seen.Receive(t, func(frame []byte) bool {
		for at := 0; at+4 <= min(len(frame), 100); at++ {
			if a := [4]byte(frame[at:]); netip.AddrFrom4(a) == ipv4 || a == [4]byte{0xa9, 0xfe, 0xa9, 0xfd} {
				t.Errorf("the network sees %x", frame[:min(len(frame), 100)])
			}
		}
		return len(frame) > 36 && frame[12] == 8 && int(frame[34])<<8|int(frame[35]) == last
	})
}

// Nothing else answers at the address: another TCP port is refused, and a datagram is dropped. A port that the host listens at is the
// host's alone.
func TestNothingElse(t *testing.T) {
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	m := open(t, n, 0)
	route(t, n.Guests[0], nil)
	var l net.Listener
	n.Host.Must(t, func() (err error) {
		l, err = net.Listen("tcp", ":0")
		return err
	})
	defer l.Close()
	n.Guests[0].Must(t, func() error {
		_, err := net.Dial("tcp4", netip.AddrPortFrom(ipv4, uint16(l.Addr().(*net.TCPAddr).Port)).String())
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("another port of the address: %v", err)
		}
		c, err := net.Dial("udp4", netip.AddrPortFrom(ipv4, 53).String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	})
	testnet.Until(t, "the datagram is dropped", func() bool {
		c, err := m.Counts()
		return err == nil && c.Dropped == 1 && c.Taken > 0
	})
}

// A VM that floods the address has a budget, and another VM gets its answers meanwhile.
func TestFlood(t *testing.T) {
	n := testnet.NewHypervisor(t, 2, 1, testnet.PathOptions{})
	m := open(t, n, 0, 1)
	route(t, n.Guests[1], nil)
	arp := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, n.MACs[0]...)
	arp = append(arp, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	arp = append(append(arp, n.MACs[0]...), testnet.GuestIPv4(0).To4()...)
	arp = append(append(arp, make([]byte, 6)...), ipv4.AsSlice()...)
	guest := attach.PortRef{Name: "guest", Enter: n.Guests[0].Enter}
	n.Guests[0].Must(t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			guest.Ifindex = l.Attrs().Index
		}
		return err
	})
	raw := testnet.NewRaw(t, guest)
	testnet.Until(t, "frames are above the budget", func() bool {
		for range 2000 {
			if err := raw.TrySend(arp); err != nil {
				t.Fatal(err)
			}
		}
		c, err := m.Counts()
		return err == nil && c.Dropped > 0
	})
	if got := ask(t, n.Guests[1], urlIPv4, 10); got != "1" {
		t.Errorf("%q", got)
	}
}

// A connection ends with Remove, and nothing is left at the port. The port can be added again.
func TestRemove(t *testing.T) {
	n := testnet.NewHypervisor(t, 1, 1, testnet.PathOptions{})
	m := open(t, n, 0)
	route(t, n.Guests[0], nil)
	var c net.Conn
	n.Guests[0].Must(t, func() (err error) {
		c, err = net.Dial("tcp4", netip.AddrPortFrom(ipv4, metadata.Port).String())
		return err
	})
	defer c.Close()
	answer := make([]byte, 4096)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Read(answer); err != nil || !strings.HasSuffix(string(answer[:got]), "0") {
		t.Fatalf("%q, %v", answer[:got], err)
	}
	if err := m.Add(n.Ports[0], n.MACs[0], nil); err == nil {
		t.Error("a port is served twice")
	}
	if err := m.Remove(n.Ports[0].Ifindex); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(testnet.Patience))
	if _, err := c.Read(answer); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("the connection: %v", err)
	}
	if err := m.Remove(n.Ports[0].Ifindex); err == nil {
		t.Error("removed twice")
	}
	left := 0
	n.Host.Must(t, func() error {
		programs, err := attach.ProgramsAt(n.Ports[0].Ifindex, ebpf.AttachTCXIngress)
		left = len(programs)
		return err
	})
	if left != 0 {
		t.Errorf("%d programs are left", left)
	}
	add(t, m, n, 0)
	if got := ask(t, n.Guests[0], urlIPv4, 10); got != "0" {
		t.Errorf("%q", got)
	}
}
