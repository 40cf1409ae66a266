package metadata

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"weir/datapath/internal/frames"
	"weir/internal/testseed"
)

// Frames that a hostile guest could send, 20,000 of them, do not end the process, and the stack still answers ARP afterwards.
func TestStack_HostileFrames(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	a4, a6 := netip.MustParseAddr("169.254.169.253"), netip.MustParseAddr("fe80::a9fe:a9fd")
	s := &http.Server{Handler: http.NotFoundHandler()}
	defer s.Close()
	p := &port{mac: net.HardwareAddr{2, 0, 0, 0, 0, 1}, cfg: Config{IPv4: a4, IPv6: a6}, socket: pair[0], serve: func(l net.Listener) { _ = s.Serve(l) }}
	arp := slices.Concat(MAC, p.mac, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1}, p.mac, []byte{10, 0, 0, 1}, make([]byte, 6), a4.AsSlice())
	solicit := slices.Concat([]byte{135, 0, 0, 0, 0, 0, 0, 0}, a6.AsSlice(), []byte{1, 1}, p.mac)
	r := testseed.New(t)
	for range 20_000 {
		s := frames.Segment{FromPort: uint16(1024 + r.IntN(4)), ToPort: Port, Flags: byte(r.IntN(64)), Seq: r.Uint32N(4), Window: 100, Payload: []byte("GET / HTTP/1.1\r\n")}
		s.From, s.To = netip.MustParseAddr("10.0.0.1"), a4
		if r.IntN(2) == 0 {
			s.From, s.To = netip.MustParseAddr("fe80::1"), a6
		}
		frame := s.Append(nil)
		switch r.IntN(8) {
		case 0:
			frame = slices.Clone(arp)
		case 1:
			frame = frames.Packet(s.Link, s.IP, 58, solicit)
		}
		p.receive(frames.Mutate(r, frame))
		for in := make([]byte, 4096); err == nil; {
			_, err = unix.Read(pair[1], in) // makes room
		}
		err = nil
	}
	p.receive(arp)
	answered := false
	for in := make([]byte, 4096); !answered; {
		n, err := unix.Read(pair[1], in)
		if err != nil {
			t.Fatal(io.ErrUnexpectedEOF)
		}
		answered = n >= 42 && in[12] == 8 && in[13] == 6 && in[21] == 2
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}
