//go:build cgo

package native_test

import (
	"fmt"
	"math/rand/v2"

	"weir/datapath/internal/vector"
	"weir/datapath/native"
)

// randomEvents make the events of the *_random.vec files, from fixed seeds.
var randomEvents = map[string]func() *vector.File{
	"fairq":  randomFairQ,
	"window": randomWindow,
}

func header(law string) *vector.File {
	return &vector.File{Law: law, Lines: []vector.Line{
		{Text: "# Made by `go test ./datapath/native -run TestVectors -update` from a fixed seed. Format: package"},
		{Text: "# weir/datapath/internal/vector. Values are of every size, so that what saturates and wraps does."},
		{Keyword: "law", Name: law},
	}}
}

// sized gives a number below 2^bits whose length in bits is uniform.
func sized(r *rand.Rand, bits int) uint64 { return r.Uint64() >> (64 - bits) >> r.IntN(bits) }

func randomFairQ() *vector.File {
	f := header("fairq")
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 30 {
		f.Lines = append(f.Lines, vector.Line{}, vector.Line{Keyword: "case", Name: fmt.Sprint(i)})
		c := native.FairQConfig{
			TargetBytes: uint32(sized(r, 24)), BufferBytes: uint32(sized(r, 26)) * r.Uint32N(2),
			TickNs: uint32(sized(r, 32)), PeriodNs: uint32(sized(r, 31)),
			FloorBytes: uint32(sized(r, 14)) * r.Uint32N(2), CapBytes: uint32(sized(r, 31)) * r.Uint32N(2),
			MSSMaxBytes: uint16(sized(r, 16)), Gain: native.Gain(i % 2), SlowStart: native.SlowStart(i / 2 % 3), Variant: native.Variant(r.IntN(4) / 3),
		}
		s := native.FairQState{
			AggregateQ8: sized(r, 58), Flows: uint32(sized(r, 20)), LastSampleNs: sized(r, 64),
			MSSBytes: uint16(sized(r, 16)), SlowStart: uint8(r.IntN(2)),
		}
		f.Lines = append(f.Lines, vector.Line{Keyword: "config", Fields: vector.Of(c)}, vector.Line{Keyword: "state", Fields: vector.Of(s)})
		now := s.LastSampleNs
		for range 16 {
			do := vector.Line{Keyword: "do", Name: "sample"}
			switch r.IntN(10) {
			case 0:
				do.Name, do.Fields = "flow_added", vector.Fields{{Key: "now_ns", Value: now}}
			case 1:
				do.Name = "flow_removed"
			case 2:
				do.Name, do.Fields = "saw_mss", vector.Fields{{Key: "bytes", Value: sized(r, 17)}}
			case 3:
				do.Name, do.Fields = "packet_may_sample", vector.Fields{{Key: "now_ns", Value: now + sized(r, 30)}}
			default:
				now += sized(r, 32)
				do.Fields = vector.Fields{{Key: "now_ns", Value: now}, {Key: "bytes", Value: sized(r, 32)}}
			}
			f.Lines = append(f.Lines, do)
		}
		for _, opening := range []uint64{0, 1, uint64(i) * 7, 1 << uint(i)} {
			f.Lines = append(f.Lines, vector.Line{Keyword: "do", Name: "opening", Fields: vector.Fields{{Key: "bytes", Value: opening}}})
		}
	}
	return f
}

func randomWindow() *vector.File {
	f := header("window")
	r := rand.New(rand.NewPCG(2, 2))
	for i := range 20 {
		f.Lines = append(f.Lines, vector.Line{}, vector.Line{Keyword: "case", Name: fmt.Sprint(i)})
		ack := r.Uint32()
		for range 12 {
			if r.IntN(5) == 0 {
				f.Lines = append(f.Lines, vector.Line{Keyword: "do", Name: "checksum", Fields: vector.Fields{
					{Key: "check", Value: sized(r, 16)}, {Key: "old_word", Value: sized(r, 16)}, {Key: "new_word", Value: sized(r, 16)},
				}})
				continue
			}
			ack += uint32(sized(r, 16))
			a := native.WindowAck{
				WindowQ8: sized(r, 34), FloorBytes: uint32(sized(r, 14)), CapBytes: uint32(sized(r, 30)) * r.Uint32N(2),
				Ack: ack, Field: uint16(sized(r, 16)), Shift: uint8(r.IntN(17)), SYN: uint8(r.IntN(10) / 9),
				Shrink: native.Shrink(i % 2),
			}
			f.Lines = append(f.Lines, vector.Line{Keyword: "do", Name: "rewrite", Fields: vector.Of(a)})
		}
	}
	return f
}
