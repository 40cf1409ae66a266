package fairq_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
	"weir/internal/testseed"
)

// forgers sends frames at both devices of a path: 0 the sender's, 1 the receiver's.
type forgers struct {
	raw  [2]*testnet.Raw
	link [2]frames.Link
	rand *rand.Rand
}

func newForgers(t *testing.T, p *rwndPath) *forgers {
	t.Helper()
	f := &forgers{rand: testseed.New(t)}
	for i, at := range []attach.PortRef{p.Uplink, p.Rx} {
		f.raw[i] = testnet.NewRaw(t, at)
		err := at.In(func() error {
			device, err := netlink.LinkByIndex(at.Ifindex)
			if err == nil {
				copy(f.link[i].Src[:], device.Attrs().HardwareAddr)
				copy(f.link[1-i].Dst[:], device.Attrs().HardwareAddr)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// request returns data in the name of a connection's client, with numbers that are far from those of its ends.
func (f *forgers) request(c *testnet.Pair, at map[netip.AddrPort]uint32) []byte {
	client, server := testnet.AddrPort(c.Client.LocalAddr()), testnet.AddrPort(c.Server.LocalAddr())
	const far = 1 << 26
	away := func(n uint32) uint32 { return n + far + f.rand.Uint32N(1<<32-1-2*far) }
	s := &frames.Segment{
		Link: f.link[0], IP: frames.IP{From: client.Addr(), To: server.Addr()}, FromPort: client.Port(), ToPort: server.Port(),
		Seq: away(at[client]), Ack: away(at[server]), Window: 1000, Flags: frames.PSH | frames.ACK, Payload: []byte("q"),
	}
	return s.Bytes()
}

// positions returns where the ends of the connections are in their sequence spaces.
func (b *creditBed) positions(t *testing.T) map[netip.AddrPort]uint32 {
	t.Helper()
	at := map[netip.AddrPort]uint32{}
	b.client.Each(t, func(s *testnet.Segment) { at[s.From] = s.End() })
	return at
}

// Strangers' SYNs arrive at a server that answers all of them, and no stranger goes on. SYN-ACKs soon cost nothing and do not
// wait. Meanwhile nothing waits for longer than allowed. Answers come, and their requests still wait for credits.
func TestFairQCredits_FloodOfSYNs(t *testing.T) {
	// SYN-ACKs cost nothing where a span, the longest wait, has many of them. A slow machine sends few in a tenth of a second.
	const longest = time.Second
	law := creditLaw()
	law.LongestWait = longest
	b := newCreditBedOf(t, 40, law, fairq.Config{Credit: fairq.CreditPaces})
	f := newForgers(t, b.rwndPath)
	b.Sender.Sysctl(t, "net.ipv4.tcp_syncookies", "2") // answers every SYN
	b.Sender.Must(t, func() error {
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: b.Uplink.Ifindex, Gw: testnet.ReceiverIPv4, Dst: &net.IPNet{IP: net.IPv4(198, 18, 0, 0), Mask: net.CIDRMask(15, 32)},
		})
	})
	var l net.Listener
	b.Sender.Must(t, func() (err error) {
		l, err = net.Listen("tcp4", net.JoinHostPort(testnet.SenderIPv4.String(), "0"))
		return err
	})
	defer l.Close()
	to := testnet.AddrPort(l.Addr())
	flood := func(n uint64) {
		t.Helper()
		before, _ := statsOfBoth(t, b.f)
		for range n {
			var from [4]byte
			binary.BigEndian.PutUint32(from[:], 198<<24|18<<16|f.rand.Uint32N(1<<17))
			s := &frames.Segment{
				Link: f.link[1], IP: frames.IP{From: netip.AddrFrom4(from), To: to.Addr()}, FromPort: uint16(1 + f.rand.Uint32N(65535)),
				ToPort: to.Port(), Seq: f.rand.Uint32(), Window: 1000, Flags: frames.SYN, Options: synOptions,
			}
			f.raw[1].Send(t, s.Bytes())
		}
		testnet.Until(t, "every SYN is answered", func() bool { now, _ := statsOfBoth(t, b.f); return now.Seen >= before.Seen+n })
	}
	b.ask(t)
	flood(8000)
	before := b.state(t)
	flood(8000)
	after := b.state(t)
	if after.Promises < before.Promises+7900 {
		t.Errorf("%d SYN-ACKs passed of 8000", after.Promises-before.Promises)
	}
	if waited := after.Parked + after.Full - before.Parked - before.Full; waited > 400 { // of 8000
		t.Errorf("SYN-ACKs wait, although nobody uses what they promise: %+v, then %+v", before, after)
	}
	b.ask(t)
	if now := b.state(t); now.Parked == after.Parked {
		t.Errorf("%+v, then %+v: no request waits", after, now)
	}
	const most = 2 * longest // a packet that may not overtake waits for twice as long
	if _, in := statsOfBoth(t, b.f); in.Credits.Longest > most || in.Credits.Ahead > most {
		t.Errorf("%+v: longer than %v", in.Credits, most)
	}
	if p, err := b.f.ParkStats(); err != nil || p.Stale+p.Foreign+p.Untrimmed > 0 {
		t.Errorf("%+v: %v", p, err)
	}
}

// Requests are forged in the names of open connections, by somebody who does not know their numbers. They promise nothing. Real
// requests count as before.
func TestFairQCredits_ForgedRequests(t *testing.T) {
	b := newCreditBed(t, 40, fairq.Config{})
	f := newForgers(t, b.rwndPath)
	b.ask(t)
	for range 3 {
		at := b.positions(t)
		before, out := b.state(t), b.seen(t)
		for i := range 2000 {
			f.raw[0].Send(t, f.request(b.conns[i%len(b.conns)], at))
		}
		testnet.Until(t, "they have passed", func() bool { return b.seen(t) >= out+2000 })
		after := b.state(t)
		if after.Promises != before.Promises {
			t.Errorf("forged requests got %d promises", after.Promises-before.Promises)
		}
		b.ask(t)
		if now := b.state(t); now.Promises < after.Promises+uint64(len(b.conns)) {
			t.Errorf("%d of %d real requests got a promise", now.Promises-after.Promises, len(b.conns))
		}
	}
}

// seen returns how many packets have left towards the servers.
func (b *creditBed) seen(t *testing.T) uint64 {
	t.Helper()
	out, _ := statsOfBoth(t, b.f)
	return out.Seen
}

// Servers send to their clients, without an end. Forged requests in the clients' names do not change the windows of the clients'
// acknowledgements.
func TestFairQCredits_ForgedRequestsLeaveWindows(t *testing.T) {
	const flows, share = 4, 15_000
	b := &creditBed{rwndPath: newRwndPath(t, testnet.PathOptions{PortBps: 50e6})}
	f := newForgers(t, b.rwndPath)
	// The queue never reaches its target, so each window is the largest one.
	law := fairq.Law{
		CapBytes: share, TargetBytes: 10 * flows * share, BufferBytes: 1 << 20, RateBps: 50e6, Tick: time.Second, Period: time.Second, SlowStart: fairq.SlowStartOff, Active: 4 * time.Second,
	}
	b.f = b.govern(t, law, law, fairq.Config{Credit: fairq.CreditPaces})
	l := b.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(0))
	for range flows {
		c := b.Dial(t, l, testnet.WindowScale(0))
		b.conns = append(b.conns, c)
		testnet.Send(t, c.Server, c.Client, 200_000)
	}
	at := b.positions(t)
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := f.raw[0].TrySend(f.request(b.conns[i%flows], at)); err != nil {
				stopped <- err
				return
			}
		}
	}()
	var left, arrived []testnet.Segment // at the clients' device and at the servers'
	for range 5 {
		for _, c := range b.conns {
			testnet.Send(t, c.Server, c.Client, 200_000)
			// Each time, because the forged requests fill the taps.
			b.server.Each(t, func(s *testnet.Segment) { arrived = append(arrived, *s) })
			b.client.Each(t, func(s *testnet.Segment) { left = append(left, *s) })
		}
	}
	close(stop)
	if err := <-stopped; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	checkShares(t, left, arrived, share)
}

