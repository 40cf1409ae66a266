//go:build cgo

package native_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"weir/datapath/internal/vector"
	"weir/datapath/native"
)

// The kinds of core/arrivals.h, and the flags of a TCP header.
const (
	aSYN, aSYNACK, aFIN, aRST, aResume, aFound, aRequest = 1, 2, 4, 8, 16, 32, 64
	tFIN, tSYN, tRST, tACK                               = 1, 2, 4, 16
)

// randomArrivals makes connections with few sequence numbers and times, so that every comparison has both answers.
func randomArrivals() *vector.File {
	f := header("arrivals")
	r := rand.New(rand.NewPCG(5, 19))
	for i := range 40 {
		base := []uint32{0, 0xffffff00, 0x80000000, r.Uint32()}[i%4]
		f.Lines = append(f.Lines, begins(i, vector.Fields{{Key: "idle_ns", Value: []uint64{0, 1, 100, 1 << 40}[r.IntN(4)]}}, nil)...)
		now := uint64(0)
		seq := [2]uint32{base, base + 1000}
		for range 20 {
			now += []uint64{0, 1, 99, 100, 101, 1 << 41}[r.IntN(6)]
			side := r.IntN(2)
			flags := []uint64{tACK, tACK, tACK, tACK, tSYN, tSYN | tACK, tFIN | tACK, tRST, 0, tSYN | tFIN}[r.IntN(10)]
			payload := uint32([]uint64{0, 1, 1, 100, 3000}[r.IntN(5)])
			at := seq[side] - []uint32{0, 0, 0, payload, 1, 1 << 30, 1<<30 + 1, 1 << 31}[r.IntN(8)]
			ack := seq[1-side] - []uint32{0, 0, 1, 100}[r.IntN(4)]
			f.Lines = append(f.Lines, happens("see", vector.Field{Key: "packet_now_ns", Value: now}, vector.Field{Key: "packet_side", Value: uint64(side)},
				vector.Field{Key: "packet_flags", Value: flags}, vector.Field{Key: "packet_seq", Value: uint64(at)},
				vector.Field{Key: "packet_ack", Value: uint64(ack)}, vector.Field{Key: "packet_payload", Value: uint64(payload)}))
			seq[side] = at + payload
			if flags&(tSYN|tFIN) != 0 {
				seq[side]++
			}
		}
	}
	return f
}

// conversation sends the packets of one connection through the law.
type conversation struct {
	flow native.ArrivalsFlow
	now  uint64
	seq  [2]uint32
	t    *testing.T
}

const idle = 1000

// sends has an end send after a time, acknowledging everything, and checks what the packet is.
func (c *conversation) sends(after uint64, side uint8, flags uint8, payload, want uint32) {
	c.t.Helper()
	c.now += after
	p := native.ArrivalsPacket{NowNs: c.now, Seq: c.seq[side], Ack: c.seq[1-side], Payload: payload, Flags: flags, Side: side}
	c.seq[side] += payload
	if flags&(tSYN|tFIN) != 0 {
		c.seq[side]++
	}
	c.see(p, want)
}

func (c *conversation) see(p native.ArrivalsPacket, want uint32) {
	c.t.Helper()
	if got := native.SeeArrival(idle, &c.flow, &p); got != want {
		c.t.Errorf("%+v at %d: %#x, want %#x", p, c.now, got, want)
	}
}

