package sim

import (
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment/claim"
	"weir/experiment/result"
)

// starved is G1's RED under three UDP senders that each fill the link. With its initial RTO TCP gives up a SYN within
// 40 ms, so the tagged flow has no connection.
const starved = `
id: starved
duration: 100ms
worlds: [sim]
topology: {kind: dumbbell, senders: 4, receivers: 1, hypervisors: false}
network: {rate: 1Gbit, rtt: 100us, buffer: 100pkt}
guests: {cc: reno, ecn: false, initial_rto: 300us}
traffic:
  - {name: tagged, from: sender1, to: receiver1, pattern: bulk, start: 10ms, stop: 100ms}
  - {name: competitors, from: "sender2..", to: receiver1, proto: udp, pattern: cbr, rate: 1Gbit, start: 0s, stop: 100ms}
schemes: [{name: red, params: {threshold: 20pkt}}]
measure: {windows: {late: [20ms, 100ms]}}
`

// A claim about a group without any connection is undecided; a claim about other groups is decided.
func TestNeverConnected_LeavesClaimsUndecided(t *testing.T) {
	r := planned(t, starved)[0]
	out := result.Build(r.Info(), ran(t, &World{Laws: laws.Sim()}, r))
	if n := out.Groups["tagged"].NeverConnected; n == nil || *n != 1 {
		t.Fatalf("never connected: %v, want 1", n)
	}
	if n := out.Groups["competitors"].NeverConnected; n != nil {
		t.Errorf("UDP never connected: %d, want it absent", *n)
	}
	doc := &result.Document{Experiment: "starved", Runs: []*result.Run{out}}
	for text, undecided := range map[string]bool{
		"red.tagged.throughput_mbps < 200": true, "red.late.tagged.throughput_mbps < 200": true, "red.competitors.throughput_mbps > 900": false,
	} {
		d := claim.Decide([]claim.Statement{{Claim: text}}, doc, nil)[0]
		if d.Undecided != undecided || (d.Holds == nil) != undecided {
			t.Errorf("%s: %+v", text, d)
		}
	}
}

// A request that waits behind another one on an open connection until the run ends is unfinished, and nothing more: its
// connection opened, the group's timeouts are known, and it has no goodput.
func TestNeverConnected_NotOfRequestsThatWait(t *testing.T) {
	// Each answer takes 8 ms, so at the end the first flow is done, the second runs and the others wait.
	r := planned(t, baseWith("{name: x, from: sender1, to: receiver1, pattern: burst, size: 100KB, every: 1ms, epochs: 5, connection: persistent}"), "duration=15ms")[0]
	g := result.Build(r.Info(), ran(t, &World{Laws: laws.Sim()}, r)).Groups["x"]
	if g.Flows != 5 || g.Unfinished != 4 || g.NeverConnected == nil || *g.NeverConnected != 0 {
		t.Errorf("%d flows, %d unfinished, never connected %v; want 5, 4 and 0", g.Flows, g.Unfinished, g.NeverConnected)
	}
	if g.Timeouts == nil || g.FLoss == nil || g.OutOfOrder == nil {
		t.Errorf("timeouts %v, by cause %v, out of order %v: want them known", g.Timeouts, g.FLoss, g.OutOfOrder)
	}
	if g.Goodput == nil || g.Goodput.N != 2 || g.Live == nil || g.Live.Max != 1 {
		t.Errorf("goodput %+v, live %+v; want goodput of two flows, one at a time", g.Goodput, g.Live)
	}
}

// A group whose members all connect has none that never did, on new connections and on persistent ones.
func TestNeverConnected_None(t *testing.T) {
	for _, traffic := range []string{
		"{name: x, from: sender1, to: receiver1, pattern: burst, size: 20KB, every: 10ms, epochs: 3}",
		"{name: x, from: sender1, to: receiver1, data: pull, pattern: burst, size: 20KB, every: 10ms, epochs: 3, connection: persistent}",
		"{name: x, from: sender1, to: receiver1, pattern: closed_loop, size: 20KB, requests: 5}",
		"{name: x, from: sender1, to: receiver1, pattern: bulk, stop: 20ms}",
	} {
		for _, f := range carriedOut(t, baseWith(traffic)).Flows {
			if f.Opening != result.Opened {
				t.Errorf("%s: flow %d: opening %d, want %d", traffic, f.Epoch, f.Opening, result.Opened)
			}
		}
	}
}
