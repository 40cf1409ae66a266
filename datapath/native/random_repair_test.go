//go:build cgo

package native_test

import (
	"math/rand/v2"

	"weir/datapath/internal/vector"
)

func randomRepair() *vector.File {
	f := header("repair")
	r := rand.New(rand.NewPCG(23, 4))
	near := func(n uint64) uint64 { return max(n+r.Uint64N(3), 1) - 1 }
	for i := range 20 {
		limit, park := sized(r, 24), sized(r, 24)
		full := limit + r.Uint64N(2)*sized(r, 14)
		f.Lines = append(f.Lines, begins(i, vector.Fields{{Key: "limit_bytes", Value: limit}, {Key: "park_bytes", Value: park}, {Key: "full_bytes", Value: full}}, nil)...)
		for range 6 {
			bytes := sized(r, 16)
			f.Lines = append(f.Lines, happens("decide",
				vector.Field{Key: "backlog_bytes", Value: near(max(limit, bytes) - bytes)}, vector.Field{Key: "parked_bytes", Value: near(max(park, bytes) - bytes)},
				vector.Field{Key: "bytes", Value: bytes}, vector.Field{Key: "is_tcp", Value: r.Uint64N(2)}, vector.Field{Key: "waits", Value: r.Uint64N(2)}))
			parked := sized(r, 50)
			f.Lines = append(f.Lines, happens("waits", vector.Field{Key: "flow_parked_ns", Value: parked}, vector.Field{Key: "flow_waiting", Value: r.Uint64N(3)},
				vector.Field{Key: "back_ns", Value: near(parked + 1e6*r.Uint64N(2))}, vector.Field{Key: "now_ns", Value: near(parked + 1e8)}))
			f.Lines = append(f.Lines, happens("again", vector.Field{Key: "backlog_bytes", Value: near(max(full, bytes) - bytes)}, vector.Field{Key: "bytes", Value: bytes},
				vector.Field{Key: "waits", Value: r.Uint64N(3) / 2}, vector.Field{Key: "waited_ns", Value: near(1e8 * r.Uint64N(2))}))
		}
	}
	return f
}
