//go:build cgo

package native_test

import (
	"math/rand/v2"

	"weir/datapath/internal/vector"
)

// randomGrant makes grants whose ends are near the present, some of them past.
func randomGrant() *vector.File {
	f := header("grant")
	r := rand.New(rand.NewPCG(19, 1))
	for i := range 60 {
		f.Lines = append(f.Lines, begins(i, nil, vector.Fields{{Key: "least_zero", Value: r.Uint64N(4) / 3}})...)
		now := 5_000_000_000 + sized(r, 40)
		for range 6 {
			owner := vector.Fields{
				{Key: "owner_heartbeat_ns", Value: (now - sized(r, 32)) * min(1, r.Uint64N(8))}, {Key: "owner_left_ns", Value: (now - sized(r, 31)) * (r.Uint64N(4) / 3)},
				{Key: "grant_value", Value: sized(r, 40)}, {Key: "grant_expires_ns", Value: now + sized(r, 32) - sized(r, 31)},
				{Key: "grant_flags", Value: r.Uint64N(4)}, {Key: "now_ns", Value: now},
			}
			switch r.IntN(8) {
			case 0:
				f.Lines = append(f.Lines, happens("rate", append(owner, vector.Field{Key: "bps", Value: sized(r, 40)})...))
			case 1, 2:
				f.Lines = append(f.Lines, happens("field", vector.Field{Key: "ack_field", Value: sized(r, 16)}, vector.Field{Key: "ack_shift", Value: r.Uint64N(17)},
					vector.Field{Key: "ack_syn", Value: r.Uint64N(8) / 7}, vector.Field{Key: "mss", Value: sized(r, 16)}, vector.Field{Key: "mss_max", Value: 1460 << (r.Uint64N(2) * 2)}))
			case 3:
				f.Lines = append(f.Lines, happens("released", vector.Field{Key: "bps", Value: sized(r, 35)}, vector.Field{Key: "now_ns", Value: sized(r, 30)}))
			case 4:
				f.Lines = append(f.Lines, happens("bit", vector.Field{Key: "address", Value: sized(r, 32)}, vector.Field{Key: "ports", Value: sized(r, 32)}))
			default:
				f.Lines = append(f.Lines, happens("add", owner...))
			}
			now += sized(r, 26)
		}
	}
	return f
}

func randomBucket() *vector.File {
	f := header("bucket")
	r := rand.New(rand.NewPCG(19, 2))
	f.Lines = append(f.Lines, begins(0, nil, nil)...)
	for range 60 {
		bps := vector.Field{Key: "bps", Value: sized(r, 44)}
		for _, name := range []string{"burst", "quantum", "limit"} {
			f.Lines = append(f.Lines, happens(name, bps))
		}
		has := sized(r, 40)
		f.Lines = append(f.Lines, happens("changes", vector.Field{Key: "has_bps", Value: has}, vector.Field{Key: "bps", Value: has + has*r.Uint64N(50)/1000}))
		f.Lines = append(f.Lines, happens("class", vector.Field{Key: "bps", Value: sized(r, 30) * r.Uint64N(2)}, vector.Field{Key: "limited", Value: sized(r, 32) * r.Uint64N(2)}, vector.Field{Key: "relaxed", Value: sized(r, 32)}))
	}
	return f
}
