package fairq_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/internal/frames"
	"weir/datapath/testnet"
)

// handshakes has n clients connect to a server, none of which exists: both sides are frames. All clients complete their handshakes, and
// then all send a request, while ACKs still wait. It returns once all requests have passed.
func (b *creditBed) handshakes(t *testing.T, n uint16) (server netip.Addr) {
	t.Helper()
	f := newForgers(t, b.rwndPath)
	client := netip.AddrFrom4([4]byte{198, 18, 0, 1})
	server = netip.AddrFrom4([4]byte{198, 18, 0, 2})
	const port, seq, ack = 80, 1000, 5000 // sequence numbers of the client's and the server's SYN
	send := func(side int, s frames.Segment) {
		t.Helper()
		for i := range n {
			s.Link, s.IP, s.FromPort, s.ToPort = f.link[0], frames.IP{From: client, To: server}, 1000+i, port
			if side == 1 {
				s.Link, s.IP, s.FromPort, s.ToPort = f.link[1], frames.IP{From: server, To: client}, port, 1000+i
			}
			s.Window = 1000
			f.raw[side].Send(t, s.Bytes())
		}
	}
	out, in := statsOfBoth(t, b.f)
	passed := func(what string, toServer, toClient uint64) {
		t.Helper()
		testnet.Until(t, what, func() bool {
			nowOut, nowIn := statsOfBoth(t, b.f)
			return nowOut.Seen >= out.Seen+toServer*uint64(n) && nowIn.Seen >= in.Seen+toClient*uint64(n)
		})
	}
	send(0, frames.Segment{Seq: seq, Flags: frames.SYN, Options: synOptions})
	passed("all SYNs have passed", 1, 0)
	send(1, frames.Segment{Seq: ack, Ack: seq + 1, Flags: frames.SYN | frames.ACK, Options: synOptions})
	passed("all SYN-ACKs have passed", 1, 1)
	send(0, frames.Segment{Seq: seq + 1, Ack: ack + 1, Flags: frames.ACK})
	send(0, frames.Segment{Seq: seq + 1, Ack: ack + 1, Flags: frames.PSH | frames.ACK, Payload: []byte("q")})
	passed("all requests have passed", 3, 1)
	return server
}

// 40 clients send their requests while the ACKs of their handshakes wait, so most requests wait behind the last ACK. They do not leave
// together: the places of most ACKs have passed by then, and their requests wait for places of their own.
func TestFairQCredits_RequestsBehindHandshakes(t *testing.T) {
	b := newCreditBed(t, 0, fairq.Config{})
	const n = 40
	server := b.handshakes(t, n)
	var came []time.Time
	testnet.Until(t, "all requests have arrived", func() bool {
		b.server.Each(t, func(s *testnet.Segment) {
			if !s.Out && s.Payload > 0 && s.To.Addr() == server {
				came = append(came, s.At)
			}
		})
		return len(came) == n
	})
	slices.SortFunc(came, time.Time.Compare)
	// Each promises two segments, 0.5 ms of 50 Mbit/s, and a promise is live for 3.6 ms.
	for i := n / 2; i < n; i++ {
		if took := came[i].Sub(came[i-n/2]); took < 2*time.Millisecond {
			t.Fatalf("%d requests leave within %v, their answers take %v of the line", n/2, took, n/2*time.Millisecond/2)
		}
	}
}
