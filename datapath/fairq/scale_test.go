package fairq_test

import (
	"cmp"
	"flag"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// largestShift is that of RFC 7323, and largestWindow the window it gives.
const (
	largestShift  = 14
	largestWindow = 65535 << largestShift
)

// limitedTo is a law that grants this many bytes, whatever the queue does: floor and cap are equal. 0: the least
// that the law ever grants, a byte more than the flow's MSS.
func limitedTo(bytes uint32) fairq.Law {
	l := fairq.Law{
		TargetBytes: 10_000_000, Tick: time.Millisecond, Period: time.Millisecond,
		FloorBytes: bytes, CapBytes: bytes, Active: 4 * time.Second,
	}
	if bytes == 0 {
		l.CapBytes = 1
	}
	return l
}

// rwndPath is a Path with FairQ on both ports of its switch, and a tap at each end: `client` at the
// sender's device, `server` at the receiver's.
type rwndPath struct {
	*testnet.Path
	client, server *testnet.Tap
	unified        int  // the scale announced to both ends instead of the other's; -1: none
	edge           bool // an ACK that overtakes the advertising one arrives unlimited
}

// newCellPath is a rwndPath for cells. Its ports are so slow that a sender writes a whole window before the
// first acknowledgement is back, without offloads and on a slow machine too.
func newCellPath(t *testing.T, o testnet.PathOptions) *rwndPath {
	t.Helper()
	o.PortBps = 200e6
	return newRwndPath(t, o)
}

func newRwndPath(t *testing.T, o testnet.PathOptions) *rwndPath {
	t.Helper()
	// The ports are so slow that windows fill, and the queues so long that none is ever full.
	const limit = 10_000_000
	bps := cmp.Or(o.PortBps, 400e6)
	burst := uint32(2*max(o.MTU, 1500) + 28)
	o.PortBps, o.Limit, o.Burst = bps, limit, burst
	// With the kernel's own first window it depends on the machine's speed whether a short transfer fills the
	// granted window: acknowledgements may come before the sender's next write.
	o.InitialWindow = 64
	p := &rwndPath{Path: testnet.NewPath(t, o), unified: -1}
	testnet.Shape(t, p.In, bps, limit, burst)
	for _, n := range []*testnet.Namespace{p.Sender, p.Receiver} {
		n.Sysctl(t, "net.ipv4.tcp_rmem", fmt.Sprintf("4096 131072 %d", largestWindow))
		n.Sysctl(t, "net.ipv4.tcp_no_metrics_save", "1")
	}
	p.client, p.server = testnet.NewTap(t, p.Uplink), testnet.NewTap(t, p.Rx)
	return p
}

// govern attaches FairQ to both ports, with law `out` towards the receiver and law `in` towards the sender. The
// lease is so long that no heartbeat is needed.
func (p *rwndPath) govern(t *testing.T, out, in fairq.Law, c fairq.Config) *fairq.Attachment {
	t.Helper()
	if c.Lease == 0 {
		c.Lease = time.Hour
	}
	f, err := fairq.Attach([]fairq.Port{{PortRef: p.Port, Law: out}, {PortRef: p.In, Law: in}}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// granted returns the value of the smallest field that grants at least this many bytes.
func granted(bytes uint32, shift uint8) uint32 { return (bytes + 1<<shift - 1) >> shift << shift }

// seen has the figures of a tap about one end: its data, and the windows granted to it.
type seen struct {
	scale   uint8 // of the other end
	acked   uint32
	flight  uint32 // most bytes in flight
	window  uint32 // largest granted by an ACK
	ahead   uint32 // largest granted by an ACK that overtook one with a smaller number
	smaller int    // ACKs that granted less than `expect`
	bytes   uint32 // granted by the law
	expect  uint32 // the same in units of the other end's scale, rounded up
	synAck  uint32 // the window of a SYN-ACK; 0: none seen
	acks    int
}

// full reports whether the end had all of its window in flight, less at most a segment.
func (s *seen) full(i *testnet.TCPInfo) bool { return s.flight+i.Snd_mss > s.expect }

// watch reads from the tap at an end's device the segments of it and its peer.
func watch(t *testing.T, tap *testnet.Tap, c *net.TCPConn, s *seen) {
	t.Helper()
	own, peer := testnet.AddrPort(c.LocalAddr()), testnet.AddrPort(c.RemoteAddr())
	type ack struct{ number, window uint32 }
	var acks []ack
	defer func() {
		for i, a := range acks {
			if slices.ContainsFunc(acks[i+1:], func(later ack) bool { return int32(later.number-a.number) < 0 }) {
				s.ahead = max(s.ahead, a.window)
			} else {
				s.window = max(s.window, a.window)
			}
		}
	}()
	tap.Each(t, func(p *testnet.Segment) {
		if p.Out && p.From == own && p.To == peer {
			if p.Flags&testnet.SYN != 0 {
				s.acked = p.End()
			}
			// A late acknowledgement of the peer's data may be behind already.
			if p.Payload > 0 && int32(p.End()-s.acked) > 0 {
				s.flight = max(s.flight, p.End()-s.acked)
			}
		}
		if p.Out || p.From != peer || p.To != own || p.Flags&testnet.ACK == 0 || p.Flags&testnet.RST != 0 {
			return
		}
		if int32(p.Ack-s.acked) > 0 {
			s.acked = p.Ack
		}
		if p.Flags&testnet.SYN != 0 {
			s.synAck = uint32(p.Window)
			return
		}
		s.acks++
		w := uint32(p.Window) << s.scale
		acks = append(acks, ack{p.Ack, w})
		if w < s.expect {
			s.smaller++
		}
	})
}

// cells is the sum over many connections.
type cells struct {
	n, acks, smaller int
	deviation        int64 // the largest difference of a sender's window from the expected one
	over             int64 // the most that a sender had in flight beyond its window
	full             int   // senders that had all of it in flight, less at most a segment
	least            bool  // the least window was granted: less than a segment of it is always left
}

func (c *cells) String() string {
	return fmt.Sprintf("%d cells, %d ACKs: windows deviate by at most %d bytes; %d of %d senders filled theirs, by at most %d bytes too much; %d ACKs of a receiver's own smaller window",
		c.n, c.acks, c.deviation, c.full, 2*c.n, c.over, c.smaller)
}

const (
	cellBytes  = 60_000 // each way in a round
	cellRounds = 50     // at most, until both ends have filled their windows
)

// cellEnd is one end of a cell.
type cellEnd struct {
	name string
	conn *net.TCPConn
	tap  *testnet.Tap
	seen seen
}

// fill sends data both ways in rounds until both ends have filled their windows. On a machine that is busy with other
// work, acknowledgements come before a sender has written a whole window, and such a round shows nothing.
func (p *rwndPath) fill(t *testing.T, c *testnet.Pair, ends *[2]cellEnd, grant uint32) {
	t.Helper()
	for range cellRounds {
		testnet.Send(t, c.Client, c.Server, cellBytes)
		testnet.Send(t, c.Server, c.Client, cellBytes)
		full := true
		for n := range ends {
			e := &ends[n]
			i := testnet.ReadTCPInfo(t, e.conn)
			// The kernel's MSS is the option less the timestamps.
			bytes := grant
			if bytes == 0 {
				bytes = i.Advmss + 12*uint32(i.Options&1) + 1
			}
			e.seen.scale, e.seen.bytes, e.seen.expect = i.PeerScale, bytes, granted(bytes, i.PeerScale)
			watch(t, e.tap, e.conn, &e.seen)
			full = full && e.seen.full(&i)
		}
		if full {
			return
		}
	}
}

// dialActive opens a connection while the ports have an active flow, `last`: only then are its first windows governed. A
// machine that takes longer than a flow stays active tries again.
func (p *rwndPath) dialActive(t *testing.T, last *testnet.Pair, l *net.TCPListener, options ...testnet.SocketOption) *testnet.Pair {
	t.Helper()
	for {
		began := time.Now()
		testnet.Send(t, last.Client, last.Server, 1)
		testnet.Send(t, last.Server, last.Client, 1)
		c := p.Dial(t, l, options...)
		if time.Since(began) < fairq.MaxActive {
			return c
		}
		c.Close()
	}
}

// cell opens a connection whose ends announce these scales (as negotiated; -1: no such option) and sends data
// both ways. The port grants `grant`; 0: the least. It has another flow, `last`.
func (p *rwndPath) cell(t *testing.T, sum *cells, last *testnet.Pair, l *net.TCPListener, clientScale, serverScale int, grant uint32) *testnet.Pair {
	t.Helper()
	dial := []testnet.SocketOption{testnet.Congestion("reno")}
	if clientScale >= 0 {
		dial = append(dial, testnet.WindowScale(clientScale))
	}
	c := p.dialActive(t, last, l, dial...)
	info := testnet.ReadTCPInfo(t, c.Client)
	own, peer := max(clientScale, 0), max(serverScale, 0)
	if clientScale < 0 || serverScale < 0 {
		own, peer = 0, 0
	} else if p.unified >= 0 {
		peer = p.unified
	}
	if int(info.OwnScale) != own || int(info.PeerScale) != peer {
		t.Fatalf("client %d, server %d asked for, %d and %d negotiated", clientScale, serverScale, info.OwnScale, info.PeerScale)
	}
	ends := [2]cellEnd{{name: "client", conn: c.Client, tap: p.client}, {name: "server", conn: c.Server, tap: p.server}}
	p.fill(t, c, &ends, grant)
	for n := range ends {
		e := &ends[n]
		i, s := testnet.ReadTCPInfo(t, e.conn), &e.seen
		where := fmt.Sprintf("client %d, server %d: %s", clientScale, serverScale, e.name)
		if i.Snd_wnd != s.expect {
			t.Errorf("%s has a window of %d, want %d", where, i.Snd_wnd, s.expect)
		}
		if i.Snd_wnd < i.Snd_mss {
			t.Errorf("%s has a window of %d, below its MSS of %d", where, i.Snd_wnd, i.Snd_mss)
		}
		if !p.edge {
			s.window = max(s.window, s.ahead)
		}
		if s.window > s.expect || s.acks == 0 {
			t.Errorf("%s was granted %d in one of %d ACKs, want %d", where, s.window, s.acks, s.expect)
		}
		if e.conn == c.Client && s.synAck != s.bytes {
			t.Errorf("%s: SYN-ACK grants %d, want %d: it is not scaled", where, s.synAck, s.bytes)
		}
		most := s.expect
		if p.edge {
			most = max(most, s.ahead) // until the next one came
		}
		if s.flight > most {
			t.Errorf("%s had up to %d bytes in flight, the window is %d", where, s.flight, most)
		}
		sum.add(&i, s)
	}
	if t.Failed() {
		t.FailNow()
	}
	sum.n++
	return c
}

func (c *cells) add(i *testnet.TCPInfo, s *seen) {
	c.acks += s.acks
	c.smaller += s.smaller
	c.deviation = max(c.deviation, int64(i.Snd_wnd)-int64(s.expect), int64(s.expect)-int64(i.Snd_wnd))
	c.over = max(c.over, int64(s.flight)-int64(s.expect))
	if s.full(i) {
		c.full++
	}
}

// report logs the sum, and fails if a sender did not fill its window: it does not show that it obeys it. Every
// sender fills the least window, a segment and a byte: there it shows nothing.
func (c *cells) report(t *testing.T) {
	t.Helper()
	t.Log(c)
	if !c.least && c.full < 2*c.n {
		t.Errorf("%d of %d senders filled their windows in %d rounds: this test shows too little", c.full, 2*c.n, cellRounds)
	}
}

// all opens a connection for each pair of scales from the two lists. Each stays open until the next one is
// open: the ports always have a flow, so that the first window of the next is governed too.
func (p *rwndPath) all(t *testing.T, sum *cells, ip net.IP, clientScales, serverScales []int, grant uint32) {
	t.Helper()
	p.some(t, sum, ip, clientScales, serverScales, grant, func(client, server int) bool { return true })
}

var allPairs = flag.Bool("pairs", false, "try each pair of window scales with each setting of offloads, and not every fourth (make soak-scales)")

// fourth selects every fourth pair of scales, others for each n: four settings in a row have all pairs.
func fourth(n int) func(client, server int) bool {
	return func(client, server int) bool { return *allPairs || (client+server+n)%4 == 0 }
}

// some is all for the pairs that it selects.
func (p *rwndPath) some(t *testing.T, sum *cells, ip net.IP, clientScales, serverScales []int, grant uint32, selects func(client, server int) bool) {
	t.Helper()
	sum.least = grant == 0
	last := p.Dial(t, p.Listen(t, ip))
	for _, s := range serverScales {
		listen := []testnet.SocketOption{testnet.Congestion("reno")}
		if s >= 0 {
			listen = append(listen, testnet.WindowScale(s))
		}
		l := p.Listen(t, ip, listen...)
		for _, c := range clientScales {
			if !selects(c, s) {
				continue
			}
			next := p.cell(t, sum, last, l, c, s, grant)
			last.Close()
			last = next
		}
		_ = l.Close()
	}
	last.Close()
}

var (
	everyScale = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	noScale    = []int{-1}
)

// checksums fails if a segment with a wrong checksum reached an end.
func (p *rwndPath) checksums(t *testing.T) {
	t.Helper()
	for _, n := range []*testnet.Namespace{p.Sender, p.Receiver} {
		if bad := n.SNMP(t, "Tcp", "InCsumErrors"); bad != 0 {
			t.Errorf("%d segments with a wrong checksum", bad)
		}
	}
}

// Real TCP for each pair of window scales, with all offloads, also with jumbo frames. A sender's window is the
// grant rounded up to the receiver's unit, and never under its MSS. Its data in flight obeys the window from
// the first segment on.
func TestFairQ_EveryPairOfScales(t *testing.T) {
	t.Parallel()
	settings := 0
	for _, mtu := range []int{1500, 9000} {
		p := newCellPath(t, testnet.PathOptions{MTU: mtu, GSO: true, ChecksumOffload: true})
		for _, grant := range []uint32{23457, 0} {
			law := limitedTo(grant)
			law.MTU = uint32(mtu)
			f := p.govern(t, law, law, fairq.Config{})
			for _, sender := range []bool{true, false} {
				for _, receiver := range []bool{true, false} {
					t.Run(fmt.Sprintf("mtu=%d,grant=%d,offloads=%t-%t", mtu, grant, sender, receiver), func(t *testing.T) {
						testnet.SetOffloads(t, p.Uplink, sender)
						testnet.SetOffloads(t, p.In, sender)
						testnet.SetOffloads(t, p.Port, receiver)
						testnet.SetOffloads(t, p.Rx, receiver)
						var sum cells
						p.some(t, &sum, testnet.ReceiverIPv4, everyScale, everyScale, grant, fourth(settings))
						settings++
						p.checksums(t)
						sum.report(t)
					})
				}
			}
			if err := f.Detach(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// With `scale: unify` both ends use the switch's scale for the other's windows, whatever they announced.
func TestFairQ_EveryPairOfScalesUnified(t *testing.T) {
	t.Parallel()
	const grant = 23457
	p := newCellPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	settings := 0
	for _, shift := range []uint8{0, 7, 14} {
		f := p.govern(t, limitedTo(grant), limitedTo(grant), fairq.Config{Scale: fairq.ScaleUnify, UnifyShift: shift})
		p.unified = int(shift)
		for _, on := range []bool{true, false} {
			for _, port := range []attach.PortRef{p.Uplink, p.In, p.Port, p.Rx} {
				testnet.SetOffloads(t, port, on)
			}
			var sum cells
			p.some(t, &sum, testnet.ReceiverIPv4, everyScale, everyScale, grant, fourth(settings))
			settings++
			p.checksums(t)
			sum.report(t)
		}
		if err := f.Detach(); err != nil {
			t.Fatal(err)
		}
	}
}

// A scale counts only if both ends announced one (RFC 7323 1.3).
func TestFairQ_ScaleOfOneEndOnly(t *testing.T) {
	p := newCellPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	p.govern(t, limitedTo(23457), limitedTo(23457), fairq.Config{})
	var sum cells
	p.Sender.Sysctl(t, "net.ipv4.tcp_window_scaling", "0")
	p.all(t, &sum, testnet.ReceiverIPv4, noScale, everyScale, 23457)
	p.Receiver.Sysctl(t, "net.ipv4.tcp_window_scaling", "0")
	p.all(t, &sum, testnet.ReceiverIPv4, noScale, noScale, 23457)
	p.Sender.Sysctl(t, "net.ipv4.tcp_window_scaling", "1")
	p.all(t, &sum, testnet.ReceiverIPv4, everyScale, noScale, 23457)
	p.checksums(t)
	sum.report(t)
}
