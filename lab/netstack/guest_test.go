package netstack

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
)

// The guest is at the receiver of a testnet.Path; its kernel has other addresses.
var (
	guestAddr = netip.AddrFrom4([4]byte{10, 9, 0, 2})
	peerAddr  = netip.AddrFrom4([4]byte{10, 9, 0, 1}) // the source of frames made by hand
)

// open starts a guest at the end of a path; all it sends goes to the path's sender.
func open(t *testing.T, p *testnet.Path) *Guest {
	t.Helper()
	return openWith(t, p, Defaults())
}

func openWith(t *testing.T, p *testnet.Path, settings Settings) *Guest {
	t.Helper()
	peer, own := hardware(t, p.Uplink.In, p.Uplink.Ifindex), hardware(t, p.Rx.In, p.Rx.Ifindex)
	var g *Guest
	err := p.Rx.In(func() (err error) {
		g, err = Open(Config{
			Ifindex: p.Rx.Ifindex, MAC: own, MTU: 1500, Addr: guestAddr, Settings: settings,
			Next: func(a netip.Addr) (net.HardwareAddr, bool) { return peer, a == peerAddr },
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func hardware(t *testing.T, in func(func() error) error, ifindex int) (mac net.HardwareAddr) {
	t.Helper()
	err := in(func() error {
		l, err := netlink.LinkByIndex(ifindex)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// syn is a frame with a SYN from a port of the peer, with correct checksums.
func syn(t *testing.T, p *testnet.Path, from uint16) []byte {
	t.Helper()
	f := make([]byte, 54)
	copy(f, hardware(t, p.Rx.In, p.Rx.Ifindex))
	copy(f[6:], hardware(t, p.Uplink.In, p.Uplink.Ifindex))
	f[12], f[13] = 8, 0
	ip := f[14:34]
	ip[0], ip[3], ip[8], ip[9] = 0x45, 40, 64, unix.IPPROTO_TCP
	source, destination := peerAddr.As4(), guestAddr.As4()
	copy(ip[12:], source[:])
	copy(ip[16:], destination[:])
	tcp := f[34:]
	binary.BigEndian.PutUint16(tcp, from)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	tcp[12], tcp[13] = 5<<4, 2
	binary.BigEndian.PutUint16(tcp[14:], 1000)
	binary.BigEndian.PutUint16(ip[10:], ^slowSum(ip))
	pseudo := append(append([]byte{}, ip[12:20]...), 0, unix.IPPROTO_TCP, 0, 20)
	binary.BigEndian.PutUint16(tcp[16:], ^slowSum(append(pseudo, tcp...)))
	return f
}

// slowSum is the Internet checksum's sum, word by word.
func slowSum(b []byte) uint16 {
	total := 0
	for i := 0; i+1 < len(b); i += 2 {
		total += int(b[i])<<8 | int(b[i+1])
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}

// Frames with a wrong checksum are dropped: the first answer is for the first correct frame.
func TestChecksumsAreChecked(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{NoIPv6: true})
	g := open(t, p)
	l, err := g.Listen(80)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw := testnet.NewRaw(t, p.Uplink)
	wrongTCP, wrongIP, elsewhere, right := syn(t, p, 1001), syn(t, p, 1002), syn(t, p, 1003), syn(t, p, 1004)
	wrongTCP[50] ^= 1
	wrongIP[24] ^= 1
	elsewhere[33]++ // another address, with both checksums corrected
	binary.BigEndian.PutUint16(elsewhere[24:], binary.BigEndian.Uint16(elsewhere[24:])-1)
	binary.BigEndian.PutUint16(elsewhere[50:], binary.BigEndian.Uint16(elsewhere[50:])-1)
	for _, f := range [][]byte{wrongTCP, wrongIP, elsewhere, right} {
		raw.Send(t, f)
	}
	got := raw.Receive(t, func(f []byte) bool { return len(f) >= 54 && f[23] == unix.IPPROTO_TCP })
	if port := binary.BigEndian.Uint16(got.Data[36:]); port != 1004 || got.Data[47]&0x12 != 0x12 {
		t.Errorf("flags %#x to port %d, want SYN and ACK to 1004", got.Data[47], port)
	}
	ip, tcp := got.Data[14:34], got.Data[34:14+binary.BigEndian.Uint16(got.Data[16:])]
	pseudo := append(append([]byte{}, ip[12:20]...), 0, unix.IPPROTO_TCP, 0, byte(len(tcp)))
	if got.Partial || slowSum(ip) != 0xffff || slowSum(append(pseudo, tcp...)) != 0xffff {
		t.Errorf("sent with checksums unfinished (%v) or wrong: % x", got.Partial, got.Data)
	}
}

// The kernel's own connections may have unfinished checksums, or finished ones; both are accepted.
func TestLinuxTalksToNetstack(t *testing.T) {
	for _, offload := range []bool{true, false} {
		p := testnet.NewPath(t, testnet.PathOptions{NoIPv6: true, ChecksumOffload: offload})
		g := open(t, p)
		l, err := g.Listen(80)
		if err != nil {
			t.Fatal(err)
		}
		client := dialFromKernel(t, p)
		server, _ := l.Accept()
		if server == nil {
			t.Fatal("nothing accepted")
		}
		const size = 1_000_001
		go func() {
			_, _ = client.Write(make([]byte, size)) // the reader reports errors
			client.Close()
		}()
		got := 0
		for {
			n, err := server.Discard(1 << 20)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
		if got != size || server.Timeouts() != 0 {
			t.Errorf("offload %v: %d B of %d, %d timeouts", offload, got, size, server.Timeouts())
		}
		server.Close()
		if trouble, err := g.Trouble(); trouble != (Trouble{}) || err != nil {
			t.Errorf("offload %v: %+v, %v", offload, trouble, err)
		}
	}
}

// dialFromKernel connects the path's sender, at the peer's address, to port 80 of the guest.
func dialFromKernel(t *testing.T, p *testnet.Path) net.Conn {
	t.Helper()
	mac := hardware(t, p.Rx.In, p.Rx.Ifindex)
	var c net.Conn
	err := p.Uplink.In(func() error {
		link, err := netlink.LinkByIndex(p.Uplink.Ifindex)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: peerAddr.AsSlice(), Mask: net.CIDRMask(24, 32)}}); err != nil {
			return err
		}
		if err := netlink.NeighSet(&netlink.Neigh{
			LinkIndex: p.Uplink.Ifindex, State: netlink.NUD_PERMANENT, IP: guestAddr.AsSlice(), HardwareAddr: mac,
		}); err != nil {
			return err
		}
		c, err = net.Dial("tcp4", netip.AddrPortFrom(guestAddr, 80).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A closed guest leaves no caller waiting and no resources.
func TestCloseEndsEverything(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{NoIPv6: true})
	routines, files := runtime.NumGoroutine(), openFiles(t)
	g := open(t, p)
	l, err := g.Listen(80)
	if err != nil {
		t.Fatal(err)
	}
	client := dialFromKernel(t, p)
	reading, _ := l.Accept()
	connecting, err := g.NewConn()
	if err != nil {
		t.Fatal(err)
	}
	// No host has this address: the SYN is not answered.
	if _, err := connecting.Connect(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 0, 77}), 80)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 3)
	go func() { _, err := reading.Discard(1); ended <- err }()
	go func() { _, err := connecting.Write([]byte{0}); ended <- err }()
	go func() {
		if c, _ := l.Accept(); c != nil {
			ended <- errors.New("a connection out of nowhere")
			return
		}
		ended <- io.EOF
	}()
	reading.Abort()
	connecting.Abort()
	l.Close()
	for range 3 {
		if err := <-ended; err == nil {
			t.Error("somebody got what never came")
		}
	}
	if n := connecting.Timeouts(); n != 0 {
		t.Errorf("%d timeouts of a connection that had no time for any", n)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the far end of an aborted connection: %v, want reset", err)
	}
	client.Close()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(testnet.Patience); runtime.NumGoroutine() > routines && time.Now().Before(end); {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > routines {
		t.Errorf("%d goroutines, before %d", n, routines)
	}
	if n := openFiles(t); n > files {
		t.Errorf("%d open files, before %d", n, files)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []Config{
		{Addr: netip.MustParseAddr("fd00::1"), Settings: Defaults()},
		{Addr: guestAddr, Ifindex: 12345, MTU: 1500, Settings: Defaults()},
	} {
		if g, err := Open(c); err == nil {
			t.Errorf("%+v: no error", c)
			g.Close()
		}
	}
}
