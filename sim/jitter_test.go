package sim

import (
	"maps"
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

// Three racks of seven servers, as in SR1, send to a fourth by uplinks of the bottleneck's rate. One rack then keeps its uplink full, and each of its packets finds
// the place that the one before has left: port blackout (Prakash et al., NSDI 2012). Late hosts do not help, because the uplink sends at
// regular times whatever its hosts do. Late switches do: each rack has about a third.
func TestSwitchJitter_EndsPortBlackout(t *testing.T) {
	largest := func(lateSwitches bool) float64 {
		r := planned(t, baseWith("{name: long, from: \"sender*\", to: receiver1, pattern: bulk, stop: 2s}"),
			"traffic.long.from=rack1..3.server*", "traffic.long.to=rack4.server*", "traffic.long.pair=same_index", "topology={kind: racks, racks: 4, servers: 7, hypervisors: false}", "network.rate=200Mbit",
			"duration=5s", "traffic.long.stop=5s", "network.rtt=26us", "network.buffer=85KB",
			"guests.cc=cubic", "measure.ports={bottleneck: core->tor4}")[0]
		s, err := build(r)
		if err != nil {
			t.Fatal(err)
		}
		frame := slowestFrame(&r.Config)
		if err := s.net.DelayHosts(r.Seed, frame); err != nil {
			t.Fatal(err)
		}
		if lateSwitches {
			if err := s.net.DelaySwitches(r.Seed, frame); err != nil {
				t.Fatal(err)
			}
		}
		s.begin()
		s.run(t.Context(), quiet{})
		racks, all := map[string]int64{}, int64(0)
		for _, f := range s.traffic.results {
			racks[f.Src[:len("rack1")]] += f.Bytes
			all += f.Bytes
		}
		return float64(slices.Max(slices.Collect(maps.Values(racks)))) / float64(all)
	}
	within(t, "the largest share of a rack with late hosts", largest(false), 0.8, 1)
	within(t, "the largest share of a rack with late switches, too", largest(true), 1./3, 0.4)
}
