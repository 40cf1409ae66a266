package fairq_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// statsOfBoth reads both ports: the one to the receiver and the one to the sender.
func statsOfBoth(t *testing.T, f *fairq.Attachment) (out, in fairq.Stats) {
	t.Helper()
	s, err := f.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s[0], s[1]
}

// adopted is a connection that began before Weir.
type adopted struct {
	*testnet.Pair
	client, server int // their scale shifts
	waits          int // timeouts before it was adopted
}

// timeouts counts how often either end waited for its retransmission timer.
func timeouts(t *testing.T, c *testnet.Pair) int {
	t.Helper()
	return int(testnet.ReadTCPInfo(t, c.Client).Total_rto) + int(testnet.ReadTCPInfo(t, c.Server).Total_rto)
}

// Connections older than the law are adopted, with data in either direction, whatever the scales. They are
// counted, and their inferred scale is never too large. Their senders never have a window below their MSS, and
// none ever waits for a timer.
func TestFairQ_AdoptsConnections(t *testing.T) {
	t.Parallel()
	for _, o := range []testnet.PathOptions{
		{},
		{GSO: true, ChecksumOffload: true},
		{MTU: 9000, GSO: true, ChecksumOffload: true},
	} {
		for _, grant := range []uint32{30000, 0} {
			t.Run(fmt.Sprintf("mtu=%d,gso=%t,grant=%d", max(o.MTU, 1500), o.GSO, grant), func(t *testing.T) { adopt(t, o, grant) })
		}
	}
}

func adopt(t *testing.T, o testnet.PathOptions, grant uint32) {
	const before, after = 200_000, 1_000_000
	p := newRwndPath(t, o)
	var flows []adopted
	var took [2]time.Duration // before and after
	for _, server := range []int{0, 7, 14} {
		l := p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(server))
		for _, client := range []int{0, 7, 14} {
			c := p.Dial(t, l, testnet.WindowScale(client))
			began := time.Now()
			testnet.Send(t, c.Client, c.Server, before)
			testnet.Send(t, c.Server, c.Client, before)
			took[0] += time.Since(began)
			flows = append(flows, adopted{c, client, server, timeouts(t, c)})
		}
	}
	law := limitedTo(grant)
	law.MTU = uint32(max(o.MTU, 1500))
	f := p.govern(t, law, law, fairq.Config{})
	p.client.Each(t, func(*testnet.Segment) {})
	p.server.Each(t, func(*testnet.Segment) {})
	delayed := p.delayedACKs(t)
	for _, c := range flows {
		began := time.Now()
		testnet.Send(t, c.Client, c.Server, after)
		testnet.Send(t, c.Server, c.Client, after)
		took[1] += time.Since(began)
		c.check(t, p)
	}
	// Each delayed acknowledgement costs 40 ms without any sending. A machine that keeps a reader from running delays some, too:
	// as many for each byte before the law came.
	if n := p.delayedACKs(t) - delayed; n > 3*2*uint64(len(flows))+2*delayed*after/before {
		t.Errorf("%d acknowledgements were delayed, %d before the law, which had a fifth of the data: senders waited for them", n, delayed)
	}
	inferred := 0
	for _, c := range flows {
		inferred += c.checkKnown(t, p, f)
	}
	var out, in fairq.Stats
	testnet.Until(t, "a flow counts each way", func() bool { // on a slow machine the last data may be long ago
		testnet.Send(t, flows[0].Client, flows[0].Server, 1)
		testnet.Send(t, flows[0].Server, flows[0].Client, 1)
		out, in = statsOfBoth(t, f)
		return out.Flows > 0 && in.Flows > 0
	})
	if n := uint64(len(flows)); out.Adopted+in.Adopted != n || out.Opened+in.Opened != n {
		t.Errorf("%d and %d adopted of %d connections", out.Adopted, in.Adopted, n)
	}
	if out.Rewritten == 0 || in.Rewritten == 0 {
		t.Errorf("%d and %d windows rewritten", out.Rewritten, in.Rewritten)
	}
	p.checksums(t)
	rate := func(bytes int, took time.Duration) float64 {
		return float64(2*8*len(flows)*bytes) / took.Seconds() / 1e6
	}
	t.Logf("9 connections: scales inferred are %d together, true ones 126; %d ACKs rewritten, %d had small enough windows; %.0f Mbit/s before, %.0f after",
		inferred, out.Rewritten+in.Rewritten, out.Smaller+in.Smaller, rate(before, took[0]), rate(after, took[1]))
}

// delayedACKs counts the acknowledgements that both ends sent by timer.
func (p *rwndPath) delayedACKs(t *testing.T) uint64 {
	t.Helper()
	return p.Sender.SNMP(t, "TcpExt", "DelayedACKs") + p.Receiver.SNMP(t, "TcpExt", "DelayedACKs")
}

