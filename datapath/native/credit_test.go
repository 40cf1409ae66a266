//go:build cgo

package native_test

import (
	"testing"

	"pgregory.net/rapid"

	"weir/datapath/native"
)

// creditBed is a port with credits: 1 Gbit/s, room for 50 KB, a target of 20 KB.
type creditBed struct {
	sw     *native.Switch
	state  *native.CreditState
	config native.CreditConfig
}

func newCreditBed(t interface{ Cleanup(func()) }, mode native.CreditMode) *creditBed {
	b := &creditBed{sw: native.NewSwitch(1, native.CountActive, native.EdgeConfig{})}
	t.Cleanup(b.sw.Close)
	b.sw.Configure(0, native.PortConfig{
		Law:     native.FairQConfig{TargetBytes: 20_000, BufferBytes: 85_000, TickNs: 50_000, PeriodNs: 500_000},
		EpochNs: 3e6, MSSUnknown: 1460, PipeBytes: 30_000, Credit: mode,
	}, 0)
	b.config = native.CreditConfig{
		ByteNsQ20: 8 << 20, CapacityBytes: 50_000, TargetBytes: 20_000, FirstBytes: 14_600, WaitNs: 100e6, HoldBytes: 4 << 20, LineBytes: 24,
		Mode: mode,
	}
	b.state = b.sw.SetCredit(0, &b.config)
	return b
}

// acknowledges takes the steps of a world for one acknowledgement, and returns the promise of the data's sender.
func (b *creditBed) acknowledges(ack *native.CreditAck, leftNs int64, a *native.CreditAnswer) uint32 {
	paces := uint32(0)
	if b.sw.MustPace(0, true) {
		paces = 1
	}
	if paces != b.sw.Port(0).Pacing {
		b.sw.Turn(0, &native.Turn{Event: native.Paces, Value: paces})
	}
	ack.Pacing = uint8(paces)
	if !ack.Concerned() {
		*a = native.CreditAnswer{LeavesNs: ack.NowNs, Allowed: ack.Allowed}
		return 0
	}
	return b.sw.CreditRests(0, ack, b.sw.Acknowledges(0, ack, leftNs, a), a)
}

// opens is a request at a time, with the port's backlog. It returns the promise and when the request leaves.
func (b *creditBed) opens(nowNs uint64, backlog uint32) (promise uint32, a native.CreditAnswer) {
	promise = b.acknowledges(&native.CreditAck{
		NowNs: nowNs, FloorBytes: 1461, BacklogBytes: backlog, LengthBytes: 130, Opens: native.CreditOpens,
	}, 0, &a)
	return promise, a
}

// The first requests get what the port has room for, and pass. All later ones get a segment, and wait until the port has
// drained what was promised before them.
func TestCredit_PromisesFillTheRoom(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	passed, sum, last := 0, uint32(0), uint64(0)
	for i := range 200 {
		promise, a := b.opens(1000, 0)
		if promise < 1461 || promise > 14_600 {
			t.Fatalf("request %d: a promise of %d", i, promise)
		}
		if a.LengthBytes == 0 {
			if last > 0 {
				t.Fatalf("request %d passes after others have waited", i)
			}
			passed++
			sum += promise
			continue
		}
		if promise != 1461 || a.LeavesNs < last {
			t.Fatalf("request %d: a promise of %d, leaves at %d after %d", i, promise, a.LeavesNs, last)
		}
		last = a.LeavesNs
	}
	// 50,000 bytes less headers; the last that passes may exceed them by its own cost.
	if passed < 4 || sum < 40_000 || sum > 55_000 {
		t.Errorf("%d requests passed, with %d bytes", passed, sum)
	}
	// The others need 1461 + 2 * 90 bytes each, 8 ns a byte. The last one waits for all before it.
	if want := uint64(199-passed) * 1641 * 8; last < want*9/10 || last > want*11/10 {
		t.Errorf("the last request leaves at %d ns, want about %d", last, want)
	}
}

// With a queue above its capacity there is no room: each request gets a segment, and waits.
func TestCredit_NoRoom(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	if promise, a := b.opens(0, 60_000); promise != 1461 || a.LengthBytes != 0 {
		t.Errorf("first: %d, %+v: nothing is ahead of it", promise, a)
	}
	if promise, a := b.opens(0, 60_000); promise != 1461 || a.LengthBytes == 0 {
		t.Errorf("second: %d, %+v: it must wait", promise, a)
	}
}

