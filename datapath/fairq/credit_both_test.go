package fairq_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// Both ends of 40 connections send to each other as fast as they can. So every segment is data of one port and an
// acknowledgement of data of the other one, and waits in the parking for the other's credits. All data comes.
func TestFairQCredits_BothDirectionsAtOnce(t *testing.T) {
	const each = 60_000
	b := newCreditBed(t, 40, fairq.Config{})
	done := make(chan error, 4*len(b.conns))
	for _, c := range b.conns {
		for _, e := range []*net.TCPConn{c.Client, c.Server} {
			if err := e.SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
				t.Fatal(err)
			}
			go func() { _, err := e.Write(make([]byte, each)); done <- err }()
			go func() { _, err := io.CopyN(io.Discard, e, each); done <- err }()
		}
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for _, port := range []string{b.Port.Name, b.In.Name} {
		if s, err := b.f.CreditOf(port); err != nil || s.Parked == 0 {
			t.Errorf("%s: %+v, %v: nothing waits", port, s, err)
		}
	}
	late := overtaken(t, b.server) + overtaken(t, b.client)
	t.Logf("%d segments came behind one that they were sent before", late) // if the parking leaves more than CREDIT_SLACK_NS late
	if p, err := b.f.ParkStats(); err != nil || p.Stale+p.Foreign+p.Untrimmed > 0 {
		t.Errorf("%+v: %v", p, err)
	}
	b.checksums(t)
}

// overtaken returns how many segments a device received after one that begins behind their end. Nothing is lost on this path.
func overtaken(t *testing.T, tap *testnet.Tap) (late int) {
	t.Helper()
	type flow struct{ from, to netip.AddrPort }
	ends, segments := map[flow]uint32{}, 0
	tap.Each(t, func(s *testnet.Segment) {
		f := flow{s.From, s.To}
		end, known := ends[f]
		if s.Out || s.Flags&testnet.RST != 0 {
			return
		}
		if known && s.Payload > 0 {
			segments++
			if int32(s.Seq-end) > 0 {
				late++
			}
		}
		if !known || int32(s.End()-end) > 0 {
			ends[f] = s.End()
		}
	})
	if segments < 500 {
		t.Errorf("%d segments with data", segments)
	}
	return late
}
