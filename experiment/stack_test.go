package experiment

import (
	"strings"
	"testing"
)

// The stack comes from the traffic item, then the scheme, vary, and guests, in this order; the receiving side's
// stack follows the same rule. Items with the same settings share a profile.
func TestStacksOfGuests(t *testing.T) {
	for _, c := range []struct {
		guests, scheme, item string
		set                  []string
		long, short          [2]string // stack and to_stack of the items
		profiles             int
	}{
		{guests: "cc: reno", long: [2]string{"linux", ""}, short: [2]string{"linux", ""}, profiles: 1},
		{guests: "stack: netstack", long: [2]string{"netstack", ""}, short: [2]string{"netstack", ""}, profiles: 1},
		{guests: "stack: netstack", item: ", stack: linux", long: [2]string{"netstack", ""}, short: [2]string{"linux", ""}, profiles: 2},
		{guests: "cc: reno", scheme: "stack: netstack", long: [2]string{"netstack", ""}, short: [2]string{"netstack", ""}, profiles: 1},
		{guests: "to_stack: netstack", scheme: "to_stack: linux", long: [2]string{"linux", "linux"}, short: [2]string{"linux", "linux"}, profiles: 1},
		{guests: "cc: reno", item: ", to_stack: netstack", long: [2]string{"linux", ""}, short: [2]string{"linux", "netstack"}, profiles: 2},
		// The same setting, written in two ways.
		{guests: "cc: reno", item: ", to_stack: linux", long: [2]string{"linux", ""}, profiles: 1},
		{guests: "cc: reno", set: []string{"guests.stack=netstack", "guests.to_stack=linux"}, long: [2]string{"netstack", "linux"}, short: [2]string{"netstack", "linux"}, profiles: 1},
	} {
		scheme := "{name: droptail}"
		if c.scheme != "" {
			scheme = "{name: droptail, guests: {" + c.scheme + "}}"
		}
		text := `id: stacks
paper: "own"
worlds: [lab]
duration: 1s
topology: {kind: dumbbell, senders: 2, receivers: 1, hypervisors: false}
network: {rate: 100Mbit, rtt: 200us, buffer: 125KB}
guests: {` + c.guests + `}
traffic:
  - {name: long, from: sender1, to: receiver1, pattern: bulk}
  - {name: short, from: sender2, to: receiver1, pattern: burst, size: 1KB` + c.item + `}
schemes: [` + scheme + `]
`
		f, err := testLaws.Parse("stacks.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		p, err := f.Plan(Options{Worlds: []string{"lab"}, Set: c.set})
		if err != nil {
			t.Fatal(err)
		}
		cfg := p.Runs[0].Config
		if len(cfg.Profiles) != c.profiles {
			t.Errorf("%+v: %d profiles, want %d", c, len(cfg.Profiles), c.profiles)
		}
		for i, want := range [][2]string{c.long, c.short} {
			g := cfg.Profiles[cfg.Items[i].Profile]
			if c.profiles == 1 && i == 1 && want == [2]string{} {
				continue // it has the first one's, written differently
			}
			if got := [2]string{g.Stack, g.ToStack}; got != want {
				t.Errorf("%+v: %s has %v, want %v", c, cfg.Items[i].Name, got, want)
			}
		}
	}
	_, err := testLaws.Parse("stacks.yaml", []byte("id: x\nguests: {to_stack: lwip}\n"))
	if err == nil || !strings.Contains(err.Error(), `guests.to_stack: "lwip" is not known; allowed: linux, netstack`) {
		t.Errorf("a stack that nobody has: %v", err)
	}
}
