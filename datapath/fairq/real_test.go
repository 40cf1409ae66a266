package fairq_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// Connections over IPv6, with scales that differ.
func TestFairQ_IPv6(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		p := newCellPath(t, testnet.PathOptions{MTU: mtu, GSO: true, ChecksumOffload: true})
		for _, grant := range []uint32{23457, 0} {
			law := limitedTo(grant)
			law.MTU = uint32(mtu)
			f := p.govern(t, law, law, fairq.Config{})
			for _, on := range []bool{true, false} {
				for _, port := range []attach.PortRef{p.Uplink, p.In, p.Port, p.Rx} {
					testnet.SetOffloads(t, port, on)
				}
				var sum cells
				p.all(t, &sum, testnet.ReceiverIPv6, []int{0, 5, 9, 14}, []int{0, 7, 14}, grant)
				p.checksums(t)
				sum.report(t)
			}
			if err := f.Detach(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Only flows with both ends in a prefix of the scope are limited and counted. An IPv6 prefix never includes
// IPv4, although IPv4 is mapped into IPv6 in the kernel's table.
func TestFairQ_Scope(t *testing.T) {
	for _, c := range []struct {
		scope    string
		ip       net.IP
		in, more bool // the flow is in the scope; with a second prefix for the rest
	}{
		{scope: "10.0.0.0/24", ip: testnet.ReceiverIPv4, in: true},
		{scope: "0.0.0.0/0", ip: testnet.ReceiverIPv4, in: true},
		{scope: "10.0.0.1/32", ip: testnet.ReceiverIPv4}, // the receiver is outside
		{scope: "10.0.0.2/32", ip: testnet.ReceiverIPv4}, // the sender is
		{scope: "10.0.1.0/24", ip: testnet.ReceiverIPv4},
		{scope: "::/0", ip: testnet.ReceiverIPv4},
		{scope: "fd00::/64", ip: testnet.ReceiverIPv4},
		{scope: "fd00::/64", ip: testnet.ReceiverIPv6, in: true},
		{scope: "::/0", ip: testnet.ReceiverIPv6, in: true},
		{scope: "fd00::1/128", ip: testnet.ReceiverIPv6},
		{scope: "fd00::2/128", ip: testnet.ReceiverIPv6},
		{scope: "0.0.0.0/0", ip: testnet.ReceiverIPv6},
	} {
		t.Run(fmt.Sprintf("%s,%s", c.scope, c.ip), func(t *testing.T) {
			p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
			f := p.govern(t, limitedTo(23457), limitedTo(23457), fairq.Config{Scope: []netip.Prefix{netip.MustParsePrefix(c.scope)}})
			flow := p.Dial(t, p.Listen(t, c.ip, testnet.WindowScale(5)), testnet.WindowScale(9))
			testnet.Send(t, flow.Client, flow.Server, 100_000)
			testnet.Send(t, flow.Server, flow.Client, 100_000)
			p.checkScope(t, f, flow, c.in)
		})
	}
}

// checkLimited checks that both ends of a flow have the window 23457, or those that the other end announces.
func checkLimited(t *testing.T, flow *testnet.Pair, limited bool) {
	t.Helper()
	client, server := testnet.ReadTCPInfo(t, flow.Client), testnet.ReadTCPInfo(t, flow.Server)
	wantClient, wantServer := server.Rcv_wnd, client.Rcv_wnd
	if limited {
		wantClient, wantServer = granted(23457, client.PeerScale), granted(23457, server.PeerScale)
	}
	if client.Snd_wnd != wantClient || server.Snd_wnd != wantServer {
		t.Errorf("windows of %d and %d, want %d and %d", client.Snd_wnd, server.Snd_wnd, wantClient, wantServer)
	}
}

// checkScope checks that a flow was limited and counted as one in the scope, or not at all.
func (p *rwndPath) checkScope(t *testing.T, f *fairq.Attachment, flow *testnet.Pair, in bool) {
	t.Helper()
	checkLimited(t, flow, in)
	stats, err := f.Stats()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stats {
		if limited := s.Rewritten > 0 && s.Flows > 0; limited != in {
			t.Errorf("%s: %d rewritten, %d flows", s.Port, s.Rewritten, s.Flows)
		}
		if out := s.OutOfScope > 0 && s.Opened == 0 && s.Unknown == 0 && s.Data == 0; out == in {
			t.Errorf("%s: %d out of scope, %d opened, %d unknown, %d with data", s.Port, s.OutOfScope, s.Opened, s.Unknown, s.Data)
		}
	}
	p.checksums(t)
}

// A changed scope applies to connections that are in the table.
func TestFairQ_ScopeChanges(t *testing.T) {
	pin := testnet.Mount(t, "bpf") + "/weir"
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	ports := []fairq.Port{{PortRef: p.Port, Law: limitedTo(23457)}, {PortRef: p.In, Law: limitedTo(23457)}}
	begin := func(scope string) *fairq.Attachment {
		t.Helper()
		f, err := fairq.Attach(ports, fairq.Config{Pin: pin, Lease: time.Hour, Scope: []netip.Prefix{netip.MustParsePrefix(scope)}})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := begin("10.0.0.0/8")
	flow := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(5)))
	testnet.Send(t, flow.Client, flow.Server, 100_000)
	if w := testnet.ReadTCPInfo(t, flow.Client).Snd_wnd; w != granted(23457, 5) {
		t.Errorf("in the scope: window %d", w)
	}
	if err := f.Leave(); err != nil {
		t.Fatal(err)
	}
	f = begin("10.0.1.0/24")
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := f.Heartbeat(); err != nil {
		t.Fatal(err)
	}
	testnet.Send(t, flow.Client, flow.Server, 100_000)
	if own, w := testnet.ReadTCPInfo(t, flow.Server).Rcv_wnd, testnet.ReadTCPInfo(t, flow.Client).Snd_wnd; w != own {
		t.Errorf("out of it: window %d, its receiver announces %d", w, own)
	}
}

// leftMoves counts how often the right edge of a sender's window moved to the left, over all its ACKs.
func leftMoves(t *testing.T, tap *testnet.Tap) (left, acks int) {
	t.Helper()
	type edge struct{ right, acked uint32 }
	type direction struct{ from, to netip.AddrPort }
	edges := map[direction]*edge{}
	scales := map[netip.AddrPort]uint8{}
	tap.Each(t, func(s *testnet.Segment) {
		if s.Flags&testnet.SYN != 0 {
			if o := s.Option(3); len(o) == 1 {
				scales[s.From] = o[0]
			}
		}
		if s.Out || s.Flags&testnet.ACK == 0 || s.Flags&testnet.RST != 0 {
			return
		}
		scale := scales[s.From]
		if s.Flags&testnet.SYN != 0 {
			scale = 0
		}
		right := s.Ack + uint32(s.Window)<<scale
		e := edges[direction{s.From, s.To}]
		if e == nil {
			edges[direction{s.From, s.To}] = &edge{right, s.Ack}
			return
		}
		if int32(s.Ack-e.acked) < 0 {
			return // overtaken: no sender takes its window from it
		}
		acks++
		if int32(right-e.right) < 0 {
			left++
		} else {
			e.right = right
		}
		e.acked = s.Ack
	})
	return left, acks
}

// With `shrink: avoid` no sender's right edge ever moves to the left while flows come and windows fall; with
// `allow` it does. Either way windows fall to the flows' shares.
func TestFairQ_Shrink(t *testing.T) {
	const flows, grant = 6, 60_000
	for _, shrink := range []fairq.Shrink{fairq.ShrinkAllow, fairq.ShrinkAvoid} {
		t.Run(fmt.Sprint("avoid=", shrink == fairq.ShrinkAvoid), func(t *testing.T) {
			p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
			// The windows are 60 kB together, and a segment more with each second that the test takes.
			law := fairq.Law{
				TargetBytes: grant, Tick: time.Second, Period: time.Second, SlowStart: fairq.SlowStartOff, Active: 4 * time.Second,
			}
			f := p.govern(t, law, law, fairq.Config{Shrink: shrink})
			var all []*testnet.Pair
			for i := range flows {
				all = append(all, p.Dial(t, p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(2*i)), testnet.WindowScale(2*i)))
				for _, c := range all {
					testnet.Send(t, c.Client, c.Server, 100_000)
				}
			}
			left, acks := leftMoves(t, p.client)
			if none := left == 0; none != (shrink == fairq.ShrinkAvoid) || acks < 300 {
				t.Errorf("the right edge moved left %d times in %d ACKs", left, acks)
			}
			t.Logf("the right edge moved left %d times in %d ACKs", left, acks)
			out, _ := statsOfBoth(t, f)
			if out.GrantBytes < grant/flows {
				t.Fatalf("%d B are granted to each of %d flows", out.GrantBytes, flows)
			}
			for _, c := range all {
				i := testnet.ReadTCPInfo(t, c.Client)
				least, most := granted(grant/flows, i.PeerScale), granted(uint32(out.GrantBytes), i.PeerScale)
				if i.Snd_wnd < least || i.Snd_wnd > most {
					t.Errorf("scale %d: window %d, want %d to %d", i.PeerScale, i.Snd_wnd, least, most)
				}
			}
		})
	}
}

// A receiver whose own window is smaller than the grant keeps it.
func TestFairQ_SmallerWindowsStay(t *testing.T) {
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	f := p.govern(t, limitedTo(23457), limitedTo(23457), fairq.Config{})
	small := func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8000) }
	c := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4, small))
	testnet.Send(t, c.Client, c.Server, 200_000)
	w, own := testnet.ReadTCPInfo(t, c.Client).Snd_wnd, testnet.ReadTCPInfo(t, c.Server).Rcv_wnd
	if w != own || own >= 23457 {
		t.Errorf("window %d, the receiver's own is %d", w, own)
	}
	if _, in := statsOfBoth(t, f); in.Rewritten != 0 || in.Smaller == 0 {
		t.Errorf("%d rewritten, %d smaller", in.Rewritten, in.Smaller)
	}
}

