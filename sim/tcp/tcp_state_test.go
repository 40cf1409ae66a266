package tcp

import (
	"errors"
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

func TestHandshakeNegotiates(t *testing.T) {
	p := newPair(t)
	a, b := Default("dctcp"), Default("dctcp")
	a.MSS, a.Buffer, b.Scale = 1000, 1<<20, 3
	var syn, synACK network.Packet
	p.see = func(direction int, pk *network.Packet) {
		if pk.Flags()&network.SYN != 0 {
			if direction == 0 {
				syn = *pk
			} else {
				synACK = *pk
			}
		}
	}
	client, server := p.connect(a, b)
	p.run(event.Millisecond)
	if syn.Flags() != network.SYN|network.ECE|network.CWR || syn.ECN() != network.ECT0 || syn.MSS() != 1000 || syn.Scale() != 5 || !syn.SACKPermitted() || syn.Window() != 65535 {
		t.Errorf("SYN %+v", syn)
	}
	if synACK.Flags() != network.SYN|network.ACK|network.ECE || synACK.MSS() != 1460 || synACK.Scale() != 3 || synACK.Ack() != syn.Seq()+1 || synACK.Window() != 65535 {
		t.Errorf("SYN-ACK %+v", synACK)
	}
	// HeaderBytes, and 4 + 2 + 10 + 3 bytes of options in words.
	if syn.Bytes() != network.HeaderBytes+20 {
		t.Errorf("a SYN of %d bytes", syn.Bytes())
	}
	c, s := client.e, server.e
	if c.State() != Established || s.State() != Established || !c.ecnOK || !s.ecnOK || !c.sackOK || !s.sackOK || !c.timestamps {
		t.Errorf("%v %v, ecn %v %v, sack %v %v, timestamps %v", c.State(), s.State(), c.ecnOK, s.ecnOK, c.sackOK, s.sackOK, c.timestamps)
	}
	if c.mss != 988 || s.mss != 988 || c.sndShift != 3 || s.sndShift != 5 {
		t.Errorf("MSS %d %d, shifts %d %d", c.mss, s.mss, c.sndShift, s.sndShift)
	}
	if c.rtt.smoothed() < 100*event.Microsecond || c.rtt.smoothed() > 110*event.Microsecond {
		t.Errorf("first RTT %d", c.rtt.smoothed())
	}
}

func TestOptionsNeedBoth(t *testing.T) {
	p := newPair(t)
	a, b := Default("reno"), Default("reno")
	a.ECN = true
	b.Scale, b.Timestamps = -1, false
	b.SACK, b.DSACK, b.RACK, b.TLP = false, false, false, false
	client, server := p.connect(a, b)
	p.run(event.Millisecond)
	for _, e := range []*Endpoint{client.e, server.e} {
		if e.ecnOK || e.sackOK || e.useRACK || e.timestamps || e.sndShift != 0 || e.rcvShift != 0 || e.mss != 1460 {
			t.Errorf("ecn %v sack %v rack %v timestamps %v shifts %d %d mss %d", e.ecnOK, e.sackOK, e.useRACK, e.timestamps, e.sndShift, e.rcvShift, e.mss)
		}
	}
}

// SYNs are sent after 0, 1, 3, 7 s (RFC 6298 5.5), then Failed is called.
func TestSYNBacksOffAndGivesUp(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	c.SYNRetries = 3
	var at []event.Time
	p.lose = func(int, int, *network.Packet) bool {
		at = append(at, p.q.Now())
		return true
	}
	client, _ := p.connect(c, c)
	p.run(100 * event.Second)
	want := []event.Time{0, event.Second, 3 * event.Second, 7 * event.Second}
	if len(at) != len(want) {
		t.Fatalf("SYNs at %v", at)
	}
	for i := range want {
		if at[i] != want[i] {
			t.Errorf("SYN %d at %d, want %d", i, at[i], want[i])
		}
	}
	if !errors.Is(client.failed, ErrTimeout) {
		t.Errorf("failed: %v", client.failed)
	}
	p.finished()
}

// After lost SYNs the window is 1 segment (RFC 5681 3.1), and the RTO is 3 s if nothing was measured (RFC 6298 5.7).
func TestWindowAfterLostSYN(t *testing.T) {
	for _, test := range []struct {
		name   string
		config *Config
		lost   int
		cwnd   uint32
		rto    event.Time
	}{
		{"sack: 1", Default("sack"), 1, 1, 3 * event.Second},
		{"reno: 1", Default("reno"), 1, 10, 0},
		{"reno: 2", Default("reno"), 2, 1, 0},
		{"reno without timestamps: 1", plain("reno"), 1, 10, 3 * event.Second},
	} {
		p := newPair(t)
		p.lose = func(direction, n int, _ *network.Packet) bool { return direction == 0 && n < test.lost }
		client, _ := p.connect(test.config, test.config)
		p.run(10 * event.Second)
		if client.e == nil || client.e.State() != Established {
			t.Fatalf("%s: no connection", test.name)
		}
		if got := client.e.Window().Cwnd; got != test.cwnd {
			t.Errorf("%s: cwnd %d, want %d", test.name, got, test.cwnd)
		}
		if _, rto := client.e.RTT(); test.rto != 0 && rto != test.rto || test.rto == 0 && rto > event.Second {
			t.Errorf("%s: RTO %d, want %d", test.name, rto, test.rto)
		}
	}
}

func TestSYNToAClosedPortIsRefused(t *testing.T) {
	p := newPair(t)
	client := &program{}
	p.stack.Dial(left, right, 1000, 81, Default("reno"), client)
	p.run(event.Second)
	if !errors.Is(client.failed, ErrRefused) {
		t.Errorf("failed: %v", client.failed)
	}
	p.finished()
}

// Both close at the same moment: FIN-WAIT-1, CLOSING, TIME-WAIT (RFC 9293 3.6, figure 13).
func TestSimultaneousClose(t *testing.T) {
	for _, lost := range []int{-1, 0, 1} {
		p := newPair(t)
		c := Default("reno")
		client, server := p.connect(c, c)
		p.run(event.Millisecond)
		closing := 0
		p.stack.OnTrace(func(e *Endpoint, what TraceEvent) {
			if what == TraceState && e.State() == TimeWait {
				closing++
			}
		})
		if lost >= 0 {
			first := p.sent
			p.lose = func(direction, n int, _ *network.Packet) bool { return direction == lost && n == first[lost] }
		}
		client.e.Close()
		server.e.Close()
		if client.e.State() != FinWait1 || server.e.State() != FinWait1 {
			t.Fatalf("%v %v", client.e.State(), server.e.State())
		}
		p.run(10 * event.Second)
		p.through(client, server, 0)
		if closing < 1 {
			t.Error("no end came to TIME-WAIT")
		}
	}
}

// One side closes; the other continues to send (half-close).
func TestHalfClose(t *testing.T) {
	p := newPair(t)
	c := Default("cubic")
	client, server := p.connect(c, c)
	server.whenFinished = func(e *Endpoint) {
		e.Write(500_000)
		e.Close()
	}
	client.e.Write(1000)
	client.e.Close()
	p.run(event.Second)
	p.through(client, server, 1000)
	if client.got != 500_000 {
		t.Errorf("%d bytes came back", client.got)
	}
}

func TestAbortResetsThePeer(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	client, server := p.connect(c, c)
	client.e.Write(1_000_000)
	p.run(event.Millisecond)
	client.e.Abort()
	p.run(event.Second)
	if !errors.Is(server.failed, ErrReset) || client.failed != nil || server.got == 0 {
		t.Errorf("failed: %v %v, got %d", client.failed, server.failed, server.got)
	}
	p.finished()
}

// The RST of an abort is lost: another RST answers the peer's next segments.
func TestLostResetIsRepeated(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	client, server := p.connect(c, c)
	p.run(event.Millisecond)
	p.lose = func(_, _ int, pk *network.Packet) bool { return pk.Flags()&network.RST != 0 }
	client.e.Abort()
	p.run(2 * event.Millisecond)
	p.lose = nil
	if p.stack.Open() != 1 || server.failed != nil {
		t.Fatalf("%d open, %v", p.stack.Open(), server.failed)
	}
	server.e.Write(100)
	p.run(event.Second)
	if !errors.Is(server.failed, ErrReset) {
		t.Errorf("failed: %v", server.failed)
	}
	p.finished()
}

// A reset in the window, but not at RCV.NXT, gets only an ACK as answer (RFC 5961 3.2).
func TestBlindResetIsChallenged(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	client, server := p.connect(c, c)
	p.run(event.Millisecond)
	for _, off := range []uint32{0, 100} {
		acks := p.sent[1]
		pk := p.net.NewPacket()
		pk.SetSrc(left)
		pk.SetDst(right)
		pk.SetSrcPort(1000)
		pk.SetDstPort(80)
		pk.SetToAcceptor(true)
		pk.SetConn(client.e.Index())
		pk.SetProto(network.TCP)
		pk.SetFlags(network.RST)
		pk.SetSeq(server.e.rcvNxt + 100 - off)
		p.stack.Deliver(right, pk, p.q.Now())
		p.run(p.q.Now() + event.Microsecond)
		if off == 0 && (server.failed != nil || p.sent[1] != acks+1) || off == 100 && !errors.Is(server.failed, ErrReset) {
			t.Errorf("a reset %d before: %v, %d answers", off, server.failed, p.sent[1]-acks)
		}
	}
}

// A program that aborts within each of its calls, and one that dials again from there, disturb nothing.
func TestAbortWithinCallbacks(t *testing.T) {
	c := Default("reno")
	for _, when := range []string{"connected", "received", "finished"} {
		p := newPair(t)
		client, server := p.connect(c, c)
		again := func(e *Endpoint) {
			e.Abort()
			p.stack.Dial(right, left, 5000, 9, c, &program{})
		}
		switch when {
		case "connected":
			server.whenConnected = again
		case "received":
			server.whenReceived = again
		case "finished":
			server.whenFinished = again
		}
		client.e.Write(100_000)
		client.e.Close()
		p.run(10 * event.Second)
		p.finished()
		if server.connected != 1 || when != "finished" && !errors.Is(client.failed, ErrReset) {
			t.Errorf("%s: %+v", when, client.failed)
		}
	}
}

// The peer does not answer: R2 (RFC 1122 4.2.3.5) after that many timeouts, each twice as long.
func TestGivesUpAfterR2(t *testing.T) {
	p := newPair(t)
	c := plain("sack")
	c.Retries, c.RTOMin = 4, event.Second
	client, _ := p.connect(c, c)
	p.run(event.Millisecond)
	var at []event.Time
	p.lose = func(direction, _ int, _ *network.Packet) bool {
		if direction == 0 {
			at = append(at, p.q.Now())
		}
		return true
	}
	e := client.e
	e.Write(100)
	p.run(100 * event.Second)
	if !errors.Is(client.failed, ErrTimeout) || len(at) != 5 {
		t.Fatalf("failed: %v, sent at %v", client.failed, at)
	}
	for i := 2; i < len(at); i++ {
		if at[i]-at[i-1] != 2*(at[i-1]-at[i-2]) {
			t.Errorf("intervals of %v", at)
		}
	}
	if k := e.Counters(); k.Timeouts != 4 || k.FLoss != 4 {
		t.Errorf("%+v", k)
	}
}

func TestTruncateEndsAnEndlessFlow(t *testing.T) {
	p := newPair(t)
	c := Default("reno")
	client, server := p.connect(c, c)
	client.e.Write(1 << 40)
	p.run(50 * event.Millisecond)
	client.e.Truncate(100_000)
	client.e.Close()
	sent := client.e.Counters().Bytes
	p.run(10 * event.Second)
	p.through(client, server, sent+100_000)
}