// checkKnown checks the flow table's entry of an adopted connection, and returns the sum of the scales of its
// ends.
func (c *adopted) checkKnown(t *testing.T, p *rwndPath, f *fairq.Attachment) (scales int) {
	t.Helper()
	known, err := f.Connections()
	if err != nil {
		t.Fatal(err)
	}
	client, server := testnet.AddrPort(c.Client.LocalAddr()), testnet.AddrPort(c.Server.LocalAddr())
	for _, k := range known {
		if k.End[0].Addr == server {
			k.End[0], k.End[1] = k.End[1], k.End[0]
		}
		if k.End[0].Addr != client || k.End[1].Addr != server {
			continue
		}
		for i, want := range []struct {
			scale int
			port  string
		}{{c.client, p.Port.Name}, {c.server, p.In.Name}} {
			e := k.End[i]
			scales += int(e.Scale)
			if !k.Adopted || e.ScaleKnown || int(e.Scale) > want.scale || e.Port != want.port {
				t.Errorf("client %d, server %d: %+v is taken for an end of scale %d behind %s", c.client, c.server, e, want.scale, want.port)
			}
		}
		return scales
	}
	t.Errorf("client %d, server %d: not in the table", c.client, c.server)
	return scales
}

// check checks the windows that both ends of an adopted connection had while it was governed.
func (c *adopted) check(t *testing.T, p *rwndPath) {
	t.Helper()
	atClient, atServer := passed(t, p.client), passed(t, p.server)
	for _, end := range []struct {
		name      string
		conn      *net.TCPConn
		own, peer []testnet.Segment // at its device, and at its peer's
	}{{"client", c.Client, atClient, atServer}, {"server", c.Server, atServer, atClient}} {
		i := testnet.ReadTCPInfo(t, end.conn)
		announced := windows(end.peer, end.conn, true)
		acks, small := 0, 0
		for at, w := range windows(end.own, end.conn, false) {
			acks++
			if w<<i.PeerScale < i.Snd_mss && w < announced[at] {
				small++
			}
		}
		if acks == 0 || small > 0 {
			t.Errorf("client %d, server %d: %s was granted less than its MSS of %d by %d of %d ACKs", c.client, c.server, end.name, i.Snd_mss, small, acks)
		}
	}
	if n := timeouts(t, c.Pair) - c.waits; n != 0 {
		t.Errorf("client %d, server %d: waited for a retransmission timer %d times", c.client, c.server, n)
	}
}

func passed(t *testing.T, tap *testnet.Tap) (all []testnet.Segment) {
	t.Helper()
	tap.Each(t, func(s *testnet.Segment) { all = append(all, *s) })
	return all
}

// windows returns the smallest window field sent to c, by the number acknowledged, as its peer's device sent it
// or its own received it.
func windows(segments []testnet.Segment, c *net.TCPConn, out bool) map[uint32]uint32 {
	least := map[uint32]uint32{}
	own, peer := testnet.AddrPort(c.LocalAddr()), testnet.AddrPort(c.RemoteAddr())
	for _, s := range segments {
		if s.Out != out || s.From != peer || s.To != own {
			continue
		}
		if w, ok := least[s.Ack]; !ok || uint32(s.Window) < w {
			least[s.Ack] = uint32(s.Window)
		}
	}
	return least
}

