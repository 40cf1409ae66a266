package sim

import (
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
)

// The full errors of the simulator for files that it cannot run: what is wrong, and what to do. They come before
// anything is built.
func TestBadFiles(t *testing.T) {
	const bulk = `{name: long, from: "sender*", to: receiver1, pattern: bulk}`
	for _, c := range []struct{ name, old, new, want string }{
		{"a flow to nowhere", "to: receiver1", "to: receiver2", `bad.yaml:9: traffic.long.to: "receiver2" matches no guest; the guests are sender1..4, receiver1`},
		{"a flow to a switch", "to: receiver1", "to: switch", `bad.yaml:9: traffic.long.to: "switch" matches no guest; the guests are sender1..4, receiver1`},
		{"a flow to itself", `"sender*"`, "receiver1", "bad.yaml:9: traffic.long.pair: pair: all leaves no pair of receiver1 and receiver1; endpoints that differ and are paired"},
		{"a buffer under one packet", "60KB", "1513B", "bad.yaml:6: network.buffer: a buffer of 1513B is smaller than a full frame; at least 1514B or 1pkt"},
		{"a buffer of no packets", "60KB", "0pkt", "bad.yaml:6: network.buffer: a buffer of 0pkt is smaller than a full frame; at least 1514B or 1pkt"},
		{"one link's buffer", "hypervisors: false", `hypervisors: false, links: [{between: [switch, receiver1], buffer: 1KB}]`,
			"bad.yaml:5: topology.links.0.buffer: a buffer of 1KB is smaller than a full frame; at least 1514B or 1pkt"},
		{"rate 0", "100Mbit", "0Mbit", "bad.yaml:6: network.rate: 0 is not a rate; above 0kbit"},
		{"one link's rate 0", "hypervisors: false", `hypervisors: false, links: [{between: [switch, receiver1], rate: 0kbit}]`,
			"bad.yaml:5: topology.links.0.rate: 0 is not a rate; above 0kbit"},
		{"a rate that overflows", "100Mbit", "99999999Gbit", `bad.yaml:6: network.rate: rate "99999999Gbit" is too large; at most 9007199Gbit`},
		{"a million hosts", "dumbbell, senders: 4, receivers: 1, hypervisors: false", "racks, racks: 100, servers: 250, vms: 40",
			"bad.yaml:5: topology: it has 1025101 nodes, 101 of them switches; at most 60000 nodes and 1500 switches: fewer servers, fewer VMs, or no hypervisors"},
		{"odd pods", "dumbbell, senders: 4, receivers: 1", "fat_tree, pods: 5", "bad.yaml:5: topology.pods: 5 is odd, but half of a switch's ports must lead up; an even number of pods"},
		{"too many pods", "dumbbell, senders: 4, receivers: 1", "fat_tree, pods: 48", `bad.yaml:5: topology.pods: "48" is out of range; at least 2 and at most 32`},
		{"pods and servers", "dumbbell, senders: 4, receivers: 1", "fat_tree, pods: 4, servers: 2",
			"bad.yaml:5: topology.servers: a fat_tree of pods has no servers; fat_tree has cores, aggs, tors, servers, or pods alone"},
		{"no round trip", "rtt: 400us", "rtt: 0s", "bad.yaml:6: network.rtt: 0 is not a round trip; above 0s"},
		{"a round trip of minutes", "rtt: 400us", "rtt: 300s", "bad.yaml:6: network.rtt: 300s is out of range; at most 100s"},
		{"a thousand years", "duration: 2s", "duration: 31557600000s", `bad.yaml:2: duration: duration "31557600000s" is too large; at most 9007199s`},
		{"a month in steps of 10 ms", "duration: 2s", "duration: 2629800s",
			"bad.yaml:11: measure.series: 2629800s has 262980000 steps of 10ms; at most 1000000: a longer step, or a shorter duration"},
		{"a size that overflows", "pattern: bulk", "pattern: bulk, size: 9007199255MB", `bad.yaml:9: traffic.long.size: size "9007199255MB" is too large; at most 9007199254MB`},
		{"a size of nothing", "pattern: bulk", "pattern: bulk, size: 0B", "bad.yaml:9: traffic.long.size: 0 is not a size; at least 1B"},
		{"flows beyond memory", bulk, `{name: f, from: sender1, to: receiver1, pattern: burst, size: 1B, every: 100ns}`,
			"traffic f: the run has 5000001 flows, more than the limit of 5000000: lower count or epochs"},
		{"arrivals beyond memory", bulk, "{name: f, from: sender1, to: receiver1, pattern: poisson, size: 1B, load: 2}",
			"traffic f: the run has 50028285 flows, more than the limit of 5000000: lower load or duration"},
		{"requests beyond memory", bulk, `{name: f, from: "sender*", to: receiver1, pattern: closed_loop, size: 1KB, requests: 1000000, every: 1s}`,
			"traffic f: the run has 8000000 flows, more than the limit of 5000000: lower requests or epochs"},
		{"another kernel's TCP", "cc: reno", "cc: bbr", "scheme droptail: traffic long: guests.cc bbr: the simulator does not have it; use reno, newreno, sack, cubic, dctcp or d2tcp, or the lab"},
		{"another TCP", "cc: reno", "stack: netstack", "scheme droptail: traffic long: guests.stack netstack: the simulator's TCP is Linux's; other stacks run in the lab"},
	} {
		text := baseWith(bulk)
		if !strings.Contains(text, c.old) {
			t.Fatalf("%s: the file has no %q", c.name, c.old)
		}
		if err := refused(strings.Replace(text, c.old, c.new, 1)); err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
	}
}