// A packet that the parking refuses is not charged, did not wait, and does not delay others.
func TestCredit_Refused(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	for range 20 {
		b.opens(1000, 60_000)
	}
	before := *b.state
	_, a := b.opens(1000, 60_000)
	if a.LengthBytes == 0 || b.state.Parked != before.Parked+1 || b.state.LongestNs <= before.LongestNs {
		t.Fatalf("%+v, %+v: it must wait", a, b.state)
	}
	b.sw.CreditRefused(0, 1000, &a)
	before.Promises++
	before.Asked++
	before.Full++
	before.CorrectedNs = b.state.CorrectedNs
	before.OwedBytes = b.state.OwedBytes // its promise passes with it
	if *b.state != before {
		t.Errorf("%+v, want %+v", *b.state, before)
	}
	if _, next := b.opens(1000, 60_000); next.LeavesNs != a.LeavesNs {
		t.Errorf("the next one leaves at %d, the refused one would have left at %d", next.LeavesNs, a.LeavesNs)
	}
	passed := native.CreditAnswer{LeavesNs: 1000}
	was := *b.state
	if b.sw.CreditRefused(0, 1000, &passed); *b.state != was {
		t.Errorf("a packet that does not wait cannot be refused: %+v, want %+v", *b.state, was)
	}
}

// A request that is sent again, and further packets of the same turn, repeat the promise and cost nothing.
func TestCredit_PromiseIsChargedOnce(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	promise, a := b.opens(0, 0)
	charged := b.state.ChargedNs
	var again native.CreditAnswer
	got := b.acknowledges(&native.CreditAck{
		NowNs: 1000, Promise: promise, FloorBytes: 1461, BacklogBytes: 60_000, LengthBytes: 130, Opens: native.CreditOpens,
	}, int64(a.LiveNs)-1000, &again)
	if got != promise || b.state.ChargedNs != charged {
		t.Errorf("promise %d after %d; charged %d ns more", got, promise, b.state.ChargedNs-charged)
	}
	if a.LiveNs < 1_000_000 {
		t.Errorf("the promise is live until %d ns", a.LiveNs)
	}
}

// Servers answer late: the clock has drained when the next requests come. Promises that are not used still count,
// so the next promises are a segment. After twice the longest wait it no longer counts.
func TestCredit_UnusedPromisesCount(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	const gap = 2_000_000 // ns: longer than a promise is live
	sum := uint32(0)
	for i := range 20 {
		promise, _ := b.opens(uint64(i)*gap, 0)
		sum += promise
	}
	if sum > 50_000+17*1461 {
		t.Errorf("%d bytes are promised at a port with room for 50,000", sum)
	}
	if promise, _ := b.opens(300e6, 0); promise != 14_600 {
		t.Errorf("a promise of %d after 0.3 s", promise)
	}
}

// An answer that comes after the clock has forgotten its promise is charged. One that comes in time is not.
func TestCredit_LateAnswersAreCharged(t *testing.T) {
	for _, late := range []bool{false, true} {
		b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
		promise, a := b.opens(0, 0)
		clock := b.state.ClockNs
		now := a.LiveNs - 1
		if late {
			now = a.LiveNs + 1
		}
		b.sw.CreditUsed(0, now, promise, 1448, int64(a.LiveNs-now), false, 0)
		if got := b.state.ClockNs != clock; got != late {
			t.Errorf("late %v: the clock moved from %d to %d at %d", late, clock, b.state.ClockNs, now)
		}
		if b.state.OwedBytes+b.state.OwedBefore != 0 {
			t.Errorf("late %v: %d and %d bytes count as not used", late, b.state.OwedBefore, b.state.OwedBytes)
		}
	}
}

// ackBed is a port that paces, with a stream of data whose acknowledgements it charges.
type ackBed struct {
	*creditBed
	ack native.CreditAck
}

func newAckBed(t testing.TB, shift uint8) *ackBed {
	b := &ackBed{newCreditBed(t, native.CreditPromises|native.CreditPaces), native.CreditAck{}}
	b.sw.Port(0).Law.Flows = 60 // at one segment they exceed 50,000 bytes
	b.ack = native.CreditAck{FloorBytes: 1461, LengthBytes: 66, Shift: shift, Ack: 1, Sent: 1, LongestBytes: 1448}
	return b
}

