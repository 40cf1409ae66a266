package native

import (
	"math/rand/v2"
	"testing"
)

// Both ends of a connection are elsewhere if one acknowledges a byte of data without a gap that the other sent there.
func TestCreditRun(t *testing.T) {
	type data struct{ seq, payload uint32 }
	for _, row := range []struct {
		what string
		data []data
		ack  uint32
		want bool
	}{
		{"no data", nil, 1, false},
		{"no data, and no number", nil, 0, false},
		{"its first byte", []data{{5000, 100}}, 5001, true},
		{"its last byte", []data{{5000, 100}}, 5100, true},
		{"nothing of it", []data{{5000, 100}}, 5000, false},
		{"a byte behind it", []data{{5000, 100}}, 5101, false},
		{"the first part of two", []data{{5000, 100}, {5100, 200}}, 5050, true},
		{"the second part of two", []data{{5000, 100}, {5100, 200}}, 5300, true},
		{"what was sent before a gap", []data{{5000, 100}, {5101, 200}}, 5050, false},
		{"what was sent behind a gap", []data{{5000, 100}, {5101, 200}}, 5301, true},
		{"beyond the wrap", []data{{1<<32 - 50, 100}}, 50, true},
		{"more than 4 MiB before the end", []data{{0, 4 << 20}, {4 << 20, 100}}, 100, false},
		{"4 MiB before the end", []data{{0, 4 << 20}, {4 << 20, 100}}, 101, true},
	} {
		var run CreditRun
		for _, d := range row.data {
			run.Stray(d.seq, d.payload)
		}
		if got := run.Agrees(row.ack); got != row.want {
			t.Errorf("%s: %v, want %v (%+v)", row.what, got, row.want, run)
		}
	}
}

// Random numbers of a forger agree with random data as rarely as its bytes are among all numbers: once in 3 million.
func TestCreditRun_OfAForger(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var run CreditRun
	agreed := 0
	for range 3_000_000 {
		run.Stray(random.Uint32(), 1460)
		if run.Agrees(random.Uint32()) {
			agreed++
		}
	}
	if agreed > 5 {
		t.Errorf("%d of 3 million agree", agreed)
	}
}

// Only a FIN directly behind the data ends a message.
func TestCreditEndsAt(t *testing.T) {
	for _, row := range []struct {
		fin, sent uint32
		want      bool
	}{{101, 100, true}, {100, 100, true}, {102, 100, false}, {99, 100, false}, {0, 1<<32 - 1, true}, {10 << 20, 100, false}} {
		if got := CreditEndsAt(row.fin, row.sent); got != row.want {
			t.Errorf("a FIN up to %d, and data up to %d: %v", row.fin, row.sent, got)
		}
	}
}
