//go:build cgo

package sim

import (
	"fmt"
	"testing"

	"weir/sim/event"
	"weir/sim/tcp"
)

// The bottleneck that equal flows share: 200 Mbit/s and 10 ms are 163 segments, and the buffer has room for 60 more. 32
// flows then have windows of 7 segments. 2 flows have windows of 110, whose sawtooth takes less than a second.
const (
	shareLimit = 60
	shareWarm  = 3 * event.Second
	shareTime  = 10 * event.Second
)

// shared returns Jain's index of the throughput of n flows that began at random within a second, and the used share of
// the line.
func shared(t *testing.T, n int, scheme, buffer string, cfg *tcp.Config) (jain, used float64) {
	t.Helper()
	b, port := markedBed(t, n, "RATE", "200Mbit", "ACCESS", "800Mbit", "RTT", "10ms", "BUFFER", buffer, "SCHEME", scheme)
	r := event.NewRandom(1, "starts")
	flows := make([]*bulk, n)
	for i := range flows {
		b.later(event.Time(r.Int64N(int64(event.Second))), func() {
			flows[i] = b.begin(fmt.Sprintf("sender%d", i+1), "receiver1", cfg, endlessBytes)
		})
	}
	b.queue.Run(shareWarm)
	before := make([]int64, n)
	for i, f := range flows {
		before[i] = f.received
	}
	sent := port.Counters().Sent.Packets
	end := shareWarm + event.Time(*longer)*shareTime
	b.queue.Run(end)
	sum, squares := 0.0, 0.0
	for i, f := range flows {
		x := float64(f.received - before[i])
		if x == 0 {
			t.Errorf("%s: flow %d of %d stands", scheme, i+1, n)
		}
		sum, squares = sum+x, squares+x*x
	}
	used = float64(port.Counters().Sent.Packets-sent) * fullLine * 8 * 1e9 / float64(port.Rate) / float64(end-shareWarm)
	return sum * sum / squares / float64(n), used
}

// Equal flows get equal shares (Chiu and Jain 1989: additive increase, multiplicative decrease) if all get the
// congestion signal at the same time: above a threshold every packet that arrives within an RTT is marked. The rest of
// the difference has two causes: flows are an RTT apart, and have only 3 s to converge, about four sawtooths of two
// flows. The bound is 0.95.
func TestResponse_EqualFlowsAreFairWhereMarked(t *testing.T) {
	t.Parallel()
	scheme := fmt.Sprintf("{name: ecn, params: {threshold: %dpkt}}", shareLimit)
	for _, control := range []string{"reno", "cubic", "dctcp"} {
		for _, n := range []int{2, 4, 16, 32} {
			cfg := tcp.Default(control)
			cfg.ECN = true
			jain, used := shared(t, n, scheme, "1MB", cfg)
			t.Logf("ecn, %-5s %2d flows: Jain %.4f, line used %.3f", control, n, jain, used)
			if !(jain >= 0.95) {
				t.Errorf("ecn, %s, %d flows: Jain's index is %.4f, want 0.95 or more", control, n, jain)
			}
		}
	}
}

// If the same limit drops, the order of arrival decides which flow loses. Flows with the same RTT keep their order for
// a while (phase effects: Floyd and Jacobson 1992). `red` is a limit too, and not random. There is no law for such
// shares, so the figures are only logged. Every flow must progress, and the line must be used.
func TestResponse_SharesOfLossesAreReported(t *testing.T) {
	t.Parallel()
	for _, s := range []struct{ name, scheme, buffer string }{
		{"droptail", "{name: droptail}", fmt.Sprintf("%dpkt", shareLimit)},
		{"red", fmt.Sprintf("{name: red, params: {threshold: %dpkt}}", shareLimit), "1MB"},
	} {
		for _, control := range []string{"reno", "cubic"} {
			for _, n := range []int{4, 32} {
				jain, used := shared(t, n, s.scheme, s.buffer, tcp.Default(control))
				t.Logf("%-8s %-5s %2d flows: Jain %.4f, line used %.3f", s.name, control, n, jain, used)
				if !(used > 0.85) {
					t.Errorf("%s, %s, %d flows: %.3f of the line is used, want 0.85", s.name, control, n, used)
				}
			}
		}
	}
}
