package tcp

import (
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

// A switch limits windows to one and a half segments. A small segment follows the full one, and the receiver
// acknowledges both at once. Alone, the full one would wait for a delayed ACK (40 ms) in every RTT. With Nagle a small
// one waits until the last one is acknowledged, which it is by then.
func TestFillWindow(t *testing.T) {
	const segments = 200
	took := func(fill, nagle bool) (event.Time, map[int32]int) {
		p := newPair(t)
		c := plain("reno")
		c.FillWindow, c.Nagle, c.QuickACKs = fill, nagle, 0
		sizes := map[int32]int{}
		limited := false // from the first data on: the segments already have full size
		p.see = func(direction int, pk *network.Packet) {
			switch {
			case direction == 0 && pk.Payload() > 0:
				sizes[pk.Payload()]++
				limited = true
			case limited:
				pk.SetWindow(min(pk.Window(), uint16(1460*3/2>>c.shift())))
			}
		}
		client, server := p.transfer(c, c, segments*1460)
		p.run(60 * event.Second)
		p.through(client, server, segments*1460)
		return server.doneAt, sizes
	}
	without, _ := took(false, false)
	for _, nagle := range []bool{false, true} {
		with, sizes := took(true, nagle)
		if with*20 > without {
			t.Errorf("nagle %v: %d us, and %d us one segment at a time", nagle, with/1000, without/1000)
		}
		if small := segments - sizes[1460]; small < segments/5 || small > segments/2 {
			t.Errorf("nagle %v: sizes %v", nagle, sizes)
		}
	}
}

// Linux fills a window within one packet, which is at most half of cwnd. With a cwnd of 2 or 3 a window of one and a
// half segments is one segment, and each waits for its delayed ACK. (Seen on Linux 6.18 behind a switch that limits 66
// flows to a segment each. The flows with losses had cwnd 2 or 3, one segment in flight and an RTT of 40 ms.)
func TestFillWindow_WantsTwoPackets(t *testing.T) {
	for _, cwnd := range []uint32{1, 2, 6} { // an ACK may add one
		p := newPair(t)
		c := plain("reno")
		c.FillWindow, c.Nagle, c.QuickACKs = true, false, 0
		var client *program
		full, small := 0, 0 // small ones that fill the window
		limited := false    // from the first data on: the segments already have full size
		p.see = func(direction int, pk *network.Packet) {
			if client != nil {
				client.e.win.Cwnd, client.e.win.Ssthresh = cwnd, cwnd
			}
			switch {
			case direction == 0 && pk.Payload() == 1460:
				full++
				limited = true
			case direction == 0 && pk.Payload() > 0 && pk.Seq()+uint32(pk.Payload()) == client.e.windowEnd():
				small++
			case limited:
				pk.SetWindow(min(pk.Window(), uint16(1460*3/2>>c.shift())))
			}
		}
		client, _ = p.connect(c, c)
		client.e.Write(200 * 1460)
		p.run(30 * event.Second)
		if full < 50 || (small > 0) != (cwnd >= 4) {
			t.Errorf("cwnd %d: %d full segments and %d small ones", cwnd, full, small)
		}
	}
}

// Half of the largest window that an accepted connection was offered bounds its segments. Linux does not count the
// SYN's window. If a switch limits windows to 2 KB, the acceptor sends segments of 1 KB, and the dialler whole ones.
// (Seen on Linux 6.18: mss:1024 of a flow whose switch granted 2048.)
func TestSegments_HalfOfTheFirstWindow(t *testing.T) {
	for _, uncounted := range []bool{false, true} {
		p := newPair(t)
		c := plain("reno")
		c.SYNWindowUncounted = uncounted
		largest := map[int]int32{}
		p.see = func(direction int, pk *network.Packet) {
			largest[direction] = max(largest[direction], pk.Payload())
			if pk.Flags()&network.SYN == 0 {
				pk.SetWindow(min(pk.Window(), uint16(2048>>c.shift())))
			}
		}
		client, server := p.connect(c, c)
		server.whenConnected = func(e *Endpoint) { e.Write(20 * 1460) }
		client.e.Write(20 * 1460)
		p.run(30 * event.Second)
		want := int32(1460)
		if uncounted {
			want = 1024
		}
		if largest[0] != 1460 || largest[1] != want || server.got != 20*1460 || client.got != 20*1460 {
			t.Errorf("uncounted %v: segments of %v B, want 1460 and %d; %d and %d B came", uncounted, largest, want, server.got, client.got)
		}
	}
}
