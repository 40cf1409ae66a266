package fairq_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// creditBed is a path of 50 Mbit/s with credits, and connections that ask and answer.
type creditBed struct {
	*rwndPath
	f     *fairq.Attachment
	conns []*testnet.Pair
}

const creditAnswer = 12_000 // bytes

func newCreditBed(t *testing.T, conns int, c fairq.Config) *creditBed {
	t.Helper()
	b := &creditBed{rwndPath: newRwndPath(t, testnet.PathOptions{PortBps: 50e6})}
	law := fairq.Law{
		TargetBytes: 6000, BufferBytes: 60_000, PipeBytes: 2000, RateBps: 50e6,
		Tick: time.Millisecond, Period: 4 * time.Millisecond, Active: 4 * time.Second,
	}
	c.Credit = fairq.CreditPaces
	b.f = b.govern(t, law, law, c)
	l := b.Listen(t, testnet.ReceiverIPv4)
	for range conns {
		b.conns = append(b.conns, b.Dial(t, l))
	}
	return b
}

// ask has all clients ask at once, and waits for all answers.
func (b *creditBed) ask(t *testing.T) {
	t.Helper()
	answers := make(chan error, 2*len(b.conns))
	for _, c := range b.conns {
		for _, e := range []*net.TCPConn{c.Client, c.Server} {
			if err := e.SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			var q [1]byte
			_, err := io.ReadFull(c.Server, q[:])
			if err == nil {
				_, err = c.Server.Write(make([]byte, creditAnswer))
			}
			answers <- err
		}()
	}
	for _, c := range b.conns {
		if _, err := c.Client.Write([]byte("q")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range b.conns {
		go func() {
			_, err := io.CopyN(io.Discard, c.Client, creditAnswer)
			answers <- err
		}()
	}
	for range 2 * len(b.conns) {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
}

func (b *creditBed) state(t *testing.T) fairq.CreditState {
	t.Helper()
	s, err := b.f.CreditOf(b.In.Name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// parkingThere reports whether the switch has a parking device.
func (b *creditBed) parkingThere(t *testing.T) bool {
	t.Helper()
	there := false
	err := b.Port.In(func() error {
		_, err := netlink.LinkByName("weir-park0")
		there = err == nil
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// 40 answers at once are more than the port has room for, at one segment each. All come; requests and ACKs wait in the
// parking, and all leave it again. Each packet is counted once, though it passes the program twice. After Close no
// parking remains.
func TestFairQCredits_AnswersAtOnce(t *testing.T) {
	b := newCreditBed(t, 40, fairq.Config{})
	for range 3 {
		b.ask(t)
	}
	s := b.state(t)
	if s.Promises < 3*40 || s.Parked == 0 {
		t.Errorf("%+v: want a promise for each request, and packets that waited", s)
	}
	testnet.Until(t, "all parked packets have left", func() bool {
		p, err := b.f.ParkStats()
		if err != nil {
			t.Fatal(err)
		}
		if p.Stale+p.Foreign+p.Untrimmed > 0 {
			t.Fatalf("%+v", p)
		}
		return p.Parked > 0 && p.Returned == p.Parked
	})
	out, in := statsOfBoth(t, b.f)
	for _, s := range []fairq.Stats{out, in} {
		if sum := s.NotTCP + s.Tunnel + s.Fragment + s.Short + s.NoAck + s.Rewritten + s.Smaller + s.Unknown + s.Ungoverned + s.Free + s.Signed +
			s.OutOfScope + s.Unwritable + s.LeftToEdge + s.Dropped; s.Seen != sum {
			t.Errorf("%s: %d packets seen, %d of any kind", s.Port, s.Seen, sum)
		}
	}
	b.checksums(t)
	if !b.parkingThere(t) {
		t.Error("there is no parking")
	}
	if err := b.f.Close(); err != nil {
		t.Fatal(err)
	}
	if b.parkingThere(t) {
		t.Error("the parking is still there after Close")
	}
}

// When heartbeats stop, nothing is promised, paced or parked any more, and windows are released.
func TestFairQCredits_LeaseExpires(t *testing.T) {
	b := newCreditBed(t, 20, fairq.Config{Lease: 2 * fairq.HeartbeatInterval})
	for range 4 {
		if err := b.f.Heartbeat(); err != nil {
			t.Fatal(err)
		}
		b.ask(t)
	}
	testnet.Until(t, "windows are released", func() bool {
		_, in := statsOfBoth(t, b.f)
		return !in.Enforced && in.GrantBytes == 0
	})
	before := b.state(t)
	b.ask(t)
	if after := b.state(t); after != before {
		t.Errorf("%+v, then %+v without a heartbeat", before, after)
	}
}

// The parking device is deleted while packets leave: later packets pass, and answers come.
func TestFairQCredits_ParkingDeleted(t *testing.T) {
	b := newCreditBed(t, 40, fairq.Config{})
	b.ask(t)
	err := b.Port.In(func() error {
		link, err := netlink.LinkByName("weir-park0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	if err != nil {
		t.Fatal(err)
	}
	b.ask(t)
	b.ask(t)
}
