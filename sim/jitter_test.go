package sim

import (
	"math"
	"slices"
	"testing"

	"weir/law"
	"weir/sim/event"
)

// Two flows share a full buffer of 15 packets. Without jitter their shares depend on fractions of a packet's time by
// which one path is longer (Floyd and Jacobson 1992: phase effects). With a jitter of up to a packet's time they do
// not.
func TestHostJitter_EndsPhaseEffects(t *testing.T) {
	const packet = 1_230_400 // ns of 1538 bytes at 10 Mbit/s
	share := func(longer law.Duration, jitter event.Time) float64 {
		r := planned(t, baseWith("{name: long, from: \"sender*\", to: receiver1, pattern: bulk, stop: 2s}"), "duration=60s", "traffic.long.stop=60s",
			"topology.senders=2", "network.rate=10Mbit", "network.rtt=40ms", "network.buffer=15pkt", "guests.delayed_ack=false")[0]
		for i := range r.Config.Graph.Links {
			l := &r.Config.Graph.Links[i]
			if l.A == "sender2" || l.B == "sender2" {
				l.Delay += longer / 2 // there and back
			}
			if l.A != "receiver1" && l.B != "receiver1" {
				l.Rate *= 10
			}
		}
		s, err := build(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.net.DelayHosts(r.Seed, jitter); err != nil {
			t.Fatal(err)
		}
		s.traffic.begin()
		s.run(t.Context(), quiet{})
		bytes := map[string]int64{}
		for _, f := range s.traffic.results {
			bytes[f.Src] += f.Bytes
		}
		return float64(bytes["sender2"]) / float64(bytes["sender1"]+bytes["sender2"])
	}
	var shares, steps [2][]float64 // without and with; steps: from one path to the next
	for with, jitter := range []event.Time{0, packet} {
		for k := range law.Duration(11) {
			shares[with] = append(shares[with], share(k*packet/10, jitter))
			if k > 0 {
				steps[with] = append(steps[with], math.Abs(shares[with][k]-shares[with][k-1]))
			}
		}
	}
	t.Logf("without: %.2f, with: %.2f", shares[0], shares[1])
	within(t, "without jitter the largest step of a share", slices.Max(steps[0]), 0.2, 1)
	within(t, "with jitter the largest step of a share", slices.Max(steps[1]), 0, 0.1)
	within(t, "with jitter the largest share", slices.Max(shares[1]), 0.4, 0.7)
}