// A connection as it usually is: each kind once, and what is sent again never.
func TestArrivals_Conversation(t *testing.T) {
	c := &conversation{t: t, seq: [2]uint32{0xfffffff0, 77}}
	c.sends(0, 0, tSYN, 0, aSYN)
	c.seq[0]--
	c.sends(5, 0, tSYN, 0, 0) // again
	c.sends(1, 1, tSYN|tACK, 0, aSYNACK)
	c.sends(1, 0, tACK, 0, 0)
	c.sends(1, 0, tACK, 100, aRequest)
	c.sends(1, 0, tACK, 100, 0) // the same turn
	c.sends(1, 1, tACK, 3000, 0)
	c.sends(1, 1, tACK, 3000, 0)
	c.sends(1, 0, tACK, 100, aRequest)
	c.sends(1, 1, tACK, 3000, 0)
	// A request on a connection that was idle, and its answer.
	c.sends(idle, 0, tACK, 100, aRequest|aResume)
	c.sends(1, 1, tACK, 3000, aResume)
	// Sent again after a pause: not an arrival, and the flow is not idle afterwards.
	again := native.ArrivalsPacket{NowNs: c.now + 5*idle, Seq: c.seq[1] - 3000, Ack: c.seq[0], Payload: 3000, Flags: tACK, Side: 1}
	c.see(again, 0)
	c.now += 5 * idle
	c.sends(idle-1, 1, tACK, 100, 0)
	// The opener's data while the answer is in flight is no request.
	early := native.ArrivalsPacket{NowNs: c.now, Seq: c.seq[0], Ack: c.seq[1] - 1, Payload: 10, Flags: tACK, Side: 0}
	c.see(early, aResume)
	c.seq[0] += 10
	c.sends(1, 1, tACK|tFIN, 10, aFIN)
	c.seq[1]--
	c.sends(1, 1, tACK|tFIN, 0, 0) // again
	c.sends(1, 0, tACK|tFIN, 0, aFIN)
	c.sends(1, 0, tRST, 0, aRST)
	c.sends(1, 1, tRST, 0, 0)
	c.sends(1, 0, tSYN, 0, aSYN) // the same ports again
}

// A connection that is older than the table: the end that sends first counts as the opener.
func TestArrivals_Found(t *testing.T) {
	c := &conversation{t: t}
	c.sends(1, 1, tACK, 0, 0)
	c.sends(1, 1, tACK, 50, aFound|aRequest)
	c.sends(1, 0, tACK, 50, aFound)
	c.sends(1, 1, tACK, 50, aRequest)
	if (native.ArrivalsFlow{}) == c.flow {
		t.Error("nothing was kept")
	}
	var none conversation
	none.t = t
	none.sends(1, 0, tSYN|tFIN, 0, 0)
	if none.flow != (native.ArrivalsFlow{}) {
		t.Errorf("SYN with FIN left %+v", none.flow)
	}
}

// These hold for any packets in any state: SYN, SYN-ACK and RST exclude everything else, FOUND excludes RESUME, and a packet
// that does not matter is no arrival and changes nothing.
func TestArrivals_Anything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f native.ArrivalsFlow
		numbers := rapid.OneOf(rapid.SampledFrom([]uint32{0, 1, 100, 1 << 16, 1 << 30, 1 << 31, 1<<32 - 1}), rapid.Uint32())
		for range rapid.IntRange(1, 30).Draw(t, "packets") {
			p := native.ArrivalsPacket{
				NowNs: rapid.Uint64Range(0, 5000).Draw(t, "now"), Seq: numbers.Draw(t, "seq"), Ack: numbers.Draw(t, "ack"),
				Payload: rapid.SampledFrom([]uint32{0, 0, 1, 1460, 65535, 1<<32 - 1}).Draw(t, "payload"),
				Flags:   rapid.Byte().Draw(t, "flags"), Side: rapid.Byte().Draw(t, "side"),
			}
			before := f
			got := native.SeeArrival(idle, &f, &p)
			switch {
			case !native.ArrivalMatters(p.Payload, p.Flags) && (got != 0 || f != before):
				t.Fatalf("%+v: %#x, %+v", p, got, f)
			case got&(aSYN|aSYNACK|aRST) != 0 && got&(got-1) != 0, got&aFound != 0 && got&aResume != 0, got >= 2*aRequest:
				t.Fatalf("%+v: %#x", p, got)
			case got&aFIN != 0 && p.Flags&tFIN == 0, got&(aResume|aFound|aRequest) != 0 && p.Payload == 0:
				t.Fatalf("%+v: %#x", p, got)
			}
			if again := native.SeeArrival(idle, &f, &p); again&^aRST != 0 && p.Payload < 1<<30 || again&aRST != 0 {
				t.Fatalf("%+v again: %#x", p, again)
			}
		}
	})
}
