//go:build cgo

package native_test

import (
	"math"
	"testing"

	"weir/datapath/native"
	"weir/internal/testseed"
)

// The release at a time is that of short ticks, by which FairQ releases: at most 6.2 % above the curve, which ticks of 50 us
// fall behind by 0.84 % until the end.
func TestRelease_AtATimeIsThatOfTicks(t *testing.T) {
	const tick = 50_000
	for _, start := range []uint64{1448 << 8, 20_000 << 8, 1 << 30} {
		stepped := start
		for at := uint64(0); stepped != 0; at += tick {
			got := native.ReleasedAfter(start, at)
			exact := float64(start) * math.Exp(float64(at)/32e6)
			// The chord lies above the curve, so the release ends up to 2 ms earlier.
			if got == 0 && exact*1.062 < 1<<34 || got != 0 && (float64(got) < 0.999*exact || float64(got) > 1.062*exact) {
				t.Fatalf("%d after %d ns: %d, want %.0f", start, at, got, exact)
			}
			if got != 0 && (float64(got) < 0.995*float64(stepped) || float64(got) > 1.072*float64(stepped)) {
				t.Fatalf("%d after %d ns: %d, and in ticks %d", start, at, got, stepped)
			}
			stepped = native.Released(stepped, tick)
		}
		if native.ReleasedAfter(start, 400e6) != 0 {
			t.Errorf("%d has not ended after 400 ms", start)
		}
	}
}

// The field is that of a slow, obvious minimum: never above the ACK's own, never below the floor, and 0 only for a valid pause
// with zero.
func TestGrant_FieldIsTheMinimum(t *testing.T) {
	r := testseed.New(t)
	limited := 0
	for range 200_000 {
		now := uint64(10e9)
		least := native.GrantLeast{Zero: r.Uint32N(2)}
		want, paused := math.Inf(1), false
		for range r.IntN(5) {
			o := native.GrantOwner{HeartbeatNs: now - r.Uint64N(15e8)}
			g := native.Grant{Value: r.Uint64N(200_000), ExpiresNs: now + r.Uint64N(2e9) - 1e8, Flags: r.Uint32N(4)}
			least.Add(&g, &o, now)
			if g.Flags&native.GrantSet == 0 {
				continue
			}
			end := min(o.HeartbeatNs+1e9, g.ExpiresNs)
			bytes := float64(g.Value)
			if g.Flags&native.GrantPause != 0 {
				bytes = 0
			}
			if now >= end {
				bytes = float64(native.ReleasedAfter(uint64(bytes)<<8, now-end)) / 256
				if bytes == 0 {
					continue
				}
			} else if g.Flags&native.GrantPause != 0 {
				paused = true
			}
			want = min(want, bytes)
		}
		a := native.WindowAck{Field: uint16(r.Uint32()), Shift: uint8(r.Uint32N(15)), SYN: uint8(r.Uint32N(8) / 7)}
		mss := []uint32{0, 536, 1448, 9000}[r.IntN(4)]
		floor := float64(mss + 1)
		if mss == 0 || mss > 1460 {
			floor = 1461
		}
		shift := float64(int(1) << a.Shift)
		if a.SYN == 1 {
			shift = 1
		}
		field := float64(a.Field)
		switch bytes := max(math.Floor(want), floor); {
		case paused && least.Zero == 1:
			field = 0
		case bytes < field*shift:
			field = math.Ceil(bytes / shift)
			limited++
		}
		if got := least.Field(&a, mss, 1460); float64(got) != field {
			t.Fatalf("%+v, %+v, MSS %d: %d, want %.0f", least, a, mss, got, field)
		}
	}
	if limited < 1000 {
		t.Errorf("only %d were limited", limited)
	}
}
