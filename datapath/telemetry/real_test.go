package telemetry_test

import (
	"testing"

	"weir/datapath/mark"
	"weir/datapath/telemetry"
	"weir/datapath/testnet"
	"weir/law"
	events "weir/law/telemetry"
)

var allSignals = []law.Signal{law.Backlog, law.Drops, law.Marks, law.Arrivals}

// attachTo attaches the program to ports, numbered from 1, for the length of the test.
func attachTo(tb testing.TB, c telemetry.Config, ports ...telemetry.Port) *telemetry.Telemetry {
	tb.Helper()
	for i := range ports {
		ports[i].N = uint32(i + 1)
	}
	t, err := telemetry.Attach(ports, c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := t.Close(); err != nil {
			tb.Error(err)
		}
	})
	return t
}

// total is the sum of readings of one port.
type total struct {
	events.Port
	events.Counts
	pairs, rest uint64
	opened      uint64 // of pairs
	byVM        map[law.VM]uint64
	list        map[events.Pair]int
}

func (s *total) add(r *telemetry.Reading, port int) {
	p := &r.Telemetry.Ports[port]
	s.Packets += p.Packets
	s.Bytes += p.Bytes
	s.SentBytes += p.SentBytes
	s.Drops += p.Drops
	s.BacklogBytes = p.BacklogBytes
	s.PeakBytes = max(s.PeakBytes, p.PeakBytes)
	s.Marks.Packets += p.Marks.Packets
	s.Marks.Unknown += p.Marks.Unknown
	s.Marks.Rest += p.Marks.Rest
	if s.byVM == nil {
		s.byVM, s.list = map[law.VM]uint64{}, map[events.Pair]int{}
	}
	for _, m := range p.Marks.ByVM {
		s.byVM[m.VM] += m.Packets
	}
	a := &r.Arrivals.Ports[port]
	for _, c := range []struct{ to, n *uint64 }{
		{&s.SYN, &a.Counts.SYN}, {&s.SYNACK, &a.Counts.SYNACK}, {&s.FIN, &a.Counts.FIN}, {&s.RST, &a.Counts.RST},
		{&s.Resume, &a.Counts.Resume}, {&s.Found, &a.Counts.Found}, {&s.Request, &a.Counts.Request},
	} {
		*c.to += *c.n
	}
	s.pairs += uint64(len(a.Pairs))
	for _, pair := range a.Pairs {
		s.opened += uint64(pair.Opened)
		pair.Opened, pair.Resumed, pair.Requested = 0, 0, 0
		s.list[pair]++
	}
	s.rest += a.Rest
}

func read(tb testing.TB, t *telemetry.Telemetry, r *telemetry.Reading) {
	tb.Helper()
	if err := t.Read(r); err != nil {
		tb.Fatal(err)
	}
}