// sends and acks: the sender sends so many bytes; an acknowledgement of so many more passes.
func (b *ackBed) sends(bytes uint32) { b.ack.Sent += bytes }

// acks returns for how many bytes of payload and headers an acknowledgement is charged.
func (b *ackBed) acks(bytes uint32) (charged uint32) {
	b.ack.AdvanceBytes, b.ack.Ack = bytes, b.ack.Ack+bytes
	before := b.state.ChargedNs
	var a native.CreditAnswer
	b.acknowledges(&b.ack, 0, &a)
	b.ack.Allowed = a.Allowed
	return uint32((b.state.ChargedNs - before) / 8)
}

// costs reports whether a charge is of this payload, with the headers of its frames.
func costs(charged, payload, frames uint32) bool {
	want := payload + 90*frames
	return charged+2 >= want && charged <= want+2
}

// An acknowledgement costs what its window releases. With a scale of 10 a window of a segment is 2048 bytes: the sender
// sends a segment and 600 bytes. A charge of the acknowledged bytes, 1448, would release more than the line carries.
func TestCredit_AnACKCostsWhatItReleases(t *testing.T) {
	b := newAckBed(t, 10)
	b.sends(1448)
	if got := b.acks(1448); !costs(got, 2048, 2) {
		t.Errorf("with nothing in flight: charged %d bytes, want 2048 and two headers", got)
	}
	b.sends(2048)
	if got := b.acks(1448); !costs(got, 1448, 1) {
		t.Errorf("with 600 bytes in flight: charged %d bytes, want 1448 and a header", got)
	}
	b.sends(1448)
	if got := b.acks(600); got != 0 {
		t.Errorf("with a segment in flight: charged %d bytes, want nothing: 600 bytes are not a segment", got)
	}
	if got := b.acks(1448); !costs(got, 2048, 2) {
		t.Errorf("with nothing in flight again: charged %d bytes, want 2048 and two headers", got)
	}
}

// Two halves of a segment are in flight, and the acknowledgement of the first one waits. It will release as much as it was
// charged for, so that of the second one releases only half a window.
func TestCredit_WhatWaitsCountsAsSent(t *testing.T) {
	b := newAckBed(t, 5)
	b.ack.LongestBytes = 736
	b.sends(1472)
	if got := b.acks(736); !costs(got, 736, 1) {
		t.Errorf("first: charged %d bytes, want 736 and a header", got)
	}
	b.ack.Behind = 1
	if got := b.acks(736); !costs(got, 736, 1) {
		t.Errorf("second: charged %d bytes, want 736 and a header", got)
	}
}

// While more of a first flight is in flight than later windows allow, acknowledgements release nothing, and cost nothing.
func TestCredit_FirstFlightIsChargedOnce(t *testing.T) {
	b := newAckBed(t, 0)
	var a native.CreditAnswer
	complete := b.ack
	complete.Opens = native.CreditCompletes
	promise := b.acknowledges(&complete, 0, &a)
	if promise != 2*1461 {
		t.Fatalf("the ACK of a handshake promises %d bytes, want two segments", promise)
	}
	b.sends(2 * 1448)
	if first, second := b.acks(1448), b.acks(1448); first != 0 || !costs(second, 1461, 2) {
		t.Errorf("acknowledgements of a segment each were charged %d and %d bytes: want the first for nothing", first, second)
	}
}

// The ACK of a handshake grants two segments, whatever the number of connections that open. While promises that are not used yet take more
// than a quarter of the longest wait it grants one: with two, requests would wait too long.
func TestCredit_ManyHandshakes(t *testing.T) {
	b := newAckBed(t, 0)
	complete, asks := b.ack, b.ack
	complete.Opens, asks.Opens = native.CreditCompletes, native.CreditOpens
	promise := func(ack native.CreditAck) uint32 {
		var a native.CreditAnswer
		return b.acknowledges(&ack, 0, &a)
	}
	for i := range 20_000 {
		if got := promise(complete); got != 2*1461 {
			t.Fatalf("handshake %d: a promise of %d", i, got)
		}
	}
	const frames = 1461 + 2*90 // bytes of the least promise, on the line
	for owed := uint32(0); promise(complete) == 2*1461; owed += frames {
		if owed*8 > 25e6+8*20_000 {
			t.Fatalf("two segments while promises that take %d ns are not used", owed*8)
		}
		promise(asks)
	}
	if owed := b.state.OwedBytes; owed*8 < 25e6 {
		t.Errorf("one segment while promises that take %d ns are not used", owed*8)
	}
}

