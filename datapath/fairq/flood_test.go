package fairq_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
	"weir/internal/testseed"
)

// live has a path's flows that no forged packet may disturb, and the switch's entries of them.
type live struct {
	*rwndPath
	f     *fairq.Attachment
	flows []*testnet.Pair
	known []fairq.Connection
	raw   [2]*testnet.Raw // at the sender's and the receiver's device: places of a forger
	link  [2]frames.Link  // of the frames that they send
	rand  *rand.Rand
}

const liveGrant = 30000

// newLive opens four connections of different scales and makes each send both ways.
func newLive(t *testing.T, c fairq.Config) *live {
	t.Helper()
	l := &live{rwndPath: newRwndPath(t, testnet.PathOptions{NoIPv6: true, GSO: true, ChecksumOffload: true})}
	l.rand = testseed.New(t)
	l.f = l.govern(t, limitedTo(liveGrant), limitedTo(liveGrant), c)
	for _, scale := range []int{0, 3, 7, 14} {
		l.flows = append(l.flows, l.Dial(t, l.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(scale)), testnet.WindowScale(14-scale)))
	}
	for i, at := range []attach.PortRef{l.Uplink, l.Rx} {
		l.raw[i] = testnet.NewRaw(t, at)
		err := at.In(func() error {
			device, err := netlink.LinkByIndex(at.Ifindex)
			if err == nil {
				copy(l.link[i].Src[:], device.Attrs().HardwareAddr)
				copy(l.link[1-i].Dst[:], device.Attrs().HardwareAddr)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	l.send(t)
	l.known = l.table(t)
	if len(l.known) != len(l.flows) {
		t.Fatalf("%d connections are known of %d", len(l.known), len(l.flows))
	}
	return l
}

// send makes every flow of l send both ways.
func (l *live) send(t *testing.T) {
	t.Helper()
	for _, c := range l.flows {
		testnet.Send(t, c.Client, c.Server, 100_000)
		testnet.Send(t, c.Server, c.Client, 100_000)
	}
}

// table reads the flow table, in order.
func (l *live) table(t *testing.T) []fairq.Connection {
	t.Helper()
	all, err := l.f.Connections()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b fairq.Connection) int {
		if d := a.End[0].Addr.Compare(b.End[0].Addr); d != 0 {
			return d
		}
		return a.End[1].Addr.Compare(b.End[1].Addr)
	})
	return all
}

// flood sends n forged segments to the receiver and waits until all have passed the switch.
func (l *live) flood(t *testing.T, n int, forge func(s *frames.Segment)) { l.floodFrom(t, 0, n, forge) }

// floodFrom is flood from the sender's device (0) or the receiver's (1).
func (l *live) floodFrom(t *testing.T, device, n int, forge func(s *frames.Segment)) {
	t.Helper()
	passed := func() uint64 {
		out, in := statsOfBoth(t, l.f)
		return []uint64{out.Seen, in.Seen}[device]
	}
	before := passed()
	for range n {
		s := &frames.Segment{
			Link: l.link[device], IP: frames.IP{From: l.stranger(), To: netip.AddrFrom4([4]byte(testnet.ReceiverIPv4.To4()))},
			FromPort: uint16(l.rand.Uint32()), ToPort: uint16(l.rand.Uint32()), Seq: l.rand.Uint32(), Ack: l.rand.Uint32(), Window: 1000,
		}
		forge(s)
		l.raw[device].Send(t, s.Bytes())
	}
	testnet.Until(t, fmt.Sprintf("%d segments have passed the switch", n), func() bool { return passed() >= before+uint64(n) })
}

// stranger returns an address that nobody has: 198.18.0.0/15.
func (l *live) stranger() netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 198<<24|18<<16|l.rand.Uint32()&(1<<17-1))
	return netip.AddrFrom4(b)
}

// check checks that the flows are known, counted and limited as they were before.
func (l *live) check(t *testing.T) {
	t.Helper()
	if now := l.table(t); !reflect.DeepEqual(now, l.known) {
		t.Errorf("the flow table has now\n%+v\nand had\n%+v", now, l.known)
	}
	testnet.Until(t, "all flows are counted, and no others", func() bool { // a flood can take longer than a silent flow counts
		for _, c := range l.flows {
			testnet.Send(t, c.Client, c.Server, 1)
			testnet.Send(t, c.Server, c.Client, 1)
		}
		out, in := statsOfBoth(t, l.f)
		n := uint32(len(l.flows))
		if out.Flows > n || in.Flows > n {
			t.Fatalf("%d flows and %d are counted of %d", out.Flows, in.Flows, n)
		}
		return out.Flows == n && in.Flows == n
	})
	if n, limit, err := l.f.Pending(); err != nil || n > limit {
		t.Errorf("%d half-open connections are kept, more than %d: %v", n, limit, err)
	}
	l.client.Each(t, func(*testnet.Segment) {}) // read the tap, or it drops segments at some point
	l.server.Each(t, func(*testnet.Segment) {})
	l.send(t)
	for _, c := range l.flows {
		for _, end := range []*net.TCPConn{c.Client, c.Server} {
			i := testnet.ReadTCPInfo(t, end)
			if want := granted(liveGrant, i.PeerScale); i.Snd_wnd != want {
				t.Errorf("%s has a window of %d, granted are %d", end.LocalAddr(), i.Snd_wnd, want)
			}
		}
	}
}

