//go:build cgo

package native_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"weir/datapath/internal/vector"
	"weir/datapath/native"
)

// randomEvents make the events of the *_random.vec files, from fixed seeds.
var randomEvents = map[string]func() *vector.File{
	"fairq":  randomFairQ,
	"window": randomWindow,
	"slots":  randomSlots, "release": randomRelease, "groups": randomGroups, "edge": randomEdge, "credit": randomCredit,
	"grant": randomGrant, "bucket": randomBucket,
	"arrivals": randomArrivals, "repair": randomRepair,
}

// happens returns the line of one event.
func happens(name string, fields ...vector.Field) vector.Line {
	return vector.Line{Keyword: "do", Name: name, Fields: fields}
}

// begins returns the lines that begin a case. They leave out fields that are 0.
func begins(i int, config, state vector.Fields) []vector.Line {
	none := func(f vector.Field) bool { return f.Value == 0 }
	config, state = slices.DeleteFunc(config, none), slices.DeleteFunc(state, none)
	return []vector.Line{
		{}, {Keyword: "case", Name: fmt.Sprint(i)}, {Keyword: "config", Fields: config}, {Keyword: "state", Fields: state},
	}
}

func randomSlots() *vector.File {
	f := header("slots")
	r := rand.New(rand.NewPCG(3, 3))
	for i := range 30 {
		count := uint64(i % 3)
		epoch := 1 + sized(r, 20)
		f.Lines = append(f.Lines, begins(i, vector.Fields{{Key: "count", Value: count}, {Key: "epoch_ns", Value: epoch}, {Key: "idle_ns", Value: sized(r, 22)}},
			vector.Fields{{Key: "port0_generation", Value: 1}, {Key: "port1_generation", Value: 1}, {Key: "port0_epoch", Value: sized(r, 64)}, {Key: "port1_epoch", Value: sized(r, 50)},
				{Key: "port0_wheel.3", Value: sized(r, 22)}, {Key: "port1_opening.5", Value: sized(r, 22)}, {Key: "end_next", Value: sized(r, 32)}})...)
		now, behind := uint64(0), uint32(0)
		for range 14 {
			now += sized(r, 22)
			behind += uint32(sized(r, 30))
			id, at := vector.Field{Key: "id", Value: r.Uint64N(2)}, vector.Field{Key: "now_ns", Value: now}
			names := []string{"take", "take", "take", "leave", "turn", "turn", "turn", "hears", "flows", "sends", "finishes"}
			if count == 1 {
				names = append(names, "register", "register", "unregister")
			} else {
				names = append(names, "open", "open", "opened", "openings")
			}
			f.Lines = append(f.Lines, happens(names[r.IntN(len(names))], id, at, vector.Field{Key: "behind", Value: uint64(behind)}))
		}
	}
	return f
}

func randomPortConfig(r *rand.Rand) vector.Fields {
	return vector.Fields{
		{Key: "law_target_bytes", Value: sized(r, 24)}, {Key: "law_tick_ns", Value: sized(r, 20)}, {Key: "law_period_ns", Value: 1 + sized(r, 24)},
		{Key: "law_cap_bytes", Value: sized(r, 24) * r.Uint64N(2)}, {Key: "law_floor_bytes", Value: sized(r, 14) * r.Uint64N(2)}, {Key: "law_start_bytes", Value: sized(r, 24) * r.Uint64N(2)}, {Key: "epoch_ns", Value: 1 + sized(r, 26)},
		{Key: "pipe_bytes", Value: sized(r, 28)}, {Key: "mode", Value: r.Uint64N(4)}, {Key: "limited_buckets", Value: sized(r, 17)},
		{Key: "releasing", Value: r.Uint64N(8) / 7}, {Key: "mss_unknown", Value: sized(r, 16)}, {Key: "divisor", Value: sized(r, 6)},
	}
}