// The port that limits a sender is the one that its data leaves by now, not the one that it once left by.
func TestFairQ_GoverningPortFollowsTheData(t *testing.T) {
	p := newRwndPath(t, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	other, mac := p.secondPort(t)
	const first, second = 20000, 30000
	f, err := fairq.Attach([]fairq.Port{
		{PortRef: p.Port, Law: limitedTo(first)}, {PortRef: p.In, Law: limitedTo(25000)}, {PortRef: other, Law: limitedTo(second)},
	}, fairq.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	c := p.Dial(t, p.Listen(t, testnet.ReceiverIPv4, testnet.WindowScale(3)), testnet.WindowScale(3))
	window := func(what string, want uint32) {
		t.Helper()
		testnet.Send(t, c.Client, c.Server, 100_000)
		if err := f.Heartbeat(); err != nil {
			t.Fatal(err)
		}
		if got := testnet.ReadTCPInfo(t, c.Client).Snd_wnd; got != want {
			t.Errorf("%s: window %d, want %d", what, got, want)
		}
	}
	window("by the first port", granted(first, 3))
	home := p.sendBy(t, mac)
	window("by the second port", granted(second, 3))
	p.sendBy(t, home)
	window("by the first port again", granted(first, 3))
	s, err := f.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s[0].Data == 0 || s[2].Data == 0 || s[1].Rewritten == 0 {
		t.Errorf("counted %+v", s)
	}
}

// secondPort gives the switch another port to the receiver, and the address of its device there.
func (p *rwndPath) secondPort(t *testing.T) (port attach.PortRef, mac net.HardwareAddr) {
	t.Helper()
	p.Receiver.Sysctl(t, "net.ipv4.conf.all.rp_filter", "0")
	p.Receiver.Sysctl(t, "net.ipv4.conf.default.rp_filter", "0")
	var fd int
	p.Receiver.Must(t, func() (err error) {
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	defer func() { _ = unix.Close(fd) }()
	p.Switch.Must(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out1"}, PeerName: "rx1", PeerNamespace: netlink.NsFd(fd)})
	})
	p.Receiver.Must(t, func() error {
		l, err := netlink.LinkByName("rx1")
		if err != nil {
			return err
		}
		mac = l.Attrs().HardwareAddr
		if err := netlink.LinkSetARPOff(l); err != nil { // otherwise it answers for the first one's address too
			return err
		}
		return netlink.LinkSetUp(l)
	})
	port = attach.PortRef{Name: "switch->receiver's second", Enter: p.Switch.Enter}
	p.Switch.Must(t, func() error {
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		l, err := netlink.LinkByName("out1")
		if err != nil {
			return err
		}
		port.Ifindex = l.Attrs().Index
		if err := netlink.LinkSetMaster(l, br); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
		return netlink.NeighAppend(&netlink.Neigh{
			LinkIndex: port.Ifindex, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER, State: netlink.NUD_NOARP, HardwareAddr: mac,
		})
	})
	testnet.Shape(t, port, 400e6, 10_000_000, 3028)
	return port, mac
}

// sendBy makes the sender send to this address of the receiver's, and returns the one before.
func (p *rwndPath) sendBy(t *testing.T, mac net.HardwareAddr) (before net.HardwareAddr) {
	t.Helper()
	p.Sender.Must(t, func() error {
		known, err := netlink.NeighList(p.Uplink.Ifindex, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, n := range known {
			if n.IP.Equal(testnet.ReceiverIPv4) {
				before = n.HardwareAddr
			}
		}
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: p.Uplink.Ifindex, State: netlink.NUD_PERMANENT, IP: testnet.ReceiverIPv4, HardwareAddr: mac,
		})
	})
	return before
}

// The law limits streams that filled the queue before it came, after some sweeps. Their senders fill windows
// that are too small, which shows their scale. Streams with an unknown scale would keep the queue full, and the
// law would starve the others.
func TestFairQ_LimitsAdoptedStreams(t *testing.T) {
	const scale = 7
	path, ports := pinnedPath(t)
	streams := path.NewStreams(t, testnet.ReceiverIPv4, 8, testnet.WindowScale(scale))
	streams.Progress(t, 300_000)
	f := attachTo(t, fairq.Config{Lease: time.Hour}, ports...)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	var last time.Time
	heartbeat := func() { // here, since an Attachment is for one goroutine
		if time.Since(last) < fairq.HeartbeatInterval {
			return
		}
		last = time.Now()
		if err := f.Heartbeat(); err != nil {
			t.Fatal(err)
		}
	}
	target := ports[0].Law.TargetBytes
	since, looks, sum, largest := time.Now(), 0, 0, 0
	testnet.Until(t, "a second with a mean queue under twice its target", func() bool { // without the law: five times
		heartbeat()
		known, err := f.Connections()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range known {
			largest = max(largest, int(k.End[0].Scale), int(k.End[1].Scale))
		}
		if out, _ := statsOfBoth(t, f); out.Flows > 0 {
			looks, sum = looks+1, sum+int(out.QueueBytes)
		}
		if time.Since(since) < time.Second || looks < 50 {
			return false
		}
		limited := sum < looks*int(2*target)
		since, looks, sum = time.Now(), 0, 0
		return limited
	})
	var out, in fairq.Stats
	testnet.Until(t, "all streams count", func() bool { // a stream that stalls for a moment does not count
		heartbeat()
		out, in = statsOfBoth(t, f)
		return out.Flows == 8
	})
	if n := out.Adopted + in.Adopted; n != 8 {
		t.Errorf("%d adopted, want 8", n)
	}
	if largest > scale {
		t.Errorf("a scale of %d was inferred where %d is true", largest, scale)
	}
	streams.Progress(t, 300_000) // none starves
	t.Logf("largest scale inferred: %d; window %d, queue %d of %d", largest, out.GrantBytes, out.QueueBytes, target)
}
