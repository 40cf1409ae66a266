package datapath_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// live are a path's flows that nothing forged may disturb, and what the switch knows of them.
type live struct {
	*rwndPath
	f     *datapath.FairQ
	flows []*testnet.Pair
	known []datapath.FairQConnection
	raw   *testnet.Raw // at the sender's device: whoever is there can forge
	link  frames.Link
	rand  *rand.Rand
}

const liveGrant = 30000

// newLive opens four connections of different scales and has each send both ways.
func newLive(t *testing.T, c datapath.FairQConfig) *live {
	t.Helper()
	l := &live{rwndPath: newRwndPath(t, testnet.PathOptions{NoIPv6: true, GSO: true, ChecksumOffload: true})}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	l.rand = rand.New(rand.NewPCG(seed, 0))
	l.f = l.govern(t, held(liveGrant), held(liveGrant), c)
	for _, scale := range []int{0, 3, 7, 14} {
		l.flows = append(l.flows, l.Dial(t, l.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(scale)), testnet.WindowScale(14-scale)))
	}
	l.raw = testnet.NewRaw(t, l.Uplink)
	l.Sender.Must(t, func() error {
		list, err := netlink.NeighList(l.Uplink.Ifindex, netlink.FAMILY_V4)
		for _, n := range list {
			if n.IP.Equal(testnet.ReceiverIPv4) {
				copy(l.link.Dst[:], n.HardwareAddr)
			}
		}
		copy(l.link.Src[:], net.HardwareAddr{2, 0, 0, 0, 0, 9})
		return err
	})
	l.send(t)
	l.known = l.table(t)
	if len(l.known) != len(l.flows) {
		t.Fatalf("%d connections are known of %d", len(l.known), len(l.flows))
	}
	return l
}

// send has every live flow send both ways.
func (l *live) send(t *testing.T) {
	t.Helper()
	for _, c := range l.flows {
		testnet.Send(t, c.Client, c.Server, 100_000)
		testnet.Send(t, c.Server, c.Client, 100_000)
	}
}

// table reads the flow table, in order.
func (l *live) table(t *testing.T) []datapath.FairQConnection {
	t.Helper()
	all, err := l.f.Connections()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b datapath.FairQConnection) int {
		if d := a.End[0].Addr.Compare(b.End[0].Addr); d != 0 {
			return d
		}
		return a.End[1].Addr.Compare(b.End[1].Addr)
	})
	return all
}

// flood sends n forged segments and waits until all have passed the switch.
func (l *live) flood(t *testing.T, n int, forge func(s *frames.Segment)) {
	t.Helper()
	before, _ := fairQStats(t, l.f)
	for range n {
		s := &frames.Segment{
			Link: l.link, IP: frames.IP{From: l.stranger(), To: netip.AddrFrom4([4]byte(testnet.ReceiverIPv4.To4()))},
			FromPort: uint16(l.rand.Uint32()), ToPort: uint16(l.rand.Uint32()), Seq: l.rand.Uint32(), Ack: l.rand.Uint32(), Window: 1000,
		}
		forge(s)
		l.raw.Send(t, s.Bytes())
	}
	testnet.Until(t, fmt.Sprintf("%d segments have passed the switch", n), func() bool {
		now, _ := fairQStats(t, l.f)
		return now.Seen >= before.Seen+uint64(n)
	})
}

// stranger is an address that nobody has: 198.18.0.0/15.
func (l *live) stranger() netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 198<<24|18<<16|l.rand.Uint32()&(1<<17-1))
	return netip.AddrFrom4(b)
}

// check says whether the flows are known, counted and held as they were before.
func (l *live) check(t *testing.T) {
	t.Helper()
	if now := l.table(t); !reflect.DeepEqual(now, l.known) {
		t.Errorf("the flow table has now\n%+v\nand had\n%+v", now, l.known)
	}
	out, in := fairQStats(t, l.f)
	if n := uint32(len(l.flows)); out.Flows != n || in.Flows != n {
		t.Errorf("%d flows and %d are counted of %d", out.Flows, in.Flows, n)
	}
	if n, limit, err := l.f.Pending(); err != nil || n > limit {
		t.Errorf("%d half-open connections are kept, more than %d: %v", n, limit, err)
	}
	l.client.Each(t, func(*testnet.Segment) {}) // what a tap does not read, it drops in the end
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

// Segments that answer nothing and that nothing answers, from ever other ends, neither come into the flow
// table nor count, and the flows that are there stay as they are. Whatever the number, the table of what
// is half-open keeps its size.
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
			l := newLive(t, datapath.FairQConfig{Flows: 1000})
			_, limit, err := l.f.Pending()
			if err != nil || limit*3 > frameCount {
				t.Fatalf("a table of %d half-open connections is too large for this test: %v", limit, err)
			}
			l.flood(t, frameCount, forge)
			l.check(t)
		})
	}
}

