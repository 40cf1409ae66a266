package traffic_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/lab/traffic"
)

func TestRTT(t *testing.T) {
	everyTCP(t, 0, func(t *testing.T, n *pairNet) {
		rtt, err := traffic.RTT(t.Context(), n, "a", "b", n.profile())
		if err != nil || rtt <= 0 {
			t.Errorf("round trip %v, error %v", rtt, err)
		}
	})
}

func TestRTTWithoutAnAnswerEnds(t *testing.T) {
	everyTCP(t, 0, func(t *testing.T, n *pairNet) {
		deafen(t, n)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if rtt, err := traffic.RTT(ctx, n, "a", "b", n.profile()); err == nil || !strings.Contains(err.Error(), "round trip a-b") {
			t.Errorf("round trip %v, error %v", rtt, err)
		}
	})
}

func TestProbe(t *testing.T) {
	n := newPair(t, 0)
	const every, wanted, rounds = 2 * time.Millisecond, 50, 20
	answered := 0
	for round := 1; answered < wanted; round++ { // a machine that delays this process sends few
		if round > rounds {
			t.Fatalf("%d probes came back in %d rounds, want %d", answered, rounds, wanted)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		start := time.Now()
		samples, err := traffic.Probe(ctx, n, "a", "b", 0, every)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if most := int(time.Since(start)/every) + 1; len(samples) > most {
			t.Errorf("%d samples, one every %v: want %d at most", len(samples), every, most)
		}
		// Probe waits 300 ms for the last answers, and the machine may delay them longer. But if the answer to a
		// much later probe came, none may be missing.
		last := slices.IndexFunc(samples, func(s traffic.Sample) bool { return s.RTT <= 0 })
		if last < 0 {
			last = len(samples)
		}
		for _, s := range samples[last:] {
			if s.RTT > 0 && s.At-samples[last].At > int64(300*time.Millisecond) {
				t.Errorf("the probe of %d came back, and that of %d did not, on an idle network", s.At, samples[last].At)
				break
			}
		}
		answered += last
	}
}

func TestProbeRefusesNetstack(t *testing.T) {
	n := newMixedPair(t, 0, "b")
	if _, err := traffic.Probe(t.Context(), n, "a", "b", foreign, time.Millisecond); err == nil || !strings.Contains(err.Error(), "set guests.stack to linux") {
		t.Errorf("error %v", err)
	}
}