// A request cannot take back what the ACK of the handshake granted, because both have the same sequence number. So it is
// charged for that.
func TestCredit_ARequestTakesNothingBack(t *testing.T) {
	b := newAckBed(t, 0)
	var a native.CreditAnswer
	opens := b.ack
	opens.Opens = native.CreditCompletes
	opens.Promise = b.acknowledges(&opens, 0, &a)
	opens.Opens, opens.BacklogBytes, opens.NowNs = native.CreditOpens, 60_000, 50e6 // no room, and the clock has forgotten the handshake
	before := b.state.ChargedNs
	if promise := b.acknowledges(&opens, -45e6, &a); promise != 2*1461 || b.state.ChargedNs-before < 2*1461*8 {
		t.Errorf("promise %d, charged %d ns: want two segments", promise, b.state.ChargedNs-before)
	}
}

// The acknowledgement that leaves a server without data in flight grants two segments, whatever the law's window is. The next
// request is charged for it, and makes it larger if there is room.
func TestCredit_AnEndRestsWithTwoSegments(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(b *ackBed)
		want   uint32 // promise, in bytes
	}{
		{"all is acknowledged", func(*ackBed) {}, 2944},
		{"the port paces, and the answer is at its end", func(b *ackBed) { b.sw.Port(0).Law.Flows, b.ack.Allowed = 60, b.ack.Sent+1472 }, 2944},
		{"the port paces, and the answer may go on", func(b *ackBed) { b.sw.Port(0).Law.Flows = 60 }, 0},
		{"600 ends were asked at once", func(b *ackBed) { b.state.AskedMost = 6000 }, 1472},
		{"data is in flight", func(b *ackBed) { b.sends(1448) }, 0},
		{"its latest segment was a full one", func(b *ackBed) { b.ack.Answered = 0 }, 0},
		{"it used all that it was allowed to send, so more may follow", func(b *ackBed) { b.ack.Allowed = b.ack.Sent + 1000 }, 0},
		{"a FIN", func(b *ackBed) { b.ack.Ends = 1 }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newAckBed(t, 5)
			b.sw.Port(0).Law.Flows, b.ack.Answered = 1, 1
			c.change(b)
			b.sends(1000)
			b.ack.AdvanceBytes, b.ack.Ack = 1000, b.ack.Ack+1000
			var a native.CreditAnswer
			promise := b.acknowledges(&b.ack, 0, &a)
			if promise != c.want || promise != 0 && a.Renewed == 0 {
				t.Fatalf("promise %d, want %d; %+v", promise, c.want, a)
			}
			if promise == 0 {
				return
			}
			if b.state.ChargedNs != 0 {
				t.Errorf("charged %d ns, although nothing follows", b.state.ChargedNs)
			}
			b.ack.Opens, b.ack.Promise, b.ack.NowNs = native.CreditOpens, promise, 1e9
			left := int64(a.LiveNs) - 1e9
			if got := b.acknowledges(&b.ack, left, &a); got < 14_600 || b.state.ChargedNs < 14_600*8 {
				t.Errorf("a request at an empty port: promise %d, charged %d ns; want a first flight", got, b.state.ChargedNs)
			}
		})
	}
}

// Tiny answers do not use their promises. Later requests then cost so little that they do not wait although more is
// promised than the line carries.
func TestCredit_TinyAnswersDoNotWait(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	waited := 0
	for i := range 20_000 { // 100,000 a second: 1461 bytes each would be 120 % of the line
		promise, a := b.opens(uint64(i)*10_000, 0)
		if a.LengthBytes != 0 && i > 2000 {
			waited++
		}
		b.sw.CreditUsed(0, uint64(i)*10_000, promise, 64, int64(a.LiveNs)-int64(i)*10_000, false, 0)
	}
	if waited > 0 {
		t.Errorf("%d requests waited, while 64 bytes of each answer use 7 %% of the line", waited)
	}
}