func randomRelease() *vector.File {
	f := header("release")
	r := rand.New(rand.NewPCG(4, 4))
	for i := range 40 {
		f.Lines = append(f.Lines, begins(i, randomPortConfig(r), vector.Fields{
			{Key: "port_grant_q8", Value: sized(r, 35)}, {Key: "port_release_q8", Value: sized(r, 35) * r.Uint64N(2)}, {Key: "port_release_from", Value: sized(r, 16)},
			{Key: "port_spared", Value: sized(r, 16)}, {Key: "port_mode", Value: r.Uint64N(3)}, {Key: "port_easing", Value: r.Uint64N(2)}, {Key: "port_enforced", Value: r.Uint64N(2)},
			{Key: "port_running", Value: r.Uint64N(2)}, {Key: "port_wheel.0", Value: sized(r, 12)}, {Key: "port_law_flows", Value: sized(r, 12)},
			{Key: "port_law_window_q8", Value: sized(r, 34)}, {Key: "port_law_aggregate_q8", Value: sized(r, 44)}, {Key: "port_law_mss_bytes", Value: sized(r, 16)},
		})...)
		now := uint64(0)
		for range 8 {
			now += sized(r, 27)
			at, live := vector.Field{Key: "now_ns", Value: now}, vector.Field{Key: "live", Value: min(1, r.Uint64N(4))}
			switch r.IntN(8) {
			case 0:
				f.Lines = append(f.Lines, happens("recount", at, live))
			case 1, 2, 3:
				f.Lines = append(f.Lines, happens("limit", vector.Field{Key: "gap_ns", Value: sized(r, 27)}))
			case 4:
				f.Lines = append(f.Lines, happens("lease", at, live, vector.Field{Key: "heartbeat_ns", Value: sized(r, 28)}, vector.Field{Key: "lease_ns", Value: sized(r, 28)}))
			default:
				f.Lines = append(f.Lines, happens("tick", at, live, vector.Field{Key: "backlog_bytes", Value: sized(r, 26)}, vector.Field{Key: "readable", Value: min(1, r.Uint64N(6))}))
			}
		}
	}
	return f
}

func randomGroups() *vector.File {
	f := header("groups")
	r := rand.New(rand.NewPCG(5, 5))
	for i := range 30 {
		f.Lines = append(f.Lines, begins(i, randomPortConfig(r), vector.Fields{
			{Key: "port_grant_q8", Value: sized(r, 35)}, {Key: "port_release_q8", Value: sized(r, 35)}, {Key: "port_release_from", Value: sized(r, 16)},
			{Key: "port_spared", Value: sized(r, 17) * r.Uint64N(2)}, {Key: "port_mode", Value: r.Uint64N(8) / 6}, {Key: "port_enforced", Value: r.Uint64N(2)}, {Key: "port_equilibrium_q8", Value: sized(r, 34)},
			{Key: "port_opening.0", Value: sized(r, 12)}, {Key: "port_opening.7", Value: sized(r, 12)}, {Key: "port_law_flows", Value: sized(r, 12)}, {Key: "port_law_aggregate_q8", Value: sized(r, 44)},
		})...)
		for range 8 {
			bucket := vector.Field{Key: "bucket", Value: r.Uint64N(65536)}
			switch r.IntN(6) {
			case 0:
				f.Lines = append(f.Lines, happens("floor", vector.Field{Key: "mss_option_bytes", Value: sized(r, 16)}, vector.Field{Key: "gso_size_bytes", Value: sized(r, 16)}))
			case 1:
				f.Lines = append(f.Lines, happens("advertises", bucket))
			case 2:
				f.Lines = append(f.Lines, happens("assume", vector.Field{Key: "receiver_flags", Value: r.Uint64N(8)}, vector.Field{Key: "sender_flags", Value: r.Uint64N(2)}, vector.Field{Key: "sender_port", Value: r.Uint64N(2)}))
			default:
				f.Lines = append(f.Lines, happens("grant", bucket, vector.Field{Key: "opening", Value: r.Uint64N(2)}, vector.Field{Key: "live", Value: r.Uint64N(2)},
					vector.Field{Key: "apart", Value: r.Uint64N(2)}, vector.Field{Key: "now_ns", Value: sized(r, 28)}))
			}
		}
	}
	return f
}

