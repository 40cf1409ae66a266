//go:build cgo

package native_test

import (
	"math/rand/v2"
	"testing"

	"weir/datapath/native"
)

// rewrite returns the field for a window in bytes, without a floor.
func rewrite(bytes uint64, field uint16, shift, syn uint8) uint16 {
	return native.WindowRewrite(&native.WindowAck{WindowQ8: bytes << 8, Field: field, Shift: shift, SYN: syn}, &native.WindowEdge{})
}

// αB/β is under 1 MSS from 18 flows on, and Linux sends nothing useful then. The floor is each flow's own MSS.
func TestFQ12_WindowHasAFloor(t *testing.T) {
	for _, flows := range []int{126, 630} {
		var p printed
		for range flows {
			p.synAck()
		}
		if p.rwnd > 200 {
			t.Errorf("as printed %d flows get %g bytes each: this test shows nothing", flows, p.rwnd)
		}
		c := config()
		c.SlowStart = native.SlowStartOff
		q := newQueue(t, c, flows)
		for range 3 {
			near(t, "window of each", q.window(), packet)
			q.period(buffer) // down to the floor
		}
		q.period(0)
		if w := q.window(); w <= packet {
			t.Errorf("%d flows: an empty queue leaves the window at %g: it went below its floor", flows, w)
		}
	}
	for _, flow := range []struct{ option, gso, want uint32 }{{8960, 0, 8961}, {1460, 1448, 1461}, {536, 1448, 1449}, {0, 0, 1461}} {
		ack := native.WindowAck{WindowQ8: 40 << 8, FloorBytes: native.WindowFloor(flow.option, flow.gso), Field: 65535}
		if got := native.WindowRewrite(&ack, &native.WindowEdge{}); uint32(got) != flow.want {
			t.Errorf("MSS %d, gso_size %d: window %d, want %d", flow.option, flow.gso, got, flow.want)
		}
	}
}

// asPrinted returns the field of line 15.
func asPrinted(rwnd uint64, scale uint8) uint64 { return rwnd >> scale }

// Rwnd >> scale is less than the window, and 0 from scale 11 on.
func TestFQ13_ScalingRoundsUp(t *testing.T) {
	below := 0
	for shift := uint8(0); shift <= 14; shift++ {
		for bytes := uint64(1460); bytes < 60000; bytes += 7 {
			field := rewrite(bytes, 65535, shift, 0)
			if granted := uint64(field) << shift; granted < bytes || granted >= bytes+1<<shift {
				t.Fatalf("window %d, shift %d: %d is granted", bytes, shift, granted)
			}
			if asPrinted(bytes, shift)<<shift < 1460 {
				below++
			}
		}
	}
	if below == 0 || asPrinted(1460, 11) != 0 {
		t.Error("as printed no window falls below the MSS: this test shows nothing")
	}
}

// The window of a SYN-ACK is in bytes, whatever scale it announces (RFC 7323 2.2).
func TestFQ14_WindowOfASYNIsNotScaled(t *testing.T) {
	starved := 0
	for shift := uint8(0); shift <= 14; shift++ {
		if got := rewrite(25000, 65535, shift, 1); got != 25000 {
			t.Errorf("announces shift %d: window %d, want 25000", shift, got)
		}
		if asPrinted(25000, shift) < 1460 {
			starved++
		}
	}
	if starved == 0 {
		t.Error("as printed each shift grants an MSS: this test shows nothing")
	}
}

// checksum is that of RFC 1071, computed in full.
func checksum(words []uint16) uint16 {
	var sum uint32
	for _, w := range words {
		sum += uint32(w)
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// CSum + Rwnd' - Rwnd has the sign of a sum, but the checksum is a sum's complement.
func TestFQ15_ChecksumIsUpdatedAsRFC1624Says(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 0))
	wrong, runs := 0, 200_000
	for range runs {
		segment := make([]uint16, 30)
		for i := range segment {
			segment[i] = uint16(sized(r, 16))
		}
		segment[0] |= 1 // a header is not all zeros
		before := checksum(segment)
		at := 1 + r.IntN(len(segment)-1)
		old := segment[at]
		segment[at] = uint16(sized(r, 16))
		want := checksum(segment)
		if got := native.WindowChecksum(before, old, segment[at]); got != want {
			t.Fatalf("checksum %#x, word %#x becomes %#x: %#x, in full %#x", before, old, segment[at], got, want)
		}
		asPrinted := uint32(before) + uint32(segment[at]) + uint32(^old)
		for asPrinted>>16 != 0 {
			asPrinted = asPrinted&0xffff + asPrinted>>16
		}
		if uint16(asPrinted) != want {
			wrong++
		}
	}
	if wrong*10 < runs*9 {
		t.Errorf("as printed only %d of %d are wrong: this test shows nothing", wrong, runs)
	}
}

// The prose compares the window with the unscaled field, and leaves 64 KB although 25 KB are granted.
func TestFQ16_WindowsAreComparedShifted(t *testing.T) {
	prose := 0
	for shift := uint8(0); shift <= 14; shift++ {
		field := uint16(65535) >> shift // 64 KB or little less
		want := uint16((25000 + 1<<shift - 1) >> shift)
		if got := rewrite(25000, field, shift, 0); got != want {
			t.Errorf("shift %d: field %d, want %d", shift, got, want)
		}
		if 25000 >= field {
			prose++ // leaves it
		}
	}
	if prose == 0 {
		t.Error("the prose rewrites as well: this test shows nothing")
	}
}

