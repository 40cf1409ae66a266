package traffic_test

import (
	"context"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	samples, err := traffic.Probe(ctx, n, "a", "b", 0, 2*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if most := int(time.Since(start)/(2*time.Millisecond)) + 1; len(samples) < 50 || len(samples) > most {
		t.Errorf("%d samples, one every 2 ms: want 50 to %d", len(samples), most)
	}
	for _, s := range samples {
		if s.RTT <= 0 {
			t.Errorf("the probe of %d came not back on an idle network", s.At)
		}
	}
}

func TestProbeRefusesNetstack(t *testing.T) {
	n := newMixedPair(t, 0, "b")
	if _, err := traffic.Probe(t.Context(), n, "a", "b", foreign, time.Millisecond); err == nil || !strings.Contains(err.Error(), "leave guests.stack at linux") {
		t.Errorf("error %v", err)
	}
}