// A receiver that does not read closes its window, and it stays closed: probes are answered with 0. When it
// reads, the flow continues.
func TestFairQ_ZeroWindowsStay(t *testing.T) {
	t.Parallel()
	const bytes = 40_000_000 // more than any receive buffer: 1 MB fitted into one, once
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	p.govern(t, limitedTo(23457), limitedTo(23457), fairq.Config{})
	for _, scale := range []int{0, 7, 14} {
		c := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(scale)))
		sent := make(chan error, 1)
		go func() {
			_, err := c.Client.Write(make([]byte, bytes))
			sent <- err
		}()
		testnet.Until(t, "the window is closed and was probed twice", func() bool {
			i := testnet.ReadTCPInfo(t, c.Client)
			return i.Snd_wnd == 0 && i.Backoff >= 2
		})
		closed, last := 0, uint16(0)
		from := testnet.AddrPort(c.Server.LocalAddr())
		p.client.Each(t, func(s *testnet.Segment) {
			if s.From != from {
				return
			}
			last = s.Window
			if last == 0 {
				closed++
			}
		})
		if closed < 2 || last != 0 {
			t.Errorf("scale %d: %d ACKs with a closed window, the last window is %d", scale, closed, last)
		}
		if n, err := io.CopyN(io.Discard, c.Server, bytes); err != nil {
			t.Fatalf("scale %d: %d bytes of %d arrived: %v", scale, n, bytes, err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if w := testnet.ReadTCPInfo(t, c.Client).Snd_wnd; w == 0 {
			t.Errorf("scale %d: the window stays closed", scale)
		}
		c.Close()
	}
}

