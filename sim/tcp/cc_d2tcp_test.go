package tcp

import (
	"math"
	"testing"

	"weir/sim/event"
)

// p = alpha^d, compared with values calculated by hand.
func TestD2TCPGammaCorrection(t *testing.T) {
	for _, c := range []struct{ alpha, d, want uint32 }{
		{256, 128, 512},   // (1/4)^(1/2) = 1/2
		{256, 256, 256},   // d = 1: DCTCP
		{256, 512, 64},    // (1/4)^2 = 1/16
		{256, 384, 128},   // (1/4)^(3/2) = 1/8
		{512, 512, 256},   // (1/2)^2
		{64, 128, 256},    // (1/16)^(1/2)
		{64, 192, 128},    // (1/16)^(3/4) = 1/8
		{0, 128, 0},       // no marks
		{1024, 512, 1024}, // all marked: half for everyone
		{1024, 128, 1024},
	} {
		if got := gammaCorrect(c.alpha, c.d); got != c.want {
			t.Errorf("(%d/1024)^(%d/256) = %d/1024, want %d", c.alpha, c.d, got, c.want)
		}
	}
	for alpha := uint32(0); alpha <= alphaOne; alpha += 7 {
		last := uint32(alphaOne)
		for d := uint32(urgencyMin); d <= urgencyMax; d += 5 {
			got := gammaCorrect(alpha, d)
			want := 1024 * math.Pow(float64(alpha)/1024, float64(d)/256)
			if math.Abs(float64(got)-want) > 0.51 {
				t.Fatalf("(%d/1024)^(%d/256) = %d, want %.2f", alpha, d, got, want)
			}
			if got > last {
				t.Fatalf("alpha %d: a more urgent flow (d %d) yields more", alpha, d)
			}
			last = got
		}
	}
}

// d = Tc/D with Tc = B / (3/4 W) RTTs.
func TestD2TCPUrgency(t *testing.T) {
	w := Window{Cwnd: 40}
	for _, c := range []struct {
		name      string
		remaining int64
		deadline  event.Time
		want      uint32
	}{
		{"no deadline", 300_000, 0, 256},
		// 30 segments of 1000 bytes per RTT of 1 ms: 300 kB take 10 ms.
		{"as much time as it takes", 300_000, 110 * ms, 256},
		{"a third of the time too little", 300_000, 100*ms + 7500*ms/1000, 341},
		{"half the time", 300_000, 105 * ms, 512},
		{"far too late", 300_000, 101 * ms, 512},
		{"overdue", 300_000, 90 * ms, 512},
		{"a quarter more time than it takes", 300_000, 100*ms + 12500*ms/1000, 204},
		{"plenty of time", 300_000, 1000 * ms, 128},
		{"nothing left", 0, 101 * ms, 256},
	} {
		s := Sample{Now: 100 * ms, SRTT: ms, MSS: 1000, Deadline: c.deadline, Remaining: c.remaining}
		if got := urgency(&w, &s); got != c.want {
			t.Errorf("%s: d = %d/256, want %d", c.name, got, c.want)
		}
	}
}

// The near flow keeps more of its window than the far one. Without a deadline the reduction is DCTCP's.
func TestD2TCPCuts(t *testing.T) {
	d := d2tcp{dctcp: dctcp{alpha: 256}}
	w := Window{Cwnd: 40}
	for _, c := range []struct {
		name     string
		deadline event.Time
		want     uint32
	}{
		{"far", 1000 * ms, 30}, // p = 1/2
		{"none", 0, 35},        // p = 1/4
		{"near", 101 * ms, 39}, // p = 1/16: 40 (1 - 1/32) = 38.75
	} {
		s := Sample{Now: 100 * ms, SRTT: ms, MSS: 1000, Deadline: c.deadline, Remaining: 300_000}
		if got := d.Ssthresh(&w, &s, CauseECE); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		if got := d.Ssthresh(&w, &s, CauseLoss); got != 20 {
			t.Errorf("%s: a loss leaves %d, want 20", c.name, got)
		}
	}
}
