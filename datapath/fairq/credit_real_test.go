package fairq_test

import (
	"io"
	"net"
	"sync/atomic"
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
	late  bool // servers answer when a request is held, or all have come
}

const creditAnswer = 12_000 // bytes

// creditLaw is the law at the ports of a creditBed.
func creditLaw() fairq.Law {
	return fairq.Law{
		HoldRequests: true, TargetBytes: 6000, BufferBytes: 60_000, PipeBytes: 2000, RateBps: 50e6,
		Tick: time.Millisecond, Period: 4 * time.Millisecond, Active: 4 * time.Second,
	}
}

func newCreditBed(t *testing.T, conns int, c fairq.Config) *creditBed {
	t.Helper()
	c.Credit = fairq.CreditPaces
	return newCreditBedOf(t, conns, creditLaw(), c)
}

func newCreditBedOf(t *testing.T, conns int, law fairq.Law, c fairq.Config) *creditBed {
	t.Helper()
	b := &creditBed{rwndPath: newRwndPath(t, testnet.PathOptions{PortBps: 50e6})}
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
	answers, gate := make(chan error, 2*len(b.conns)), make(chan struct{})
	var asked atomic.Int32
	if !b.late {
		close(gate)
	}
	for _, c := range b.conns {
		for _, e := range []*net.TCPConn{c.Client, c.Server} {
			if err := e.SetDeadline(time.Now().Add(testnet.Patience)); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			var q [1]byte
			_, err := io.ReadFull(c.Server, q[:])
			asked.Add(1)
			<-gate
			if err == nil {
				_, err = c.Server.Write(make([]byte, creditAnswer))
			}
			answers <- err
		}()
	}
	before := b.state(t).Holds
	for _, c := range b.conns {
		if _, err := c.Client.Write([]byte("q")); err != nil {
			t.Fatal(err)
		}
	}
	if b.late {
		testnet.Until(t, "a request is held, or all have come", func() bool { return b.state(t).Holds > before || asked.Load() == int32(len(b.conns)) })
		close(gate)
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

// askLate asks servers that answer late until a request is held, and then twice more. The port expects answers one after another until it
// has seen them come at once.
func (b *creditBed) askLate(t *testing.T) {
	t.Helper()
	b.late = true
	defer func() { b.late = false }()
	before := b.state(t).Holds
	for range 10 {
		b.ask(t)
		if b.state(t).Holds > before {
			b.ask(t)
			b.ask(t)
			return
		}
	}
	t.Error("no request was held, though servers were late and answered at once ten times")
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

// No server answers until a request is held. Then all answer at once. All answers come, all packets leave the parking, and soon
// nothing is held.
func TestFairQCredits_LateServers(t *testing.T) {
	b := newCreditBed(t, 40, fairq.Config{})
	b.ask(t)
	b.askLate(t)
	testnet.Until(t, "all parked packets have left", func() bool {
		p, err := b.f.ParkStats()
		if err != nil {
			t.Fatal(err)
		}
		return p.Parked > 0 && p.Returned == p.Parked && p.Stale+p.Foreign+p.Untrimmed == 0
	})
	if s := b.state(t); s.InFlight != 0 {
		t.Errorf("%+v: all requests were answered", s)
	}
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
	if s.Promises != 3*40 || s.Parked == 0 {
		t.Errorf("%+v: want a promise for each of 120 requests, and packets that waited", s)
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

// A server that has answered keeps a window of two segments, and not the law's: many such servers may be asked at once. The next
// answer comes whole.
func TestFairQCredits_AServerRestsWithTwoSegments(t *testing.T) {
	b := newCreditBed(t, 0, fairq.Config{})
	b.conns = []*testnet.Pair{b.Dial(t, b.Listen(t, testnet.ReceiverIPv4), testnet.WindowScale(4))}
	for range 3 {
		b.ask(t)
		testnet.Until(t, "the answer is acknowledged", func() bool { return testnet.ReadTCPInfo(t, b.conns[0].Server).Unacked == 0 })
		if i := testnet.ReadTCPInfo(t, b.conns[0].Server); i.Snd_wnd < 2*i.Snd_mss || i.Snd_wnd >= 3*i.Snd_mss {
			t.Errorf("the server may send %d bytes, with segments of %d: want two segments", i.Snd_wnd, i.Snd_mss)
		}
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

// A server that never answers keeps its promise while the client sends on. When heartbeats stop, the client's next data takes the
// promise back.
func TestFairQCredits_LeaseExpiresForAServerThatNeverAnswers(t *testing.T) {
	b := newCreditBed(t, 0, fairq.Config{Lease: 2 * fairq.HeartbeatInterval})
	if err := b.f.Heartbeat(); err != nil {
		t.Fatal(err)
	}
	b.conns = []*testnet.Pair{b.Dial(t, b.Listen(t, testnet.ReceiverIPv4), testnet.WindowScale(4))}
	sends := func() (mayAnswer uint32) {
		sent := testnet.ReadTCPInfo(t, b.conns[0].Client).Segs_out
		if _, err := b.conns[0].Client.Write([]byte("q")); err != nil {
			t.Fatal(err)
		}
		testnet.Until(t, "the server has acknowledged the data", func() bool {
			i := testnet.ReadTCPInfo(t, b.conns[0].Client)
			return i.Segs_out > sent && i.Unacked == 0
		})
		return testnet.ReadTCPInfo(t, b.conns[0].Server).Snd_wnd
	}
	promised, mss := sends(), testnet.ReadTCPInfo(t, b.conns[0].Server).Snd_mss
	if promised > 10*mss {
		t.Fatalf("the server may send %d bytes, with segments of %d: want a promise", promised, mss)
	}
	if again := sends(); again != promised {
		t.Errorf("the server may send %d bytes after its client's second packet, %d before", again, promised)
	}
	testnet.Until(t, "the lease has expired", func() bool {
		_, in := statsOfBoth(t, b.f)
		return !in.Enforced
	})
	// The coarse clock may be a tick behind, so one more packet may still carry the promise.
	testnet.Until(t, "the promise is taken back", func() bool { return sends() > promised })
}

// deleteParking deletes the switch's parking device.
func (b *creditBed) deleteParking(t *testing.T) {
	t.Helper()
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
}

// The parking device is deleted while packets leave: later packets pass, and answers come. A packet that the parking
// refused counts as refused and not as parked. The next heartbeat makes the device again.
func TestFairQCredits_ParkingDeleted(t *testing.T) {
	b := newCreditBed(t, 40, fairq.Config{})
	b.ask(t)
	b.deleteParking(t)
	before := b.state(t)
	b.ask(t)
	b.ask(t)
	after := b.state(t)
	if after.Parked != before.Parked || after.Full == before.Full {
		t.Errorf("%+v, then %+v without a parking: want none parked, and refused ones", before, after)
	}
	if err := b.f.Heartbeat(); err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "the parking is made again", func() bool { return b.parkingThere(t) })
	b.ask(t)
	if now := b.state(t); now.Parked == after.Parked {
		t.Errorf("%+v: nothing waits in the parking that was made again", now)
	}
}

// A parking that nobody uses is made again, too.
func TestFairQCredits_IdleParkingDeleted(t *testing.T) {
	b := newCreditBed(t, 1, fairq.Config{})
	b.deleteParking(t)
	testnet.Until(t, "the parking is made again", func() bool {
		if err := b.f.Heartbeat(); err != nil {
			t.Fatal(err)
		}
		return b.parkingThere(t)
	})
}

// Credits are switched on and off while connections carry data. The parking is there while they are on.
func TestFairQCredits_Change(t *testing.T) {
	b := newCreditBed(t, 40, fairq.Config{})
	change := func(to fairq.Credit) func() error {
		t.Helper()
		undo, err := b.f.Change(fairq.Config{Credit: to})
		if err != nil {
			t.Fatal(err)
		}
		b.ask(t)
		return undo
	}
	waited := func() bool { // acknowledgements of earlier answers may have waited meanwhile
		before := b.state(t)
		b.ask(t)
		return b.state(t).Parked > before.Parked
	}
	if !waited() {
		t.Error("with credits nothing waits")
	}
	change(fairq.CreditOff)
	if waited() || b.parkingThere(t) {
		t.Error("without credits packets wait, or the parking is there")
	}
	undo := change(fairq.CreditPaces)
	if !b.parkingThere(t) || !waited() {
		t.Error("with credits again nothing waits")
	}
	if err := undo(); err != nil || b.parkingThere(t) {
		t.Errorf("undone: %v; or the parking is there", err)
	}
	change(fairq.CreditPromises)
	if waited() || b.parkingThere(t) {
		t.Error("with promises alone packets wait, or the parking is there")
	}
}

// Stats reports what promises and credits do. The live promises are those of the last heartbeat.
func TestFairQCredits_Stats(t *testing.T) {
	b := newCreditBed(t, 40, fairq.Config{})
	b.ask(t)
	testnet.Until(t, "no packet is parked any more", func() bool { // acknowledgements of the answers' ends may come late
		for _, c := range b.conns {
			if testnet.ReadTCPInfo(t, c.Server).Unacked != 0 {
				return false
			}
		}
		p, err := b.f.ParkStats()
		if err != nil {
			t.Fatal(err)
		}
		return p.Returned == p.Parked
	})
	_, in := statsOfBoth(t, b.f)
	s := b.state(t)
	if c := in.Credits; !c.Promises || !c.Paces || c.Promised != s.Promises || c.Parked != s.Parked || c.Refused != s.Full || c.Longest <= 0 {
		t.Errorf("%+v, in the kernel %+v", c, s)
	}
	// A connection whose server does not answer keeps its promise, for 1 ms and twice the time of the port's room. Only its
	// first request has one, so a slow machine that misses it asks by another connection.
	asks := 0
	testnet.Until(t, "a live promise is counted", func() bool {
		if _, err := b.conns[asks%len(b.conns)].Client.Write([]byte("q")); err != nil {
			t.Fatal(err)
		}
		asks++
		if err := b.f.Heartbeat(); err != nil {
			t.Fatal(err)
		}
		_, in := statsOfBoth(t, b.f)
		return in.Credits.LiveBytes > 0
	})
	testnet.Until(t, "it is over", func() bool {
		if err := b.f.Heartbeat(); err != nil {
			t.Fatal(err)
		}
		_, in := statsOfBoth(t, b.f)
		return in.Credits.LiveBytes == 0
	})
}