// The acknowledgement of the end of a message does not wait and costs nothing: after a FIN, of a short message, and if the
// sender sent less than it was allowed to. A packet does not overtake one of its own direction.
func TestCredit_EndsDoNotWait(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(b *ackBed)
		sent   uint32 // and acknowledged
		waits  bool
	}{
		{"a full segment", func(*ackBed) {}, 1448, true},
		{"a FIN", func(b *ackBed) { b.ack.Ends = 1 }, 1448, false},
		{"64 bytes", func(*ackBed) {}, 64, false},
		{"64 bytes, behind another packet", func(b *ackBed) { b.ack.Behind = 1 }, 64, true},
		{"1196 bytes of 1472 that were allowed", func(b *ackBed) { b.ack.Allowed = b.ack.Ack + 1472 }, 1196, false},
		{"1424 bytes of 1472 that were allowed: the next segment has no room", func(b *ackBed) { b.ack.Allowed = b.ack.Ack + 1472 }, 1424, true},
		{"1196 bytes, and it is not known what was allowed", func(*ackBed) {}, 1196, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newAckBed(t, 5)
			b.state.ClockNs = 780_000
			c.change(b)
			b.sends(c.sent)
			parked := b.state.Parked
			charged := b.acks(c.sent)
			if waits := b.state.Parked != parked; waits != c.waits || !c.waits && charged != 0 {
				t.Errorf("waits: %v, charged %d bytes; want %v", waits, charged, c.waits)
			}
		})
	}
}

// At any input: packets leave the parking queue in order, none later than the limit, none before it comes. Per time no
// more is released than the line carries and the room.
func TestCredit_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
		port := b.sw.Port(0)
		now, last := uint64(0), uint64(0)
		for range rapid.IntRange(1, 300).Draw(t, "packets") {
			now += rapid.SampledFrom([]uint64{0, 100, 12_000, 1_000_000}).Draw(t, "gap")
			port.Law.Flows = rapid.Uint32Range(0, 100).Draw(t, "flows")
			ask := native.CreditAck{
				NowNs: now, FloorBytes: rapid.SampledFrom([]uint32{1, 1461, 8961}).Draw(t, "floor"),
				Shift: uint8(rapid.IntRange(0, 14).Draw(t, "shift")), LongestBytes: rapid.SampledFrom([]uint32{0, 1, 724, 1448, 65_535}).Draw(t, "longest"),
				Ack: rapid.Uint32().Draw(t, "ack"), Sent: rapid.Uint32().Draw(t, "sent"), Allowed: rapid.Uint32().Draw(t, "allowed"),
				AdvanceBytes: rapid.SampledFrom([]uint32{0, 1, 1448, 2896, 65_535, 1 << 20, 1 << 30}).Draw(t, "advance"),
				BacklogBytes: rapid.SampledFrom([]uint32{0, 20_000, 85_000, 1<<32 - 1}).Draw(t, "backlog"),
				LengthBytes:  rapid.SampledFrom([]uint32{60, 1514, 65_000}).Draw(t, "length"),
				Opens:        uint8(rapid.IntRange(0, 2).Draw(t, "opens")), Behind: uint8(rapid.IntRange(0, 1).Draw(t, "behind")),
				Ends: uint8(rapid.IntRange(0, 1).Draw(t, "ends")), Fixed: uint8(rapid.IntRange(0, 1).Draw(t, "fixed")),
			}
			var a native.CreditAnswer
			promise := b.acknowledges(&ask, 0, &a)
			if ask.Opens != 0 && (promise < ask.FloorBytes || promise > max(2*ask.FloorBytes, b.config.FirstBytes)+1<<ask.Shift) {
				t.Fatalf("a promise of %d with a floor of %d", promise, ask.FloorBytes)
			}
			if a.LengthBytes == 0 {
				continue
			}
			if a.LeavesNs < now || a.LeavesNs < last || a.LeavesNs-now > uint64(b.config.WaitNs)<<ask.Behind {
				t.Fatalf("a packet that came at %d leaves at %d, the one before it at %d", now, a.LeavesNs, last)
			}
			if a.LengthBytes < ask.LengthBytes || a.LengthBytes > max(16_000, ask.LengthBytes) {
				t.Fatalf("a packet of %d bytes takes %d", ask.LengthBytes, a.LengthBytes)
			}
			last = a.LeavesNs
			if b.state.QueueNs < last {
				t.Fatalf("the queue is free at %d, before its last packet leaves at %d", b.state.QueueNs, last)
			}
		}
	})
}

// Without a mode nothing is promised, and nothing waits.
func TestCredit_Off(t *testing.T) {
	b := newCreditBed(t, 0)
	for range 1000 {
		if promise, a := b.opens(0, 85_000); promise != 0 || a.LengthBytes != 0 {
			t.Fatalf("a promise of %d, %+v", promise, a)
		}
	}
}
