package tcp

import (
	"strings"
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

// inject delivers a segment of the peer to an endpoint: flags, sequence number and acknowledgement.
func (p *pair) inject(e *Endpoint, flags uint16, seq, ack uint32, payload int32, window uint16) {
	pk := p.net.NewPacket()
	host, port := e.Host()
	peer, peerPort := e.Peer()
	pk.SetSrc(peer)
	pk.SetDst(host)
	pk.SetSrcPort(peerPort)
	pk.SetDstPort(port)
	pk.SetConn(e.Index())
	pk.SetToAcceptor(!e.Dialled())
	pk.SetProto(network.TCP)
	pk.SetFlags(flags)
	pk.SetSeq(seq)
	pk.SetAck(ack)
	pk.SetPayload(payload)
	pk.SetWindow(window)
	pk.SetBytes(network.HeaderBytes + payload)
	p.stack.Deliver(host, pk, p.q.Now())
	p.check()
}

// Both dial each other: SYN-SENT, SYN-RECEIVED, ESTABLISHED (RFC 9293 3.5, figure 7).
func TestSimultaneousOpen(t *testing.T) {
	p := newPair(t)
	var flags []uint16
	p.lose = func(_, _ int, pk *network.Packet) bool {
		flags = append(flags, pk.Flags())
		return true
	}
	a := &program{}
	e := p.stack.Dial(left, right, 1000, 80, Default("reno"), a)
	p.inject(e, network.SYN, 500, 0, 0, 1000)
	if e.State() != SynReceived || len(flags) != 2 || flags[1] != network.SYN|network.ACK {
		t.Fatalf("%v, sent %v", e.State(), flags)
	}
	p.inject(e, network.SYN|network.ACK, 500, e.iss+1, 0, 1000)
	if e.State() != Established || a.connected != 1 || e.sndWnd != 1000 {
		t.Fatalf("%v, connected %d, window %d", e.State(), a.connected, e.sndWnd)
	}
	p.inject(e, network.ACK, 501, e.iss+1, 100, 1000)
	if a.got != 100 {
		t.Errorf("got %d", a.got)
	}
}

// A SYN-SENT endpoint refuses an acknowledgement of data that it did not send (RFC 9293 3.10.7.3).
func TestWrongACKOfSYN(t *testing.T) {
	p := newPair(t)
	var last network.Packet
	p.lose = func(_, _ int, pk *network.Packet) bool {
		last = *pk
		return true
	}
	e := p.stack.Dial(left, right, 1000, 80, Default("reno"), &program{})
	p.inject(e, network.SYN|network.ACK, 500, e.iss+2, 0, 1000)
	if e.State() != SynSent || last.Flags() != network.RST || last.Seq() != e.iss+2 {
		t.Errorf("%v, sent %+v", e.State(), last)
	}
}

// A peer shrinks its window. Segments beyond it are not retransmitted, except the first one as a probe, and that is not
// a loss timeout. When the window grows again all is delivered (RFC 9293 3.8.6).
func TestWindowIsTakenBack(t *testing.T) {
	p := newPair(t)
	c := plain("sack")
	client, server := p.connect(c, c)
	p.run(event.Millisecond)
	e := client.e
	blocked := true
	sent := 0
	p.lose = func(direction, _ int, pk *network.Packet) bool {
		if blocked && direction == 0 && pk.Payload() > 0 {
			sent++
		}
		return blocked
	}
	e.Write(8 * 1460)
	p.inject(e, network.ACK, e.rcvNxt, e.una+1460, 0, 0)
	if e.sndWnd != 0 || e.board.len() != 7 {
		t.Fatalf("window %d, %d out", e.sndWnd, e.board.len())
	}
	at := sent
	p.run(p.q.Now() + 10*event.Second)
	if got := sent - at; got < 3 || got > 8 || e.Counters().Timeouts != 0 {
		t.Errorf("%d segments sent, %+v", got, e.Counters())
	}
	// The acknowledged segment did not arrive, and the peer does not have it. So deliver it now.
	blocked = false
	server.e.rcvNxt += 1460
	server.e.rcvAcked = server.e.rcvNxt
	p.run(p.q.Now() + 100*event.Second)
	if server.got != 7*1460 {
		t.Errorf("got %d", server.got)
	}
}

// Acknowledged is called once for the written data.
func TestAcknowledgedIsReported(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	client, _ := p.connect(c, c)
	client.e.WantAcknowledged = true
	client.e.Write(50_000)
	p.run(event.Second)
	if client.acknowledged != 1 {
		t.Errorf("reported %d times", client.acknowledged)
	}
	client.e.Write(1)
	client.e.Write(1)
	client.e.Close()
	p.run(2 * event.Second)
	if client.acknowledged != 2 {
		t.Errorf("reported %d times", client.acknowledged)
	}
}

// A repeated SYN-ACK and a repeated old SYN are acknowledged, and change nothing (RFC 5961 4.2).
func TestLateHandshakeSegments(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	client, server := p.connect(c, c)
	client.e.Write(1000)
	p.run(event.Millisecond)
	sent := p.sent
	p.inject(client.e, network.SYN|network.ACK, client.e.irs, client.e.iss+1, 0, 1000)
	p.inject(server.e, network.SYN, server.e.irs, 0, 0, 1000)
	if p.sent[0] != sent[0]+1 || p.sent[1] != sent[1]+1 || client.e.State() != Established || server.e.State() != Established {
		t.Errorf("sent %v, before %v; %v %v", p.sent, sent, client.e.State(), server.e.State())
	}
}

// A window of hundreds of segments loses every other one. The scoreboard, its blocks and the queue of retransmissions
// grow, and all is delivered.
func TestManyHoles(t *testing.T) {
	eachVariant(t, func(t *testing.T, c *Config) {
		p := newPair(t)
		p.delay = 5 * event.Millisecond
		first := map[uint32]bool{}
		p.lose = func(direction, n int, pk *network.Packet) bool {
			if direction == 1 || pk.Payload() == 0 || first[pk.Seq()] {
				return false
			}
			first[pk.Seq()] = true
			return n > 400 && n < 900 && n%2 == 0
		}
		client, server := p.transfer(c, c, 3_000_000)
		p.run(1000 * event.Second)
		p.through(client, server, 3_000_000)
		if p.last[0].Retransmitted < 200 {
			t.Errorf("%+v", p.last[0])
		}
	})
}

func TestConfigsAreChecked(t *testing.T) {
	for _, name := range []string{"reno", "newreno", "sack", "cubic", "dctcp", "d2tcp"} {
		if err := Default(name).Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, test := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.Control = "vegas" }, "vegas"},
		{func(c *Config) { c.MSS = 0 }, "MSS"},
		{func(c *Config) { c.InitialWindow = 0 }, "initial window"},
		{func(c *Config) { c.Buffer = 2 << 30 }, "receive buffer"},
		{func(c *Config) { c.RTOMin = c.RTOMax + 1 }, "minimum RTO"},
		{func(c *Config) { c.DupThresh = 0 }, "duplicate threshold"},
		{func(c *Config) { c.SACK = false }, "SACK"},
	} {
		c := Default("reno")
		test.change(c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("want %q, got %v", test.want, err)
		}
	}
}