func randomEdge() *vector.File {
	f := header("edge")
	r := rand.New(rand.NewPCG(6, 6))
	for i := range 30 {
		f.Lines = append(f.Lines, begins(i, vector.Fields{
			{Key: "interval", Value: 1 + sized(r, 8)}, {Key: "lease", Value: 256 + sized(r, 12)}, {Key: "change", Value: sized(r, 8)}, {Key: "rules_lease", Value: sized(r, 12)},
			{Key: "rules_floor_bytes", Value: sized(r, 14) * r.Uint64N(2)}, {Key: "rules_mss_max", Value: sized(r, 14)}, {Key: "rules_shrink", Value: uint64(i % 2)},
		}, nil)...)
		now, number := uint32(sized(r, 32)), r.Uint32()
		grant, shift := sized(r, 40), r.Uint64N(16)
		for range 12 {
			now += uint32(sized(r, 11))
			number += uint32(sized(r, 18))
			if r.IntN(3) == 0 {
				grant = sized(r, 40)
			}
			field := sized(r, 16)
			ack := []vector.Field{{Key: "ack_grant_q8", Value: grant}, {Key: "ack_field", Value: field}, {Key: "ack_shift", Value: shift}, {Key: "ack_now", Value: uint64(now)},
				{Key: "ack_flagged", Value: r.Uint64N(4) / 3}}
			syn := []vector.Field{{Key: "syn_seq", Value: r.Uint64N(3)}, {Key: "syn_ack", Value: r.Uint64N(4)}, {Key: "syn_mss", Value: sized(r, 16)}, {Key: "syn_shift", Value: r.Uint64N(15)},
				{Key: "syn_flags", Value: 4 * r.Uint64N(8)}, {Key: "syn_side", Value: r.Uint64N(2)}, {Key: "field", Value: field}}
			switch r.IntN(10) {
			case 0:
				f.Lines = append(f.Lines, happens("syn", syn[:6]...))
			case 1:
				f.Lines = append(f.Lines, happens("answer", syn...))
			case 2, 3:
				f.Lines = append(f.Lines, happens("due", ack...))
			case 4, 5:
				f.Lines = append(f.Lines, happens("advertise", append(ack, vector.Field{Key: "field", Value: min(field, sized(r, 16))})...))
			case 6:
				f.Lines = append(f.Lines, happens("left", ack[1:3]...))
			default:
				f.Lines = append(f.Lines, happens("ack", append(ack[1:], vector.Field{Key: "number", Value: uint64(number)})...))
			}
		}
	}
	return f
}

func header(law string) *vector.File {
	return &vector.File{Law: law, Lines: []vector.Line{
		{Text: "# Made by `go test ./datapath/native -run TestVectors -update` from a fixed seed. Format: package"},
		{Text: "# weir/datapath/internal/vector. Values are of every size, so that what saturates and wraps does."},
		{Keyword: "law", Name: law},
	}}
}

// sized returns a number below 2^bits whose length in bits is uniform.
func sized(r *rand.Rand, bits int) uint64 { return r.Uint64() >> (64 - bits) >> r.IntN(bits) }

func randomFairQ() *vector.File {
	f := header("fairq")
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 30 {
		f.Lines = append(f.Lines, vector.Line{}, vector.Line{Keyword: "case", Name: fmt.Sprint(i)})
		c := native.FairQConfig{
			TargetBytes: uint32(sized(r, 24)), BufferBytes: uint32(sized(r, 26)) * r.Uint32N(2),
			TickNs: uint32(sized(r, 32)), PeriodNs: uint32(sized(r, 31)),
			FloorBytes: uint32(sized(r, 14)) * r.Uint32N(2), CapBytes: uint32(sized(r, 31)) * r.Uint32N(2), StartBytes: uint32(sized(r, 32)) * r.Uint32N(2),
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
			case 4:
				do.Name, do.Fields = "empty_may_rest", vector.Fields{{Key: "now_ns", Value: now + sized(r, 30)}}
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