// For every ACK the field never grows and never becomes 0. It grants what the flow may have or what its
// receiver offers, rounded up to a unit.
func TestWindowRewrite_OnlyEverShrinks(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 0))
	rewritten := 0
	for range 300_000 {
		a := native.WindowAck{
			WindowQ8: sized(r, 40), FloorBytes: uint32(sized(r, 16)), CapBytes: uint32(sized(r, 32)),
			Field: uint16(sized(r, 16)), Shift: uint8(r.IntN(15)), SYN: uint8(r.IntN(2)), Ack: r.Uint32(),
			Shrink: native.Shrink(r.IntN(2)),
		}
		got := native.WindowRewrite(&a, &native.WindowEdge{})
		shift := a.Shift * (1 - a.SYN)
		window := a.WindowQ8 >> 8
		if a.CapBytes > 0 {
			window = min(window, uint64(a.CapBytes))
		}
		window = max(window, uint64(a.FloorBytes))
		if a.Shrink == native.ShrinkAvoid && a.SYN == 0 {
			window = 1 << 62 // its edge is not known: it passes
		}
		granted := uint64(got) << shift
		if got > a.Field || got == 0 && a.Field > 0 || granted < min(window, uint64(a.Field)<<shift) || granted >= window+1<<shift+1 {
			t.Fatalf("%+v: %d", a, got)
		}
		if got < a.Field {
			rewritten++
		}
	}
	if rewritten < 50_000 {
		t.Errorf("only %d were rewritten", rewritten)
	}
}

// The switch program leaves an ACK that fits its grant without a look at the floor.
func TestWindowFits_KeepsTheOwnField(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 0))
	fits := 0
	const trials = 300_000
	for range trials {
		a := native.WindowAck{
			WindowQ8: sized(r, 40), FloorBytes: uint32(sized(r, 32)), Field: uint16(sized(r, 16)), Shift: uint8(r.IntN(17)),
			SYN: uint8(r.IntN(2)), Ack: r.Uint32(),
		}
		own := uint64(a.Field) << (min(a.Shift, 14) * (1 - a.SYN))
		if r.IntN(2) == 0 { // near its own window
			a.WindowQ8 = own<<8 + uint64(r.IntN(1024)) - min(own<<8, 512)
		}
		if fit := native.WindowFits(&a); fit != (a.WindowQ8>>8 >= own) {
			t.Fatalf("%+v: fits %v", a, fit)
		} else if !fit {
			continue
		}
		fits++
		if got := native.WindowRewrite(&a, &native.WindowEdge{}); got != a.Field {
			t.Fatalf("%+v fits, but %d is written", a, got)
		}
	}
	if fits < trials/4 || fits > 3*trials/4 {
		t.Errorf("%d of %d fit", fits, trials)
	}
}

// A sender's right edge moves left only if its receiver moves it, over many wraps of the sequence numbers. The
// clamp is effective: the window is never larger than it must be.
func TestShrinkAvoid_RightEdgeNeverMovesLeft(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 0))
	var edge native.WindowEdge
	var sent, right uint64 // not wrapped: the bytes acknowledged, and the furthest edge granted
	sent, right = 3<<30, 3<<30
	clamped, allowLeft := 0, 0
	for i := range 300_000 {
		if i > 0 {
			sent += r.Uint64N(right - sent + 1)
		}
		a := native.WindowAck{
			WindowQ8: (1 + sized(r, 18)) << 8, FloorBytes: 1460,
			Ack: uint32(sent), Field: 8192, Shift: 8, Shrink: native.ShrinkAvoid,
		}
		granted := uint64(native.WindowRewrite(&a, &edge)) << a.Shift
		if sent+granted < right {
			t.Fatalf("ACK %d: right edge %d, was %d", i, sent+granted, right)
		}
		window := max(a.WindowQ8>>8, 1460)
		if limit := max(right, sent+window) + 1<<a.Shift; i > 0 && sent+granted >= limit {
			t.Fatalf("ACK %d: right edge %d, %d would do", i, sent+granted, limit)
		}
		if sent+window < right {
			allowLeft++
		}
		if granted < uint64(a.Field)<<a.Shift {
			clamped++
		}
		right = max(right, sent+granted)
	}
	if right < 1<<32 || clamped < 100_000 || allowLeft < 10_000 {
		t.Errorf("right edge %d, clamped %d times, would have moved left %d times: this test shows nothing", right, clamped, allowLeft)
	}
}

// A window that passes sets the edge that a rewrite respects. A window that ends before the edge does not move
// it.
func TestWindowGranted_IsTheEdgeThatIsKept(t *testing.T) {
	var edge native.WindowEdge
	native.WindowGranted(&edge, 1000, 60_000)
	ack := native.WindowAck{WindowQ8: 25_000 << 8, Ack: 11_000, Field: 65_535, Shrink: native.ShrinkAvoid}
	if got := native.WindowRewrite(&ack, &edge); got != 50_000 {
		t.Errorf("61000 was granted: a window of %d at 11000", got)
	}
	native.WindowGranted(&edge, 12_000, 10_000)
	if edge != (native.WindowEdge{Right: 61_000, Known: 1}) {
		t.Errorf("%+v", edge)
	}
}