// In the steady state nothing is allocated, with losses too.
func TestNothingIsAllocated(t *testing.T) {
	for _, name := range []string{"newreno", "sack", "reno", "cubic", "dctcp"} {
		p := newPair(t)
		p.unchecked = true
		c := Default(name)
		c.Buffer = 200_000
		client, _ := p.connect(c, c)
		p.lose = func(direction, n int, _ *network.Packet) bool { return direction == 0 && n%500 == 499 }
		client.e.Write(1 << 40)
		p.q.Run(event.Second)
		before := client.e.Counters()
		n := testing.AllocsPerRun(1, func() { p.q.Run(p.q.Now() + event.Second) })
		k := client.e.Counters()
		if n > 0 || k.Segments-before.Segments < 10_000 || k.Retransmitted == before.Retransmitted {
			t.Errorf("%s: %v allocations with %d segments, %d retransmissions", name, n, k.Segments-before.Segments, k.Retransmitted-before.Retransmitted)
		}
	}
}

// BenchmarkSegment is a data segment and its share of ACKs through both ends, and the test's wire.
func BenchmarkSegment(b *testing.B) {
	for _, name := range []string{"sack", "reno", "cubic", "dctcp"} {
		b.Run(name, func(b *testing.B) {
			p := newPair(b)
			p.unchecked = true
			c := Default(name)
			c.Buffer = 200_000
			client, _ := p.connect(c, c)
			client.e.Write(1 << 40)
			p.q.Run(100 * event.Millisecond)
			b.ReportAllocs()
			b.ResetTimer()
			for until := client.e.Counters().Segments + int64(b.N); client.e.Counters().Segments < until; {
				p.q.Run(p.q.Now() + event.Millisecond)
			}
		})
	}
}
