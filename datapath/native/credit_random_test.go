//go:build cgo

package native_test

import (
	"math/rand/v2"

	"weir/datapath/internal/vector"
)

// randomCredit makes the events of credit_random.vec: configurations of every size within the bounds of core/fairq/credit.h, and
// questions of every size.
func randomCredit() *vector.File {
	f := header("credit")
	r := rand.New(rand.NewPCG(7, 7))
	for i := range 60 {
		f.Lines = append(f.Lines, begins(i, vector.Fields{
			{Key: "byte_ns_q20", Value: 1 + sized(r, 37)}, {Key: "capacity_bytes", Value: sized(r, 22)}, {Key: "target_bytes", Value: sized(r, 21)},
			{Key: "first_bytes", Value: sized(r, 15)}, {Key: "wait_ns", Value: 1 + sized(r, 27)}, {Key: "hold_bytes", Value: sized(r, 22)},
			{Key: "line_bytes", Value: 24 * r.Uint64N(2)}, {Key: "buffer_bytes", Value: sized(r, 21) * r.Uint64N(2)}, {Key: "mode", Value: r.Uint64N(4) | uint64(i&1)},
		}, vector.Fields{
			{Key: "state_owed_bytes", Value: sized(r, 22) * r.Uint64N(2)}, {Key: "state_factor_less", Value: sized(r, 10) % 993},
			{Key: "state_asked_most", Value: sized(r, 11) * r.Uint64N(2)},
		})...)
		now := 1 + sized(r, 40)
		for range 14 {
			now += sized(r, 28)
			f.Lines = append(f.Lines, randomCreditEvent(r, now))
		}
	}
	return f
}

// randomCreditEvent makes one event at a time.
func randomCreditEvent(r *rand.Rand, now uint64) vector.Line {
	at := vector.Field{Key: "now_ns", Value: now}
	until, since := sized(r, 28), sized(r, 28)
	left := vector.Field{Key: "left_ns", Value: until - since}
	bit := func(key string) vector.Field { return vector.Field{Key: key, Value: r.Uint64N(2)} }
	number := sized(r, 32)
	switch r.IntN(14) {
	case 0:
		return happens("used", at, left, vector.Field{Key: "promise", Value: sized(r, 16)}, vector.Field{Key: "bytes", Value: sized(r, 16)},
			vector.Field{Key: "mark", Value: (now>>21 + 1 - sized(r, 5)) & 0xffffffff * r.Uint64N(2)})
	case 8, 9:
		return happens("returns", at, left, vector.Field{Key: "promise", Value: sized(r, 16)}, vector.Field{Key: "bytes", Value: sized(r, 18)}, bit("held"))
	case 1:
		return happens("other", at, vector.Field{Key: "bytes", Value: sized(r, 16)})
	case 2:
		return happens("refused", at)
	case 3:
		return happens("turn", bit("side"), vector.Field{Key: "turn", Value: r.Uint64N(8)}, vector.Field{Key: "bytes", Value: 1 + sized(r, 17)},
			vector.Field{Key: "gso", Value: sized(r, 12)}, vector.Field{Key: "longest", Value: sized(r, 16)})
	case 4:
		return happens("opens", vector.Field{Key: "syn", Value: r.Uint64N(8) / 7}, bit("opener"), bit("begins"), bit("completes"),
			vector.Field{Key: "sent", Value: number}, vector.Field{Key: "number", Value: (number + r.Uint64N(3) - 1) & 0xffffffff})
	case 5:
		return happens("answered", bit("opener"), bit("side"), vector.Field{Key: "turn", Value: r.Uint64N(8)})
	case 6:
		return happens("advance", vector.Field{Key: "una", Value: number}, vector.Field{Key: "number", Value: sized(r, 32)})
	case 7:
		return happens("counts_other", at, vector.Field{Key: "pacing", Value: r.Uint64N(4) / 3})
	}
	ack := vector.Fields{
		{Key: "ack_now_ns", Value: now}, {Key: "ack_floor_bytes", Value: 1 + sized(r, 14)}, {Key: "ack_backlog_bytes", Value: sized(r, 20)},
		{Key: "ack_length_bytes", Value: 54 + sized(r, 10)}, {Key: "ack_advance_bytes", Value: sized(r, 13)}, {Key: "ack_shift", Value: r.Uint64N(15)},
		{Key: "ack_pacing", Value: r.Uint64N(4) / 2}, {Key: "ack_ends", Value: r.Uint64N(8) / 7}, {Key: "ack_answered", Value: r.Uint64N(2)},
		{Key: "ack_ack", Value: number}, {Key: "ack_sent", Value: (number + sized(r, 13)*r.Uint64N(2)) & 0xffffffff},
		{Key: "ack_allowed", Value: (number + sized(r, 13)) & 0xffffffff * r.Uint64N(2)}, {Key: "ack_longest_bytes", Value: sized(r, 12) * r.Uint64N(2)},
	}
	if r.IntN(5) == 0 {
		return happens("rest", append(ack, vector.Field{Key: "promise", Value: sized(r, 16) * (r.Uint64N(4) / 3)})...)
	}
	return happens("acknowledge", append(ack, left, vector.Field{Key: "ack_opens", Value: r.Uint64N(3)}, vector.Field{Key: "ack_behind", Value: r.Uint64N(4) / 3},
		vector.Field{Key: "ack_fixed", Value: r.Uint64N(4) / 3}, vector.Field{Key: "ack_promise", Value: sized(r, 16) * r.Uint64N(2)})...)
}
