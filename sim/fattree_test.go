package sim

import (
	"strings"
	"testing"
)

// A fat tree of 16 pods has 1024 hosts. Flows between its halves use every core. The idle RTT is the one asked for: 100
// us are not divisible by 12, and the probe's 84 bytes are on a line twelve times.
func TestFatTreeOf16Pods(t *testing.T) {
	r := planned(t, `id: pods
duration: 1s
worlds: [sim]
topology: {kind: fat_tree, pods: 16}
network: {rate: 1Gbit, rtt: 100us, buffer: 125KB}
traffic: [{name: f, from: "rack1..64.server1", to: "rack65..128.server1", pattern: burst, size: 1KB}]
schemes: [{name: droptail}]
`)[0]
	s, err := build(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.warm(); err != nil || s.rtt != 100*us+12*672 {
		t.Errorf("an idle round trip of %v, %v", s.rtt, err)
	}
	s.begin()
	s.run(t.Context(), quiet{})
	raw, done := s.raw(false), 0
	for i := range raw.Flows {
		if raw.Flows[i].Done {
			done++
		}
	}
	if done != 64*64 {
		t.Errorf("%d flows were completed", done)
	}
	cores := map[string]bool{}
	for _, p := range s.net.Ports {
		if name := s.net.Name(p.Node); strings.HasPrefix(name, "core") && p.Counters().In.Packets > 0 {
			cores[name] = true
		}
	}
	if len(cores) != 64 {
		t.Errorf("%d of 64 cores were used", len(cores))
	}
}