// A window of exactly one segment, the obvious floor, is starvation: the receiver waits for a second segment,
// and then for 40 ms, before it acknowledges one. The floor leaves room for more.
//
// The receiver's program reads only when everything is acknowledged. So only the kernel decides when it acknowledges, however
// late the program runs.
func TestFQ12_FloorIsMoreThanOneSegment(t *testing.T) {
	const segments = 30 // they fit into a buffer of the default size
	for _, c := range []struct {
		floor uint32 // 0: the law's own
		mss   uint32
		slow  bool
	}{{floor: 1460, mss: 1460, slow: true}, {floor: 0, mss: 1460}} {
		p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
		p.Sender.Sysctl(t, "net.ipv4.tcp_timestamps", "0") // with them a segment is smaller than the MSS option
		p.govern(t, limitedTo(c.floor), limitedTo(c.floor), fairq.Config{})
		flow := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(0)))
		testnet.Send(t, flow.Client, flow.Server, 20*int(c.mss)) // the first 20 are never delayed
		before := p.delayedACKs(t)
		testnet.SendUnread(t, flow.Client, flow.Server, segments*int(c.mss))
		delayed := p.delayedACKs(t) - before
		i := testnet.ReadTCPInfo(t, flow.Client)
		if i.Snd_mss != c.mss {
			t.Errorf("floor %d: an MSS of %d, want %d", c.floor, i.Snd_mss, c.mss)
		}
		if slow := delayed > segments/4; slow != c.slow || !slow && delayed > 3 {
			t.Errorf("floor %d, window %d: %d of %d acknowledgements were delayed", c.floor, i.Snd_wnd, delayed, segments)
		}
		t.Logf("floor %d, window %d: %d of %d acknowledgements were delayed", c.floor, i.Snd_wnd, delayed, segments)
	}
}

// A receiver may announce an MSS that the sender's port cannot carry, for instance one with jumbo frames. Its
// floor does not grow by it.
func TestFairQ_MSSBeyondThePort(t *testing.T) {
	const grant = 3000
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	p.Receiver.Must(t, func() error {
		l, err := netlink.LinkByIndex(p.Rx.Ifindex)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(l, 9000)
	})
	law := limitedTo(0)
	law.CapBytes = grant
	p.govern(t, law, law, fairq.Config{})
	c := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(0)))
	testnet.Send(t, c.Client, c.Server, 50_000)
	if i := testnet.ReadTCPInfo(t, c.Client); i.Snd_wnd != grant || i.Snd_mss != 1448 || testnet.ReadTCPInfo(t, c.Server).Advmss < 8900 {
		t.Errorf("window %d, want %d, MSS %d", i.Snd_wnd, grant, i.Snd_mss)
	}
}
