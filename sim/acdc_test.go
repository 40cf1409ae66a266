//go:build cgo

package sim

import (
	"fmt"
	"strings"
	"testing"

	"weir/experiment/result"
)

// carried returns the rate of all flows of a run in Mbit/s, and Jain's index.
func carried(raw *result.Raw) (rate, jain float64) {
	sum, squares := 0.0, 0.0
	for i := range raw.Flows {
		x := float64(raw.Flows[i].Bytes) * 8 / raw.Duration.Seconds() / 1e6
		sum += x
		squares += x * x
	}
	return sum, sum * sum / squares / float64(len(raw.Flows))
}

// The paper's claim is that AC/DC "closely tracks" DCTCP with any TCP in the guests. The test's bounds were set before
// the first run. The mean queue is within a quarter of that of DCTCP guests at the same switch, and between 0.5 and 1.5
// thresholds. The goodput is equal within 3 %, shares are as even (Jain's index of 0.95), and there is no loss. It runs
// guests with and without ECN, three seeds, and with hypervisors.
func TestACDC_TracksDCTCP(t *testing.T) {
	const k = 30_000
	for seed := 1; seed <= 4; seed++ {
		also := []string{"network.buffer=250KB", fmt.Sprintf("seeds=[%d]", seed), fmt.Sprintf("topology.hypervisors=%v", seed == 4)}
		ref := carriedOut(t, baseWith(longFlows), append(also, "guests.cc=dctcp", "guests.ecn=true", "schemes=[{name: ecn, params: {threshold: 30KB}}]")...)
		wantQueue, _ := settled(ref)
		wantRate, _ := carried(ref)
		for _, guests := range []string{"reno", "cubic", "newreno", "sack", "reno, ecn: true", "cubic, ecn: true", "dctcp, ecn: true"} {
			raw := carriedOut(t, baseWith(longFlows), append(also, "schemes=[{name: acdc, guests: {cc: "+guests+"}, params: {threshold: 30KB}}]")...)
			queue, marks := settled(raw)
			rate, jain := carried(raw)
			what := fmt.Sprintf("%s, seed %d: ", guests, seed)
			t.Logf("%squeue %.0f of %.0f, %.2f of %.2f Mbit/s, Jain %.3f, %d marks", what, queue, wantQueue, rate, wantRate, jain, marks)
			within(t, what+"queue over DCTCP's", queue/wantQueue, 0.75, 1.25)
			within(t, what+"queue over the threshold", queue/k, 0.5, 1.5)
			within(t, what+"goodput over DCTCP's", rate/wantRate, 0.97, 1.03)
			within(t, what+"Jain's index", jain, 0.95, 1)
			all, _ := raw.LawTotal("acks")
			rewritten, _ := raw.LawTotal("acks_rewritten")
			if len(raw.Drops) > 0 || marks == 0 || len(raw.Unmet) > 0 || all == 0 || rewritten*10 < all*9 {
				t.Errorf("%s%d drops, %d marks, acknowledgements %+v, %q", what, len(raw.Drops), marks, raw.LawTotals, raw.Unmet)
			}
		}
	}
}

// If a fair window is below two segments, DCTCP's least, its queue stays above the threshold. AC/DC's window goes down
// to one segment, as the paper says. Sixteen windows of two segments are 43 KB above the capacity of the path, of one
// segment 18 KB. Such windows have one full segment and a part: a cut can leave a guest waiting for a delayed ACK of 40
// ms. Without delayed ACKs shares are even.
func TestACDC_WindowsBelowTwoSegments(t *testing.T) {
	many := strings.Replace(baseWith(longFlows), "senders: 4", "senders: 16", 1)
	for seed := 1; seed <= 3; seed++ {
		also := []string{"network.buffer=250KB", fmt.Sprintf("seeds=[%d]", seed)}
		ref := carriedOut(t, many, append(also, "guests.cc=dctcp", "schemes=[{name: ecn, params: {threshold: 25KB}}]")...)
		raw := carriedOut(t, many, append(also, "guests.cc=cubic", "schemes=[{name: acdc, params: {threshold: 25KB}}]")...)
		above, _ := settled(ref)
		queue, _ := settled(raw)
		wantRate, _ := carried(ref)
		rate, jain := carried(raw)
		_, even := carried(carriedOut(t, many, append(also, "guests.cc=cubic", "guests.delayed_ack=false", "schemes=[{name: acdc, params: {threshold: 25KB}}]")...))
		t.Logf("seed %d: queue %.0f, DCTCP's %.0f; %.2f of %.2f Mbit/s, Jain %.3f, without delayed ACKs %.3f", seed, queue, above, rate, wantRate, jain, even)
		within(t, "queue of DCTCP, KB", above/1e3, 35, 50)
		within(t, "queue of AC/DC, KB", queue/1e3, 18, 31)
		within(t, "goodput over DCTCP's", rate/wantRate, 0.9, 1.03)
		within(t, "Jain's index without delayed ACKs", even, 0.95, 1)
	}
}

// AC/DC has no law for UDP, because a UDP guest has no window. UDP passes, and is dropped as without AC/DC if it fills
// the queue far above the threshold.
func TestACDC_UDPPasses(t *testing.T) {
	const k = 30_000
	udp := baseWith("{name: u, from: \"sender*\", to: receiver1, pattern: cbr, proto: udp, rate: 30Mbit, stop: 2s}")
	without := carriedOut(t, udp)
	with := carriedOut(t, udp, "schemes=[{name: acdc, params: {threshold: 30KB}}]")
	if queue, marks := settled(with); queue < 1.5*k || marks != 0 || len(with.Drops) == 0 {
		t.Errorf("a queue of %.0f bytes, %d marks, %d drops: the law was not put to the test", queue, marks, len(with.Drops))
	}
	with.LawTotals = nil
	if a, b := Digest(with), Digest(without); a != b {
		t.Errorf("UDP alone came out as %s with AC/DC and as %s without", a, b)
	}
}
