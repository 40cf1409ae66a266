package repair_test

import (
	"io"
	"testing"
	"time"

	"weir/datapath/reading"
	"weir/datapath/repair"
	"weir/datapath/testnet"
)

// A slow port: a machine that is late still fills its queue.
const (
	realBps   = 8e6
	realQueue = 40_000
	realLimit = 32_000
	realPark  = 30_000
	senders   = 20
	realBytes = 2 * 1448 // 20 messages of two segments, 60 KB on the wire
)

// attached attaches the program to the path's port for the length of the test.
func attached(t *testing.T, p *testnet.Path, bps float64, limit, most uint32) *repair.Repair {
	t.Helper()
	r, err := repair.Own(repair.Config{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Attach(repair.Port{PortRef: p.Port, Law: repair.Law{Bps: uint64(bps), LimitBytes: limit, ParkBytes: most, Due: 50 * time.Millisecond, Burst: 200 * time.Microsecond}}); err != nil {
		t.Fatal(err)
	}
	return r
}

func statsOf(t *testing.T, r *repair.Repair) reading.Repairs {
	t.Helper()
	s, err := r.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return *s[0].Repairs
}

// outcome is what hosts saw of an incast.
type outcome struct{ timeouts, retransmitted, outOfOrder uint64 }

// incast sends a message on each of many cubic connections at once, again if a late machine sent them so slowly that the queue did not
// overflow.
func incast(t *testing.T, p *testnet.Path, overflowed func(o outcome) bool) (o outcome) {
	t.Helper()
	for try := 1; ; try++ {
		if o = messages(t, p); overflowed(o) || try == 10 {
			return o
		}
	}
}

func messages(t *testing.T, p *testnet.Path) outcome {
	t.Helper()
	connected(t, p)()
	return outcomeOf(t, p)
}

// connected opens the connections, and returns a function that sends a message on each of them at once.
func connected(t *testing.T, p *testnet.Path) (send func()) {
	t.Helper()
	p.Sender.Sysctl(t, "net.ipv4.tcp_early_retrans", "0") // no probe for lost tails: they wait for the timeout
	p.Sender.Sysctl(t, "net.ipv4.tcp_rto_min_us", "1000000")
	l := p.Listen(t, testnet.ReceiverIPv4)
	var pairs []*testnet.Pair
	for range senders {
		pairs = append(pairs, p.Dial(t, l))
	}
	return func() {
		t.Helper()
		for _, pair := range pairs { // the queue drains far more slowly
			if _, err := pair.Client.Write(make([]byte, realBytes)); err != nil {
				t.Fatal(err)
			}
		}
		for _, pair := range pairs {
			if _, err := io.CopyN(io.Discard, pair.Server, realBytes); err != nil {
				t.Error(err)
			}
		}
	}
}

func outcomeOf(t *testing.T, p *testnet.Path) outcome {
	t.Helper()
	return outcome{
		timeouts:      p.Sender.SNMP(t, "TcpExt", "TCPTimeouts"),
		retransmitted: p.Sender.SNMP(t, "Tcp", "RetransSegs"),
		outOfOrder:    p.Receiver.SNMP(t, "TcpExt", "TCPOFOQueue"),
	}
}

// Real cubic connections overflow a queue. Without repair some wait for timeouts. With it no segment is lost or late, and their order
// stays.
func TestRepair_RealTCP(t *testing.T) {
	for _, offload := range []bool{false, true} {
		o := testnet.PathOptions{PortBps: realBps, Limit: realQueue, ChecksumOffload: offload, NoIPv6: true}
		p := testnet.NewPath(t, o)
		r := attached(t, p, realBps, realLimit, realPark)
		got := incast(t, p, func(outcome) bool { return statsOf(t, r).Over > 0 })
		s := statsOf(t, r)
		t.Logf("offload %v: %+v, %+v", offload, got, s)
		if s.Over == 0 || s.Repaired != s.Over || s.Back != s.Over+s.Behind || s.Full+s.Other+s.Refused != 0 {
			t.Errorf("not all were parked, and came back: %+v", s)
		}
		if lost := testnet.Queue(t, p.Port).Drops; lost != 0 {
			t.Errorf("the queue lost %d packets", lost)
		}
		if got != (outcome{}) {
			t.Errorf("%+v", got)
		}
		for _, c := range []string{"InCsumErrors", "InErrs"} {
			if n := p.Receiver.SNMP(t, "Tcp", c); n != 0 {
				t.Errorf("receiver: %s = %d", c, n)
			}
		}
	}
	p := testnet.NewPath(t, testnet.PathOptions{PortBps: realBps, Limit: realQueue, NoIPv6: true})
	got := incast(t, p, func(o outcome) bool { return o.timeouts > 0 })
	t.Logf("without repair: %+v, the queue lost %d", got, testnet.Queue(t, p.Port).Drops)
	if got.timeouts == 0 {
		t.Errorf("no timeout without repair: %+v", got)
	}
}
