package tcp

import (
	"testing"

	"weir/sim/event"
	"weir/sim/network"
)

// A switch holds windows to one and a half segments. Behind the full one a small one follows, and the receiver
// acknowledges both at once; alone, the full one waits for a delayed ACK (40 ms) in every round trip. With Nagle a small
// one waits until the last one was acknowledged, which it is by then.
func TestFillWindow(t *testing.T) {
	const segments = 200
	took := func(fill, nagle bool) (event.Time, map[int32]int) {
		p := newPair(t)
		c := plain("reno")
		c.FillWindow, c.Nagle, c.QuickACKs = fill, nagle, 0
		sizes := map[int32]int{}
		held := false // from the first data on: the segments are of full size already
		p.see = func(direction int, pk *network.Packet) {
			switch {
			case direction == 0 && pk.Payload > 0:
				sizes[pk.Payload]++
				held = true
			case held:
				pk.Window = min(pk.Window, uint16(1460*3/2>>c.shift()))
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
