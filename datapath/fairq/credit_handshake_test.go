package fairq_test

import (
	"net/netip"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// handshakes has n clients connect to a server, none of which exists: both sides are frames. All clients complete their handshakes, and
// then all send a request. It returns once all have entered the switch.
func (b *creditBed) handshakes(t *testing.T, n uint16) (server netip.Addr) {
	t.Helper()
	f := newForgers(t, b.rwndPath)
	client := netip.AddrFrom4([4]byte{198, 18, 0, 1})
	server = netip.AddrFrom4([4]byte{198, 18, 0, 2})
	const port, seq, ack = 80, 1000, 5000 // sequence numbers of the client's and the server's SYN
	step := func(side int, what string, s frames.Segment) {
		t.Helper()
		beforeOut, beforeIn := statsOfBoth(t, b.f)
		for i := range n {
			s.Link, s.IP, s.FromPort, s.ToPort = f.link[0], frames.IP{From: client, To: server}, 1000+i, port
			if side == 1 {
				s.Link, s.IP, s.FromPort, s.ToPort = f.link[1], frames.IP{From: server, To: client}, port, 1000+i
			}
			s.Window = 1000
			f.raw[side].Send(t, s.Bytes())
		}
		testnet.Until(t, what, func() bool {
			out, in := statsOfBoth(t, b.f)
			return side == 0 && out.Seen >= beforeOut.Seen+uint64(n) || side == 1 && in.Seen >= beforeIn.Seen+uint64(n)
		})
	}
	step(0, "all SYNs have passed", frames.Segment{Seq: seq, Flags: frames.SYN, Options: synOptions})
	step(1, "all SYN-ACKs have passed", frames.Segment{Seq: ack, Ack: seq + 1, Flags: frames.SYN | frames.ACK, Options: synOptions})
	step(0, "all ACKs have passed", frames.Segment{Seq: seq + 1, Ack: ack + 1, Flags: frames.ACK})
	step(0, "all requests have passed", frames.Segment{Seq: seq + 1, Ack: ack + 1, Flags: frames.PSH | frames.ACK, Payload: []byte("q")})
	return server
}

// 40 clients send their requests while the ACKs of their handshakes wait, so the requests wait behind the last ACK. They do not leave
// together: the places of most ACKs have passed by then, and their requests wait for places of their own.
func TestFairQCredits_RequestsBehindHandshakes(t *testing.T) {
	b := newCreditBed(t, 0, fairq.Config{})
	const n = 40
	server := b.handshakes(t, n)
	var first, last time.Time
	testnet.Until(t, "all requests have arrived", func() bool {
		requests := 0
		b.server.Each(t, func(s *testnet.Segment) {
			if s.Out || s.Payload == 0 || s.To.Addr() != server {
				return
			}
			if requests++; requests == 1 {
				first = s.At
			}
			last = s.At
		})
		return requests == n
	})
	// Each promises two segments: 0.5 ms of 50 Mbit/s.
	if took := last.Sub(first); took < n*time.Millisecond/4 {
		t.Errorf("the requests leave within %v, their answers take %v of the line", took, n*time.Millisecond/2)
	}
}