// 100 new connections pass a shaped port, which is read meanwhile. Every SYN and FIN is counted once. Marks equal those of the
// marking program; drops and bytes equal those of the queue discipline. Afterwards the backlog is 0.
func TestTelemetry_NewConnections(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 50e6, Limit: 60_000, GSO: true, ChecksumOffload: true, NoIPv6: true})
	p.Sender.Sysctl(t, "net.ipv4.tcp_ecn", "1")
	p.Receiver.Sysctl(t, "net.ipv4.tcp_ecn", "1")
	testnet.Shape(t, p.In, testnet.QuickBps, 1<<20, 3028)
	m, err := mark.Attach(ports(p.Port), mark.Config{ThresholdBytes: 30_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	before, err := p.Port.QueueWithBacklog()
	if err != nil {
		t.Fatal(err)
	}
	tel := attachTo(t, telemetry.Config{Signals: allSignals}, telemetry.Port{PortRef: p.Port}, telemetry.Port{PortRef: p.In})
	if err := tel.SetSource(addr(testnet.SenderIPv4), 7); err != nil {
		t.Fatal(err)
	}
	var sum, back total
	var r telemetry.Reading
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Transfer(t, testnet.ReceiverIPv4, "reno", 100, 60_000)
	}()
	readings := 0
	for running := true; running; readings++ {
		select {
		case <-done:
			running = false
		default:
		}
		read(t, tel, &r)
		sum.add(&r, 0)
		back.add(&r, 1)
	}
	testnet.Until(t, "the port has drained and all ends have closed", func() bool {
		read(t, tel, &r)
		sum.add(&r, 0)
		back.add(&r, 1)
		return sum.BacklogBytes == 0 && sum.FIN == 100 && back.FIN == 100
	})
	stats, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	after, err := p.Port.QueueWithBacklog()
	if err != nil {
		t.Fatal(err)
	}
	queue := after.Since(before)
	t.Logf("%d readings, %d late; marks %d, drops %d, peak %d; %+v", readings, tel.Late(), sum.Marks.Packets, sum.Drops, sum.PeakBytes, sum.Counts)
	if sum.SYN != 100 || back.SYNACK != 100 || sum.SYNACK+back.SYN != 0 {
		t.Errorf("SYN %d, SYN-ACK %d, want 100 each: %+v, %+v", sum.SYN, back.SYNACK, sum.Counts, back.Counts)
	}
	if sum.Found+back.Found != 0 {
		t.Errorf("flows found: %+v, %+v", sum.Counts, back.Counts)
	}
	if sum.Packets != stats[0].Seen {
		t.Errorf("%d packets, the marking program saw %d", sum.Packets, stats[0].Seen)
	}
	if sum.Marks.Packets != stats[0].Marked || sum.byVM[7] != stats[0].Marked || stats[0].Marked == 0 || sum.Marks.Unknown+sum.Marks.Rest != 0 {
		t.Errorf("marks %+v, by VM %v, the marking program marked %d", sum.Marks, sum.byVM, stats[0].Marked)
	}
	if sum.Drops != uint64(queue.Drops) || queue.Drops == 0 || sum.SentBytes != queue.SentBytes {
		t.Errorf("%d drops and %d bytes sent, the queue counted %d and %d", sum.Drops, sum.SentBytes, queue.Drops, queue.SentBytes)
	}
	if sum.PeakBytes < 30_000 || sum.PeakBytes > 60_000 {
		t.Errorf("peak %d of a buffer of 60000 bytes", sum.PeakBytes)
	}
}

// Open connections that were idle send a request each, and get an answer: 100 requests at the port to the receiver, no SYN, and
// 100 flows that send again in each direction.
func TestTelemetry_RequestsOnOpenConnections(t *testing.T) {
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: 200e6, Limit: 1 << 20, NoIPv6: true})
	// With this idle time every round of this test finds idle flows, however fast the machine is.
	testnet.Shape(t, p.In, testnet.QuickBps, 1<<20, 3028)
	tel := attachTo(t, telemetry.Config{Signals: allSignals, Idle: 1}, telemetry.Port{PortRef: p.Port}, telemetry.Port{PortRef: p.In})
	l := p.Listen(t, testnet.ReceiverIPv4)
	var pairs []*testnet.Pair
	for range 100 {
		pairs = append(pairs, p.Dial(t, l))
	}
	var r telemetry.Reading
	var sum total
	round := func() events.Counts {
		sum = total{}
		for _, c := range pairs {
			testnet.Send(t, c.Client, c.Server, 100)
			testnet.Send(t, c.Server, c.Client, 3000)
		}
		read(t, tel, &r)
		sum.add(&r, 0)
		return sum.Counts
	}
	if got := round(); got != (events.Counts{SYN: 100, Resume: 100, Request: 100}) {
		t.Errorf("first round: %+v", got)
	}
	if got := round(); got != (events.Counts{Resume: 100, Request: 100}) {
		t.Errorf("second round: %+v", got)
	}
	if len(sum.list) != 1 || sum.rest != 0 {
		t.Errorf("pairs %v, %d more", sum.list, sum.rest)
	}
	want := events.Pair{Source: addr(testnet.SenderIPv4), Destination: addr(testnet.ReceiverIPv4), Kinds: events.Resume | events.Request}
	if sum.list[want] != 1 {
		t.Errorf("pairs %v, want %v", sum.list, want)
	}
}
