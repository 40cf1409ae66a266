//go:build cgo

package native_test

import (
	"testing"

	"weir/datapath/native"
)

// accepts has a SYN-ACK pass, and returns what its promise was charged, in bytes.
func (b *creditBed) accepts(nowNs uint64) (promise uint32, charged uint32) {
	before := b.state.ChargedNs
	var a native.CreditAnswer
	promise = b.sw.Acknowledges(0, &native.CreditAck{
		NowNs: nowNs, FloorBytes: 1461, BacklogBytes: 20_000, LengthBytes: 74, Opens: native.CreditAccepts,
	}, 0, &a)
	return promise, uint32((b.state.ChargedNs - before) / 8)
}

// A flood of SYNs: nobody uses what the SYN-ACKs promise. They soon cost nothing, so others need not wait for them, and promise
// a segment each. Up to 1400 handshakes at once cost what they promise, and so do all others if their promises are used.
func TestCredit_HandshakesThatNobodyUses(t *testing.T) {
	for _, c := range []struct {
		name      string
		perSecond uint64
		used      bool
		mostMbps  uint64 // that the latter half of them is charged
		full      int    // of the first ones, those that cost what they promise
	}{
		{"used", 10_000, true, 1e6, 20_000},
		{"50,000 a second", 50_000, false, 0, 1400},
		{"10,000 a second", 10_000, false, 0, 1400},
		{"2000 a second", 2000, false, 0, 1400},
		{"800 a second", 800, false, 6, 1400},
		{"100 a second", 100, false, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newCreditBed(t, native.CreditPromises) // without the parking's limits
			late, span := uint64(0), 1e9/c.perSecond
			const n = 20_000
			for i := range uint64(n) {
				now := i * span
				promise, charged := b.accepts(now)
				if charged > promise+promise/8+500 || i < uint64(c.full) && i > 100 && charged < promise {
					t.Fatalf("SYN-ACK %d: charged %d bytes for a promise of %d", i, charged, promise)
				}
				if c.used {
					b.sw.CreditUsed(0, now, promise, 1448, 1e6, true, 0)
				}
				if i >= n/2 {
					late += uint64(charged)
				}
			}
			if mbps := late * 8 * 1000 / (n / 2 * span); mbps > c.mostMbps {
				t.Errorf("the latter half is charged %d Mbit/s, want %d at most", mbps, c.mostMbps)
			}
		})
	}
}

// 300 handshakes are completed at once, and each client asks. Requests are charged, and the ACKs of handshakes are not. So it makes no
// difference whether all clients ask after the last ACK: the line never idles, and in no time do more requests leave than it carries,
// with what the port has room for. With a charge for both the last request left after 7.4 ms more.
func TestCredit_RequestsBehindHandshakes(t *testing.T) {
	const n, cost = 300, 8 * (2*1461 + 3*90) // ns of two segments
	for _, c := range []struct {
		name     string
		together bool // all requests come after all ACKs
	}{
		{"each behind its own", false},
		{"all behind all", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
			var waits [n]native.CreditAnswer
			var promises [n]uint32
			acks := func(i int, opens uint8) (leaves uint64) {
				ack := native.CreditAck{NowNs: 1000, FloorBytes: 1461, LengthBytes: 66, Opens: opens, Promise: promises[i]}
				left := int64(waits[i].LiveNs) - 1000
				if opens == native.CreditOpens && waits[i].LengthBytes > 0 {
					ack.Behind = 1
				}
				promises[i] = b.acknowledges(&ack, left, &waits[i])
				return waits[i].LeavesNs
			}
			var leaves []uint64
			for i := range n {
				acks(i, native.CreditCompletes)
				if !c.together {
					leaves = append(leaves, acks(i, native.CreditOpens))
				}
			}
			for i := range n {
				if c.together {
					leaves = append(leaves, acks(i, native.CreditOpens))
				}
			}
			if got := int(b.state.ChargedNs / cost); got < n || got > n+16 { // the first requests get what the port has room for
				t.Errorf("charged for %d promises, want %d", got, n)
			}
			if last := leaves[n-1]; last > n*cost+1000 {
				t.Errorf("the last request leaves after %d ns, and all answers take %d", last, n*cost)
			}
			const live = 1_800_000 // ns, as in credit_live_ns
			for i := range leaves {
				first := 0
				for leaves[i]-leaves[first] > live {
					first++
				}
				if most := (live+50_000*8)/cost + 1; i-first > most {
					t.Fatalf("%d requests leave within 1.8 ms, want %d at most", i-first, most)
				}
			}
		})
	}
}

// After a flood, SYN-ACKs cost what they promise again when their promises are used.
func TestCredit_HandshakesAfterAFlood(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises)
	now := uint64(0)
	for range 20_000 {
		now += 20_000
		b.accepts(now)
	}
	for i := 0; ; i++ {
		now += 1e6
		promise, charged := b.accepts(now)
		b.sw.CreditUsed(0, now, promise, 1448, 1e6, true, 0)
		if charged >= promise {
			if i < 100 {
				t.Errorf("after %d handshakes", i)
			}
			return
		}
		if i > 2000 {
			t.Fatalf("charged %d for a promise of %d after %d handshakes", charged, promise, i)
		}
	}
}
