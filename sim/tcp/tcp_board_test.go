package tcp

import (
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

// peerOf is a sender whose peer is the test. Its packets are counted and lost, and the test injects ACKs.
type peerOf struct {
	*pair
	e      *Endpoint
	window uint16
	sent   []network.Packet // data
}

// sender returns a peerOf that has sent that many segments of 1000 bytes, its initial window.
func sender(t *testing.T, c *Config, segments int64) *peerOf {
	t.Helper()
	p := &peerOf{pair: newPair(t), window: 65535}
	c.MSS, c.InitialWindow, c.Timestamps, c.RTOMin = 1000, uint32(segments), false, event.Second
	p.lose = func(_, _ int, pk *network.Packet) bool {
		if pk.Payload() > 0 {
			p.sent = append(p.sent, *pk)
		}
		return true
	}
	p.e = p.stack.Dial(left, right, 1000, 80, c, &program{})
	p.run(100 * event.Millisecond)
	pk := p.net.NewPacket()
	pk.SetSrc(right)
	pk.SetDst(left)
	pk.SetSrcPort(80)
	pk.SetDstPort(1000)
	pk.SetProto(network.TCP)
	pk.SetFlags(network.SYN | network.ACK)
	pk.SetSeq(99)
	pk.SetAck(p.e.iss + 1)
	pk.SetWindow(65535)
	pk.SetMSS(1000)
	pk.SetSACKPermitted(true)
	p.stack.Deliver(left, pk, p.q.Now())
	p.e.Write(segments * 1000)
	p.run(200 * event.Millisecond)
	if len(p.sent) != int(segments) {
		t.Fatalf("%d segments sent", len(p.sent))
	}
	p.sent = nil
	return p
}

// ack acknowledges up to segment n, and SACKs the ranges of segments given in pairs.
func (p *peerOf) ack(n uint32, ranges ...uint32) {
	pk := p.net.NewPacket()
	pk.SetSrc(right)
	pk.SetDst(left)
	pk.SetSrcPort(80)
	pk.SetDstPort(1000)
	pk.SetProto(network.TCP)
	pk.SetFlags(network.ACK)
	pk.SetSeq(100)
	pk.SetAck(p.e.iss + 1 + 1000*n)
	pk.SetWindow(p.window)
	for i := 0; i+1 < len(ranges); i += 2 {
		pk.AddBlock(network.Block{From: p.e.iss + 1 + 1000*ranges[i], To: p.e.iss + 1 + 1000*ranges[i+1]})
	}
	p.stack.Deliver(left, pk, p.q.Now())
	p.check()
}

func (p *peerOf) wait(t event.Time) { p.run(p.q.Now() + t) }

// IsLost of RFC 6675 4: a hole with two segments SACKed above it is not lost, with three it is.
func TestIsLostCountsThree(t *testing.T) {
	p := sender(t, Default("sack"), 10)
	p.ack(0, 1, 4)
	if p.e.lostOut != 1 || p.e.recovery != Recovering {
		t.Fatalf("%d lost, %v", p.e.lostOut, p.e.recovery)
	}
	p.ack(0, 5, 7, 1, 4) // segment 4 has two above
	if p.e.lostOut != 1 {
		t.Errorf("%d lost with two above the second hole", p.e.lostOut)
	}
	p.ack(0, 5, 8, 1, 4)
	if p.e.lostOut != 2 {
		t.Errorf("%d lost with three above the second hole", p.e.lostOut)
	}
}

// Invalid blocks are ignored: those outside the data in flight, or with ends exchanged.
func TestInvalidBlocks(t *testing.T) {
	p := sender(t, Default("sack"), 10)
	p.ack(2)
	for _, r := range [][2]uint32{{4, 30}, {11, 12}, {6, 5}, {5, 5}} {
		p.ack(2, r[0], r[1])
		if p.e.sackedOut != 0 {
			t.Fatalf("block %v: %d SACKed", r, p.e.sackedOut)
		}
	}
	p.ack(2, 8, 9, 1, 5) // the second begins below the acknowledgement, which only the first may (DSACK)
	if p.e.sackedOut != 1 {
		t.Errorf("%d SACKed", p.e.sackedOut)
	}
}

// There are more duplicate ACKs than segments: one segment always counts as missing (Linux: tcp_limit_reno_sacked).
func TestTooManyDuplicates(t *testing.T) {
	p := sender(t, Default("newreno"), 5)
	for range 20 {
		p.ack(0)
	}
	if p.e.sackedOut != 4 {
		t.Errorf("%d of 5 taken for arrived", p.e.sackedOut)
	}
}

// Karn: an ACK that covers a segment sent twice and one sent once measures neither.
func TestKarnOfAMixedACK(t *testing.T) {
	c := Default("newreno")
	p := sender(t, c, 2)
	srtt, _ := p.e.RTT()
	p.wait(3 * event.Second) // the first is retransmitted
	p.ack(2)
	if got, _ := p.e.RTT(); got != srtt {
		t.Errorf("SRTT %d, was %d", got, srtt)
	}
}

// A retransmission stays within the window that the peer still offers. The first segment may exceed it, as a probe.
func TestRetransmissionWithinTheWindow(t *testing.T) {
	p := sender(t, Default("sack"), 10)
	p.ack(1)
	p.window, p.e.sndWnd = 2500, 2500 // shrunk since: segments 1 and 2, and half of 3
	p.e.win.Cwnd = 20
	p.ack(1, 7, 10, 4, 6)
	for _, pk := range p.sent {
		if after(pk.Seq(), p.e.una+2500) {
			t.Errorf("sent %d beyond the acknowledged", pk.Seq()-p.e.una)
		}
	}
	if len(p.sent) != 3 {
		t.Errorf("%d segments sent again", len(p.sent))
	}
}

// PRR (RFC 6937): with exactly ssthresh in flight the fast retransmit is still sent. Each recovery counts from 0.
func TestPRRCountsAnew(t *testing.T) {
	c := Default("sack")
	c.PRR, c.Rescue, c.LimitedTransmit = true, false, false
	p := sender(t, c, 7) // ssthresh 3; 7 - 3 SACKed - 1 lost = 3
	p.ack(0, 1, 4)
	if len(p.sent) != 1 || p.e.rec.prrOut != 1 {
		t.Fatalf("%d sent, prr_out %d", len(p.sent), p.e.rec.prrOut)
	}
	p.ack(0, 1, 7)
	p.wait(100 * event.Millisecond)
	p.ack(7)
	if p.e.recovery != Open || p.e.Window().Cwnd != 3 {
		t.Fatalf("%v, window %+v", p.e.recovery, p.e.Window())
	}
	p.e.win.Cwnd = 8
	p.e.Write(8000)
	p.wait(10 * event.Millisecond)
	p.sent = nil
	p.ack(7, 8, 11)
	if p.e.rec.prrDelivered != 3 || p.e.rec.prrOut != 1 || len(p.sent) != 1 {
		t.Errorf("prr_delivered %d, prr_out %d, %d sent", p.e.rec.prrDelivered, p.e.rec.prrOut, len(p.sent))
	}
}

// A probe that repaired a loss halves the window: the next acknowledgement shows that no duplicate arrived (RFC 8985
// 7.4.2). A DSACK shows that one did, and the window stays.
func TestProbeThatRepairs(t *testing.T) {
	for _, duplicate := range []bool{false, true} {
		c := Default("reno")
		p := sender(t, c, 10)
		p.ack(9)
		p.wait(900 * event.Millisecond)
		if p.e.Counters().Probes != 1 || p.e.Counters().Timeouts != 0 {
			t.Fatalf("%+v", p.e.Counters())
		}
		before := p.e.Window()
		p.ack(10)
		if duplicate {
			p.ack(10, 9, 10)
		}
		p.e.Write(1000)
		p.ack(11)
		after := p.e.Window()
		half := before.Cwnd / 2
		if duplicate && after.Ssthresh != NoSsthresh || !duplicate && (after.Ssthresh < half || after.Ssthresh > half+1) {
			t.Errorf("duplicate %v: %+v, then %+v", duplicate, before, after)
		}
		if p.e.recovery != Open || p.e.rec.probing {
			t.Errorf("duplicate %v: %v, probing %v", duplicate, p.e.recovery, p.e.rec.probing)
		}
	}
}

// A hole of one byte counts as a hole.
func TestHoleOfOneByte(t *testing.T) {
	p := newPair(t)
	c := plain("sack")
	client, server := p.connect(c, c)
	p.run(event.Millisecond)
	e := server.e
	at := e.rcvNxt
	p.inject(e, network.ACK, at+101, e.una, 100, 1000)
	p.inject(e, network.ACK, at, e.una, 100, 1000)
	if server.got != 100 || e.rcvNxt != at+100 {
		t.Errorf("got %d", server.got)
	}
	p.inject(e, network.ACK, at+100, e.una, 1, 1000)
	if server.got != 201 || client.failed != nil {
		t.Errorf("got %d", server.got)
	}
}

// RFC 6582 3.2 step 3, option 1: the window after recovery is at most the data in flight and one segment, so that no
// burst follows.
func TestNewRenoEndsWithoutABurst(t *testing.T) {
	p := sender(t, Default("newreno"), 10)
	for range 4 {
		p.ack(0)
	}
	p.wait(100 * event.Millisecond)
	p.ack(10)
	if w := p.e.Window(); w.Ssthresh != 5 || w.Cwnd > 3 {
		t.Errorf("%+v with nothing in flight", w)
	}
}

// A connection that is over at both ends waits for a paused program to read.
func TestPausedProgramGetsAll(t *testing.T) {
	for _, closesFirst := range []bool{true, false} {
		p := newPair(t)
		c := Default("reno")
		client, server := p.connect(c, c)
		server.whenConnected = func(e *Endpoint) {
			e.Pause(true)
			if closesFirst {
				e.Close()
			}
		}
		server.whenFinished = nil
		client.e.Write(5000)
		client.e.Close()
		p.run(event.Second)
		if !closesFirst {
			server.e.Close()
			p.run(2 * event.Second)
		}
		if server.got != 0 || server.finished != 0 || p.stack.Open() != 1 {
			t.Fatalf("got %d, finished %d, %d open", server.got, server.finished, p.stack.Open())
		}
		server.e.Pause(false)
		p.run(p.q.Now() + event.Second)
		p.through(client, server, 5000)
	}
}