var synOptions = frames.List(frames.OptionNop, frames.MSS(1460), frames.Scale(7))

// Segments without a question and without an answer, from ever other ends, do not enter the flow table and do
// not count. The live flows stay unchanged. The table of half-open connections keeps its size, for any number of
// segments.
func TestFairQ_Floods(t *testing.T) {
	const frameCount = 6000 // more than three times the table of half-open connections
	for name, forge := range map[string]func(s *frames.Segment){
		"SYNs":                 func(s *frames.Segment) { s.Flags, s.Options = frames.SYN, synOptions },
		"SYNs with data":       func(s *frames.Segment) { s.Flags, s.Payload = frames.SYN, []byte("data") },
		"SYN-ACKs":             func(s *frames.Segment) { s.Flags, s.Options = frames.SYN|frames.ACK, synOptions },
		"acknowledgements":     func(s *frames.Segment) { s.Flags = frames.ACK },
		"data":                 func(s *frames.Segment) { s.Flags, s.Payload = frames.ACK|frames.PSH, []byte("data") },
		"FINs":                 func(s *frames.Segment) { s.Flags = frames.ACK | frames.FIN },
		"RSTs":                 func(s *frames.Segment) { s.Flags = frames.RST },
		"no flags":             func(s *frames.Segment) { s.Flags = 0 },
		"all flags, with data": func(s *frames.Segment) { s.Flags, s.Payload = 0xff, []byte("data") },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, fairq.Config{Flows: 1000})
			_, limit, err := l.f.Pending()
			if err != nil || limit*3 > frameCount {
				t.Fatalf("a table of %d half-open connections is too large for this test: %v", limit, err)
			}
			l.flood(t, frameCount, forge)
			l.check(t)
		})
	}
}

// Half-open connections are SYNs that the server answers and nobody acknowledges. They are not flows. A
// connection that opens among them is one.
func TestFairQ_HalfOpenConnections(t *testing.T) {
	l := newLive(t, fairq.Config{Flows: 1000})
	listener := l.Listen(t, testnet.ReceiverIPv4)
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	l.Receiver.Sysctl(t, "net.ipv4.tcp_syncookies", "2") // answers every SYN
	l.Receiver.Must(t, func() error {
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: l.Rx.Ifindex, Gw: testnet.SenderIPv4, Dst: &net.IPNet{IP: net.IPv4(198, 18, 0, 0), Mask: net.CIDRMask(15, 32)},
		})
	})
	const n = 3000
	_, before := statsOfBoth(t, l.f)
	l.flood(t, n, func(s *frames.Segment) { s.ToPort, s.Flags, s.Options = port, frames.SYN, synOptions })
	testnet.Until(t, "every SYN is answered", func() bool {
		_, now := statsOfBoth(t, l.f)
		return now.Seen >= before.Seen+n
	})
	l.check(t)
	// Only an acknowledgement with the right number opens them, and a forger cannot know the number.
	l.flood(t, n, func(s *frames.Segment) { s.ToPort, s.Flags = port, frames.ACK })
	l.check(t)
	c := l.Dial(t, listener)
	testnet.Send(t, c.Client, c.Server, 10_000)
	if now := l.table(t); len(now) != len(l.known)+1 {
		t.Errorf("%d connections are known with one more", len(now))
	}
}

// positions returns where the ends of the live flows are in their sequence spaces: behind their last bytes.
func (l *live) positions(t *testing.T) map[netip.AddrPort]uint32 {
	t.Helper()
	l.client.Each(t, func(*testnet.Segment) {})
	l.send(t)
	at := map[netip.AddrPort]uint32{}
	l.client.Each(t, func(s *testnet.Segment) { at[s.From] = s.End() })
	return at
}

// forge sends a segment in the name of the flow's client (0) or server (1), from that end's side.
func (l *live) forge(t *testing.T, c *testnet.Pair, end int, seq, ack uint32, flags byte) {
	t.Helper()
	ends := [2]netip.AddrPort{testnet.AddrPort(c.Client.LocalAddr()), testnet.AddrPort(c.Server.LocalAddr())}
	l.floodFrom(t, end, 1, func(s *frames.Segment) { forgeFor(s, ends[end], ends[1-end], seq, ack, flags) })
}