// Half-open connections: SYNs that the server answers and nobody acknowledges. They are not flows, and a
// connection that opens among them is.
func TestFairQ_HalfOpenConnections(t *testing.T) {
	l := newLive(t, datapath.FairQConfig{Flows: 1000})
	listener := l.Listen(t, testnet.ReceiverIPv4)
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	l.Receiver.Sysctl(t, "net.ipv4.tcp_syncookies", "2") // answers every SYN
	l.Receiver.Must(t, func() error {
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: l.Rx.Ifindex, Gw: testnet.SenderIPv4, Dst: &net.IPNet{IP: net.IPv4(198, 18, 0, 0), Mask: net.CIDRMask(15, 32)},
		})
	})
	const n = 3000
	_, before := fairQStats(t, l.f)
	l.flood(t, n, func(s *frames.Segment) { s.ToPort, s.Flags, s.Options = port, frames.SYN, synOptions })
	testnet.Until(t, "every SYN is answered", func() bool {
		_, now := fairQStats(t, l.f)
		return now.Seen >= before.Seen+n
	})
	l.check(t)
	// Not acknowledged with the right number, which who forges an address cannot know, they stay what they are.
	l.flood(t, n, func(s *frames.Segment) { s.ToPort, s.Flags = port, frames.ACK })
	l.check(t)
	c := l.Dial(t, listener)
	testnet.Send(t, c.Client, c.Server, 10_000)
	if now := l.table(t); len(now) != len(l.known)+1 {
		t.Errorf("%d connections are known with one more", len(now))
	}
}

// position is where a flow's client is in its sequence space: behind what it sent last.
func (l *live) positions(t *testing.T) map[netip.AddrPort]uint32 {
	t.Helper()
	l.client.Each(t, func(*testnet.Segment) {})
	l.send(t)
	at := map[netip.AddrPort]uint32{}
	l.client.Each(t, func(s *testnet.Segment) {
		if s.Out {
			at[s.From] = s.End()
		}
	})
	return at
}

// forge is a segment that the flow's client did not send.
func (l *live) forge(s *frames.Segment, c *testnet.Pair, seq uint32, flags byte) {
	from, to := testnet.AddrPort(c.Client.LocalAddr()), testnet.AddrPort(c.Server.LocalAddr())
	s.From, s.FromPort, s.To, s.ToPort, s.Seq, s.Flags = from.Addr(), from.Port(), to.Addr(), to.Port(), seq, flags
	if flags&frames.SYN != 0 {
		s.Options = frames.List(frames.OptionNop, frames.MSS(100), frames.Scale(11))
	}
	if flags&frames.PSH != 0 {
		s.Payload = []byte("data")
	}
}

// Segments forged for the live flows' own ends, with numbers that the ends do not believe. Whatever they
// do to the count, it is right again when the flows go on, and the flows are held as before.
func TestFairQ_ForgedForLiveFlows(t *testing.T) {
	for name, flags := range map[string]byte{
		"RST": frames.RST, "RST, ACK": frames.RST | frames.ACK, "FIN": frames.FIN | frames.ACK, "SYN": frames.SYN,
		"SYN-ACK": frames.SYN | frames.ACK, "data": frames.PSH | frames.ACK,
	} {
		for _, ahead := range []int32{-2_000_000_000, -20_000_000, 20_000_000, 2_000_000_000} {
			t.Run(fmt.Sprintf("%s,%d", name, ahead), func(t *testing.T) {
				l := newLive(t, datapath.FairQConfig{})
				at := l.positions(t)
				for _, c := range l.flows {
					seq := at[testnet.AddrPort(c.Client.LocalAddr())] + uint32(ahead)
					l.flood(t, 20, func(s *frames.Segment) { l.forge(s, c, seq, flags) })
				}
				l.send(t)
				l.check(t)
			})
		}
	}
}

// Data that is sent again behind a FIN does not take back that the flow has ended.
func TestFQ9_DataSentAgainBehindItsFIN(t *testing.T) {
	l := newLive(t, datapath.FairQConfig{})
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
		l.flood(t, 1, func(s *frames.Segment) {
			l.forge(s, c, at[testnet.AddrPort(c.Client.LocalAddr())]-4, frames.PSH|frames.ACK)
		})
	}
	if n := ended(); n != len(l.flows) {
		t.Errorf("%d clients have ended of %d", n, len(l.flows))
	}
}
