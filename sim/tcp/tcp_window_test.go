package tcp

import (
	"errors"
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

// A program that does not read closes the window. The sender probes with growing intervals (RFC 9293 3.8.6.1), also
// when every window update is lost.
func TestZeroWindowIsProbed(t *testing.T) {
	for _, updateLost := range []bool{false, true} {
		p := newPair(t)
		c := Default("reno")
		c.Buffer = 20_000
		client, server := p.connect(c, c)
		server.whenConnected = func(e *Endpoint) { e.Pause(true) }
		client.e.Write(100_000)
		client.e.Close()
		p.run(100 * event.Millisecond)
		e := client.e
		if e.sndWnd >= e.mss || e.Unsent() == 0 || server.got != 0 || e.board.len() != 0 {
			t.Fatalf("window %d, unsent %d, got %d, out %d", e.sndWnd, e.Unsent(), server.got, e.board.len())
		}
		var at []event.Time
		p.see = func(direction int, _ *network.Packet) {
			if direction == 0 {
				at = append(at, p.q.Now())
			}
		}
		p.run(60 * event.Second)
		if len(at) < 5 || len(at) > 12 {
			t.Fatalf("probes at %v", at)
		}
		for i := 3; i < len(at)-1; i++ {
			if first, second := at[i]-at[i-1], at[i+1]-at[i]; second < first*19/10 || second > first*21/10 {
				t.Errorf("intervals %d, %d", first, second)
			}
		}
		if k := e.Counters(); k.Persists < 4 || k.Timeouts != 0 {
			t.Errorf("%+v", k)
		}
		resumed := p.q.Now()
		lost := false
		p.lose = func(direction, _ int, _ *network.Packet) bool {
			drop := updateLost && direction == 1 && !lost
			lost = lost || drop
			return drop
		}
		server.e.Pause(false)
		p.run(resumed + 200*event.Second)
		p.through(client, server, 100_000)
		if took := server.doneAt - resumed; !updateLost && took > event.Second {
			t.Errorf("the rest took %d ns though the window update came", took)
		}
	}
}

// A sender gives up after R2 if the peer does not answer probes.
func TestUnansweredProbesEnd(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	c.Buffer, c.Retries, c.RTOMax = 10_000, 5, 10*event.Second
	client, server := p.connect(c, c)
	server.whenConnected = func(e *Endpoint) { e.Pause(true) }
	client.e.Write(100_000)
	p.run(event.Second)
	p.lose = func(int, int, *network.Packet) bool { return true }
	p.run(200 * event.Second)
	if !errors.Is(client.failed, ErrTimeout) {
		t.Errorf("failed: %v", client.failed)
	}
}

// A program that reads byte by byte does not open silly windows (RFC 1122 4.2.3.3). No silly segments are sent: after
// the first window all are full, except those with which Linux fills the window right after a full one.
func TestNoSillyWindows(t *testing.T) {
	for _, fill := range []bool{false, true} {
		p := newPair(t)
		c := plain("reno")
		c.Buffer, c.FillWindow = 8*1460, fill
		client, server := p.connect(c, c)
		full, behind := 0, 0
		silly := map[int32]int{}
		last := event.Time(-1) // when the last segment, a full one, was sent; -1: it was small
		p.see = func(direction int, pk *network.Packet) {
			switch {
			case direction != 0 || pk.Payload() == 0:
			case pk.Payload() == 1460:
				full++
				last = p.q.Now()
			case fill && last == p.q.Now() && pk.Seq()+uint32(pk.Payload()) == client.e.windowEnd():
				behind++
				last = -1
			default:
				silly[pk.Payload()]++
				last = -1
			}
		}
		server.whenConnected = func(e *Endpoint) { e.Pause(true) }
		client.e.Write(200 * 1460)
		for range 400 {
			p.run(p.q.Now() + event.Millisecond)
			if server.e == nil {
				continue
			}
			// The program reads 100 bytes.
			if e := server.e; e.unread >= 100 {
				e.unread -= 100
				e.windowUpdate()
			}
		}
		if full < 20 || fill != (behind > 0) {
			t.Errorf("filling %v: %d full segments, %d behind them", fill, full, behind)
		}
		for size, n := range silly {
			if n > 1 {
				t.Errorf("filling %v: %d segments of %d bytes", fill, n, size)
			}
		}
	}
}

// Windows are 16 bits and a shift. An offered window never exceeds the buffer by more than a unit, the edge never moves
// left, and the sender stays within it.
func TestOfferedWindow(t *testing.T) {
	for _, buffer := range []int64{1000, 5000, 20_001, 65_535, 65_536, 1_000_000, 16 << 20} {
		p := newPair(t)
		c := Default("reno")
		c.Buffer = buffer
		if buffer == 20_001 {
			c.Scale = 14 // units of 16 KiB: the SYN's window was larger than a multiple
		}
		shift := uint(c.shift())
		var edge, start uint32
		var sawACK bool
		p.see = func(direction int, pk *network.Packet) {
			switch {
			case direction == 1 && pk.Flags()&network.SYN == 0:
				e := pk.Ack() + uint32(pk.Window())<<shift
				if sawACK && before(e, edge) {
					t.Fatalf("buffer %d: the edge moves left by %d", buffer, edge-e)
				}
				edge, sawACK = e, true
				if w := int64(pk.Window()) << shift; w > buffer+1<<shift {
					t.Fatalf("buffer %d: window %d", buffer, w)
				}
			case direction == 1:
				edge, sawACK = pk.Ack()+uint32(pk.Window()), true
				start = pk.Ack()
			case pk.Payload() > 0 && after(pk.Seq()+uint32(pk.Payload()), edge):
				t.Fatalf("buffer %d: data to %d, window to %d", buffer, pk.Seq()+uint32(pk.Payload())-start, edge-start)
			}
		}
		client, server := p.transfer(c, c, 400_000)
		p.run(100 * event.Second)
		p.through(client, server, 400_000)
	}
}

// With Nagle one small segment is in flight at a time (Minshall); without it each write is sent.
func TestNagle(t *testing.T) {
	for _, nagle := range []bool{false, true} {
		p := newPair(t)
		c := Default("reno")
		c.Nagle = nagle
		client, _ := p.connect(c, c)
		p.run(event.Millisecond)
		for range 5 {
			client.e.Write(100)
		}
		want := uint32(5)
		if nagle {
			want = 1
		}
		if got := client.e.board.len(); got != want {
			t.Errorf("nagle %v: %d segments out", nagle, got)
		}
	}
}

// Every second segment is acknowledged at once, a single one after the timeout (RFC 5681 4.2).
func TestDelayedACK(t *testing.T) {
	p := newPair(t)
	c := plain("sack")
	client, server := p.connect(c, c)
	p.run(event.Millisecond)
	acks := p.sent[1]
	client.e.Write(4 * 1460)
	p.run(p.q.Now() + event.Millisecond)
	if got := p.sent[1] - acks; got != 2 {
		t.Errorf("%d ACKs of 4 segments", got)
	}
	acks = p.sent[1]
	at := p.q.Now()
	var acked event.Time
	p.see = func(direction int, _ *network.Packet) {
		if direction == 1 {
			acked = p.q.Now()
		}
	}
	client.e.Write(1460)
	p.run(at + event.Second)
	if got := p.sent[1] - acks; got != 1 || acked-at < 40*event.Millisecond || acked-at > 41*event.Millisecond {
		t.Errorf("%d ACKs of a single segment, %d ns later", got, acked-at)
	}
	if server.got != 5*1460 {
		t.Errorf("got %d", server.got)
	}
}

// Linux acknowledges the first segments of a connection at once.
func TestQuickACKs(t *testing.T) {
	p := newPair(t)
	c := plain("reno")
	c.ACKPushed = false
	client, _ := p.connect(c, c)
	p.run(event.Millisecond)
	acks := p.sent[1]
	for range 30 {
		client.e.Write(1460)
		p.run(p.q.Now() + 5*event.Millisecond)
	}
	// 16 at once. Each of the other 14 waits for 40 ms or for the next, whichever is first.
	if got := p.sent[1] - acks; got < 16+6 || got > 16+8 {
		t.Errorf("%d ACKs of 30 lone segments", got)
	}
}