func forgeFor(s *frames.Segment, from, to netip.AddrPort, seq, ack uint32, flags byte) {
	s.Ack = ack
	s.From, s.FromPort, s.To, s.ToPort, s.Seq, s.Flags = from.Addr(), from.Port(), to.Addr(), to.Port(), seq, flags
	if flags&frames.SYN != 0 {
		s.Options = frames.List(frames.OptionNop, frames.MSS(100), frames.Scale(11))
	}
	if flags&frames.PSH != 0 {
		s.Payload = []byte("data")
	}
}

// Segments are forged for the live flows' own ends, with numbers that the ends do not accept. They may
// change the count, but it is right again when the flows continue, and the flows are known and limited as before.
func TestFairQ_ForgedForLiveFlows(t *testing.T) {
	t.Parallel()
	type step struct {
		end   int // 0: the client's name
		flags byte
	}
	const client, server, ack = 0, 1, frames.ACK
	for name, steps := range map[string][]step{
		"RST": {{client, frames.RST}}, "RST, ACK": {{client, frames.RST | ack}}, "FIN": {{client, frames.FIN | ack}},
		"SYN": {{client, frames.SYN}}, "SYN-ACK": {{client, frames.SYN | ack}}, "data": {{client, frames.PSH | ack}},
		"the server's RST": {{server, frames.RST}}, "the server's SYN-ACK": {{server, frames.SYN | ack}},
		"RST and SYN":       {{client, frames.RST}, {client, frames.SYN}},
		"both FINs and SYN": {{client, frames.FIN | ack}, {server, frames.FIN | ack}, {client, frames.SYN}},
		"both SYNs":         {{client, frames.SYN}, {server, frames.SYN}},
		"a handshake":       {{client, frames.SYN}, {server, frames.SYN | ack}, {client, ack}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, fairq.Config{})
			for _, ahead := range []int32{-2_000_000_000, -20_000_000, 20_000_000, 2_000_000_000} {
				at := l.positions(t)
				for _, c := range l.flows {
					// Each end's numbers are as far from its own position: the program accepts a FIN that is at
					// most FIN_REACH ahead of its sender.
					next := [2]uint32{
						at[testnet.AddrPort(c.Client.LocalAddr())] + uint32(ahead), at[testnet.AddrPort(c.Server.LocalAddr())] + uint32(ahead),
					}
					for _, step := range steps {
						l.forge(t, c, step.end, next[step.end], next[1-step.end], step.flags)
						if step.flags&frames.SYN != 0 {
							next[step.end]++
						}
					}
				}
				l.send(t)
				l.check(t)
			}
		})
	}
}

// A SYN that is forged for a connection older than Weir does not keep it out of the table.
func TestFairQ_ForgedSYNKeepsNobodyOut(t *testing.T) {
	for end := range 2 {
		l := newLive(t, fairq.Config{})
		if err := l.f.Close(); err != nil {
			t.Fatal(err)
		}
		l.f = l.govern(t, limitedTo(liveGrant), limitedTo(liveGrant), fairq.Config{})
		for _, c := range l.flows {
			seq := l.rand.Uint32()
			l.forge(t, c, end, seq, 0, frames.SYN)
			l.forge(t, c, 1-end, seq, seq+1, frames.SYN|frames.ACK)
		}
		l.send(t)
		now := l.table(t)
		for _, c := range now {
			if !c.Adopted {
				t.Errorf("not adopted: %+v", c)
			}
		}
		out, in := statsOfBoth(t, l.f)
		if n := uint32(len(l.flows)); len(now) != len(l.flows) || out.Flows != n || in.Flows != n {
			t.Errorf("%d connections are known and %d and %d flows counted, of %d", len(now), out.Flows, in.Flows, n)
		}
	}
}

// Data that is sent again behind a FIN does not undo the flow's end.
func TestFQ9_DataSentAgainBehindItsFIN(t *testing.T) {
	l := newLive(t, fairq.Config{})
	at := l.positions(t)
	for _, c := range l.flows {
		if err := c.Client.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	ended := func() (n int) {
		for _, c := range l.table(t) {
			for _, e := range c.End {
				if e.Ended {
					n++
				}
			}
		}
		return n
	}
	testnet.Until(t, "every client has ended", func() bool { return ended() == len(l.flows) })
	for _, c := range l.flows {
		l.forge(t, c, 0, at[testnet.AddrPort(c.Client.LocalAddr())]-4, 0, frames.PSH|frames.ACK)
	}
	if n := ended(); n != len(l.flows) {
		t.Errorf("%d clients have ended of %d", n, len(l.flows))
	}
}