// checkShares checks the windows of acknowledgements that reached the servers while data was in flight. left: the segments at the clients'
// device; arrived: at the servers'. A client that is slow may announce a smaller window by itself.
func checkShares(t *testing.T, left, arrived []testnet.Segment, share uint16) {
	t.Helper()
	type flow struct{ from, to netip.AddrPort }
	type point struct {
		flow
		ack uint32
	}
	own := map[point]uint16{} // the least window that the client announced there
	for _, s := range left {
		at := point{flow{s.From, s.To}, s.Ack}
		if was, known := own[at]; s.Out && (!known || s.Window < was) {
			own[at] = s.Window
		}
	}
	sent, acks := map[flow]uint32{}, 0
	for _, s := range arrived {
		if s.Out && s.Payload > 0 {
			sent[flow{s.From, s.To}] = s.End()
		}
		end, known := sent[flow{s.To, s.From}]
		if s.Out || !known || s.Payload > 0 || s.Flags&(testnet.SYN|testnet.RST) != 0 || int32(end-s.Ack) <= 0 || end-s.Ack > 1<<20 {
			continue // not an acknowledgement of data in flight
		}
		announced, known := own[point{flow{s.From, s.To}, s.Ack}]
		if !known {
			continue // from before the forged requests
		}
		acks++
		if s.Window < min(share, announced) && (s.Window < 2*1449 || s.Window > 2*1461) { // two segments: the server had nothing in flight when it left
			t.Fatalf("%s has a window of %d with %d in flight, its share is %d", s.To, s.Window, end-s.Ack, share)
		}
	}
	if acks < 500 {
		t.Errorf("%d acknowledgements", acks)
	}
}

// A server that sends a FIN far behind its data, which its client discards, pays for its data as before.
func TestFairQCredits_FINBehindTheData(t *testing.T) {
	const bytes = 300_000
	b := newCreditBed(t, 6, fairq.Config{}) // a segment of each is more than BDP and target
	f := newForgers(t, b.rwndPath)
	charged := func(c *testnet.Pair) time.Duration {
		t.Helper()
		b.ask(t) // all of them count, so the port paces
		before := b.state(t).Charged
		testnet.Send(t, c.Server, c.Client, bytes)
		return b.state(t).Charged - before
	}
	c := b.conns[0]
	honest := charged(c)
	client, server := testnet.AddrPort(c.Client.LocalAddr()), testnet.AddrPort(c.Server.LocalAddr())
	at := b.positions(t)
	_, seen := statsOfBoth(t, b.f)
	fin := &frames.Segment{
		Link: f.link[1], IP: frames.IP{From: server.Addr(), To: client.Addr()}, FromPort: server.Port(), ToPort: client.Port(),
		Seq: at[server] + 10<<20, Ack: at[client], Window: 1000, Flags: frames.FIN | frames.ACK,
	}
	f.raw[1].Send(t, fin.Bytes())
	testnet.Until(t, "it has passed", func() bool { _, in := statsOfBoth(t, b.f); return in.Seen > seen.Seen })
	if lied := charged(c); lied < honest*9/10 || honest < bytes*8*time.Second/50e6*9/10 {
		t.Errorf("%d bytes cost %v, and %v after the FIN", bytes, honest, lied)
	}
}
