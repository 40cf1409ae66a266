package sim

import (
	"fmt"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment/result"
)

// A flow that has the network to itself, and a window large enough for all of it, has a slowdown of 1. The ideal is a
// lower bound; options, the last ACK of the handshake and the 64 bytes of a request add a little.
func TestSlowdown_OfAFlowAloneIsOne(t *testing.T) {
	for name, topology := range map[string]string{
		"dumbbell":    "topology={kind: dumbbell, senders: 2, receivers: 1, hypervisors: false}",
		"hypervisors": "topology={kind: dumbbell, senders: 2, receivers: 1, hypervisors: true}",
		"slow middle": "topology={kind: dumbbell, senders: 2, receivers: 2, hypervisors: false, links: [{between: [left, right], rate: 30Mbit}]}",
		"slow end":    `topology={kind: dumbbell, senders: 2, receivers: 2, hypervisors: false, links: [{between: ["receiver*", right], rate: 30Mbit}]}`,
		"fast middle": "topology={kind: dumbbell, senders: 2, receivers: 2, hypervisors: false, links: [{between: [left, right], rate: 1Gbit}]}",
	} {
		for _, size := range []int{1, 100, 1448, 1449, 5000, 100_000, 1_000_000} {
			for _, data := range []string{"push", "pull"} {
				flow := fmt.Sprintf("{name: f, from: sender1, to: receiver1, pattern: burst, size: %dB, data: %s}", size, data)
				r := planned(t, baseWith(flow), topology, "guests.initial_window=1000", "network.buffer=4MB", "measure.ports={}")[0]
				built := result.Build(r.Info(), ran(t, &World{Laws: laws.Sim()}, r))
				most := 1.05
				if size < 5000 { // otherwise the request and the options of the SYNs count for more
					most = 1.12
				}
				got, ok := built.Metric([]string{"f", "slowdown", "max"})
				if !ok || got < 0.999 || got > most {
					t.Errorf("%s, %d bytes, %s: slowdown %v (known: %v), want 1", name, size, data, got, ok)
				}
			}
		}
	}
}

// An open connection needs no handshake, and two flows that share a line take twice as long.
func TestSlowdown_CountsWhatAFlowWaitsFor(t *testing.T) {
	slowdown := func(traffic string) float64 {
		r := planned(t, baseWith(traffic), "guests.initial_window=1000", "network.buffer=4MB")[0]
		got, _ := result.Build(r.Info(), ran(t, &World{Laws: laws.Sim()}, r)).Metric([]string{"f", "slowdown", "max"})
		return got
	}
	within(t, "on a connection", slowdown("{name: f, from: sender1, to: receiver1, pattern: burst, size: 100B, connection: persistent, start: 1s}"), 0.999, 1.03)
	within(t, "two of 1 MB", slowdown("{name: f, from: sender1..2, to: receiver1, pattern: burst, size: 1MB}"), 1.9, 2.03)
}