// refused returns the error for a file, before it is run.
func refused(text string) error {
	f, err := laws.All().Parse("bad.yaml", []byte(text))
	if err != nil {
		return err
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}})
	if err != nil {
		return err
	}
	return (&World{Laws: laws.Sim()}).Check(p.Runs[0])
}

// A limit that is exceeded only during a run stops it, with an equally clear error.
func TestRun_EndsAtItsLimits(t *testing.T) {
	for _, c := range []struct {
		traffic string
		narrow  func(s *simulation)
		want    string
	}{
		{`{name: f, from: "sender*", to: receiver1, pattern: burst, size: 100KB, count: 50}`, func(s *simulation) { s.traffic.mostOpen = 100 },
			"traffic f: more than 100 connections are open at a time: give it fewer flows, or flows that end sooner"},
		{`{name: f, from: "sender*", to: receiver1, pattern: bulk, size: 10MB}`, func(s *simulation) { s.traffic.mostBins = 50 },
			"traffic f: the rates of the run's flows have more than 50 steps: take a longer measure.series (it is 10ms), or fewer flows"},
		{`{name: f, from: "sender*", to: receiver1, pattern: bulk}`, func(s *simulation) { s.mostPackets = 20 },
			"more than 20 packets are in the network: take smaller buffers, lower rates, or fewer flows at a time"},
	} {
		s, err := build(planned(t, baseWith(c.traffic))[0])
		if err != nil {
			t.Fatal(err)
		}
		c.narrow(s)
		s.traffic.begin()
		s.run(t.Context(), quiet{})
		if err := s.traffic.broken; err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// A start beyond the range of the clock never happens, even if the sum overflows. Flows that start within the run do so
// at their time, and no others start.
func TestPlan_StartsBeyondTheClock(t *testing.T) {
	for _, c := range []struct {
		traffic string
		want    int
	}{
		{`{name: f, from: sender1, to: receiver1, pattern: poisson, size: 9000000000MB, load: 1.0e-300}`, 0},
		{`{name: f, from: "sender*", to: receiver1, pattern: burst, size: 1KB, count: 1000, gap: 9000000s}`, 1},
	} {
		raw := carriedOut(t, baseWith(c.traffic))
		if len(raw.Flows) != c.want {
			t.Errorf("%s: %d flows, want %d", c.traffic, len(raw.Flows), c.want)
		}
		for _, f := range raw.Flows {
			if f.Start < 0 || f.Start > time.Millisecond || !f.Done {
				t.Errorf("a flow starts at %v, done: %v", f.Start, f.Done)
			}
		}
	}
}
