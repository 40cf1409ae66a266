package tcp

import (
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

// RFC 3168 6.1: ECE echoes a marked segment until CWR. The sender halves the window once, and sends CWR with new data.
// Only new data is ECT.
func TestECNOfRFC3168(t *testing.T) {
	p := newPair(t)
	c := plain("reno")
	c.ECN = true
	client, server := p.connect(c, c)
	p.run(event.Millisecond)
	e := client.e
	first := p.sent[0]
	var cwr, ecePackets, eceAfterCWR int
	cwrArrived := false
	p.lose = func(direction, n int, pk *network.Packet) bool {
		switch {
		case direction == 0 && pk.Payload() > 0:
			if pk.ECN() != network.ECT0 {
				t.Errorf("data with ECN %d", pk.ECN())
			}
			if n == first+5 || n == first+6 {
				pk.SetECN(network.CE)
			}
			if pk.Flags()&network.CWR != 0 {
				cwr++
			}
		case pk.ECN() != network.NotECT:
			t.Errorf("a pure ACK with ECN %d", pk.ECN())
		}
		if direction == 1 && pk.Flags()&network.ECE != 0 {
			ecePackets++
			if cwrArrived {
				eceAfterCWR++
			}
		}
		cwrArrived = cwrArrived || direction == 1 && server.e != nil && cwr > 0 && !server.e.ack.echo
		return false
	}
	e.Write(300_000)
	p.run(p.q.Now() + event.Second)
	k := e.Counters()
	if k.Reductions != 1 || cwr != 1 || ecePackets < 2 || eceAfterCWR != 0 {
		t.Errorf("%d reductions, %d CWR, %d ECE, %d of them after CWR", k.Reductions, cwr, ecePackets, eceAfterCWR)
	}
	if k.Retransmitted != 0 || server.e.Counters().Marks != 2 {
		t.Errorf("%+v, marks %d", k, server.e.Counters().Marks)
	}
	if e.Window().Ssthresh == NoSsthresh {
		t.Error("slow start goes on")
	}
}

// Retransmissions are not ECT (RFC 3168 6.1.5), but for Linux's DCTCP all packets are.
func TestECTOfRetransmissions(t *testing.T) {
	for _, name := range []string{"reno", "dctcp"} {
		p := newPair(t)
		c := Default(name)
		c.ECN = true
		seen := map[uint32]bool{}
		again := 0
		p.lose = func(direction, n int, pk *network.Packet) bool {
			if direction == 0 && pk.Payload() > 0 {
				if seen[pk.Seq()] {
					again++
					if (pk.ECN() == network.ECT0) != (name == "dctcp") {
						t.Errorf("%s: a retransmission with ECN %d", name, pk.ECN())
					}
				}
				seen[pk.Seq()] = true
			}
			if pk.Payload() == 0 && pk.Flags() == network.ACK && (pk.ECN() == network.ECT0) != (name == "dctcp") {
				t.Errorf("%s: an ACK with ECN %d", name, pk.ECN())
			}
			return direction == 0 && n == 8
		}
		client, server := p.transfer(c, c, 100_000)
		p.run(10 * event.Second)
		p.through(client, server, 100_000)
		if again == 0 {
			t.Error("nothing was sent again")
		}
	}
}

// A SYN that was lost is retransmitted without ECN if the fallback is on (RFC 3168 6.1.1.1).
func TestECNFallback(t *testing.T) {
	for _, fallback := range []bool{false, true} {
		p := newPair(t)
		c := Default("reno")
		c.ECN, c.ECNFallback = true, fallback
		p.lose = func(direction, n int, _ *network.Packet) bool { return direction == 0 && n == 0 }
		client, server := p.connect(c, c)
		p.run(3 * event.Second)
		if client.e.ecnOK == fallback || server.e.ecnOK == fallback {
			t.Errorf("fallback %v: ECN %v %v", fallback, client.e.ecnOK, server.e.ecnOK)
		}
	}
}

// RFC 8257 3.2: the receiver acknowledges at once when the CE state changes. So the bytes acknowledged with ECE are
// those that were marked, with delayed ACKs too.
func TestDCTCPEchoesExactly(t *testing.T) {
	for _, quick := range []int{0, 16} {
		p := newPair(t)
		c := plain("dctcp")
		c.QuickACKs, c.ACKPushed = quick, false
		client, server := p.connect(c, c)
		p.run(event.Millisecond)
		e := client.e
		r := event.NewRandom(1, "marks")
		var marked, echoed, plainBytes int64
		last := e.una
		p.lose = func(direction, _ int, pk *network.Packet) bool {
			if direction == 0 && pk.Payload() > 0 && r.IntN(3) == 0 {
				pk.SetECN(network.CE)
				marked += int64(pk.Payload())
			}
			if direction == 1 {
				if n := int64(pk.Ack() - last); pk.Flags()&network.ECE != 0 {
					echoed += n
				} else {
					plainBytes += n
				}
				last = pk.Ack()
			}
			return false
		}
		e.Write(500 * 1460)
		p.run(p.q.Now() + 10*event.Second)
		if server.got != 500*1460 {
			t.Fatalf("got %d", server.got)
		}
		if echoed != marked || plainBytes != 500*1460-marked {
			t.Errorf("%d bytes were marked, %d echoed", marked, echoed)
		}
	}
}

// A DCTCP sender whose segments are all marked reaches alpha = 1 and a window of 2. Without marks alpha falls to 0.
func TestDCTCPAlphaEndToEnd(t *testing.T) {
	for _, mark := range []bool{true, false} {
		p := newPair(t)
		c := Default("dctcp")
		c.ClampWindow = 20 // short RTTs
		client, _ := p.connect(c, c)
		p.lose = func(direction, _ int, pk *network.Packet) bool {
			if mark && direction == 0 && pk.Payload() > 0 {
				pk.SetECN(network.CE)
			}
			return false
		}
		client.e.Write(4_000_000)
		p.run(100 * event.Millisecond)
		alpha, cwnd := client.e.Alpha(), client.e.Window().Cwnd
		if mark && (alpha < 1000 || cwnd > 4) || !mark && (alpha > 50 || cwnd < 20) {
			t.Errorf("mark %v: alpha %d, cwnd %d", mark, alpha, cwnd)
		}
	}
}
