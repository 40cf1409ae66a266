//go:build cgo

package laws

import (
	"fmt"
	"testing"

	"weir/experiment"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
)

// by routes a connection's data over one spine, and its acknowledgements over another.
func (k *talk) by(data, acks int) *talk {
	k.b.t.Helper()
	for s, port := range []string{fmt.Sprintf("spine%d->leaf2", data), fmt.Sprintf("spine%d->leaf1", acks)} {
		p, pk := k.b.net.PortByName(port), k.segment(s, network.ACK, 0, 0)
		for pk.SetHash(0); p.CameInBy(pk) == nil; pk.SetHash(pk.Hash() + 1) {
			if pk.Hash() > 10_000 {
				k.b.t.Fatalf("nothing goes by %s", port)
			}
		}
		k.hash[s] = pk.Hash()
		k.b.net.Free(pk)
	}
	return k
}

// The acknowledgements of a flow take another spine than its data. `paths` limits them to a part of the window of the
// port that they came in by. Over all paths the parts add up to the port's window, 25000. Undivided, each part is the
// whole window. Without `paths` the ACKs pass and count as unknown. By hand; the kernel's rule is in ecmp.h.
func TestFairQ_EqualPaths(t *testing.T) {
	const spines = 4
	for what, c := range map[string]struct {
		edit func(p *fairq.Params)
		sum  int
	}{
		"divided":         {func(p *fairq.Params) { p.Paths = spines }, 25_000},
		"undivided":       {func(p *fairq.Params) { p.Paths, p.Undivided = spines, true }, spines * 25_000},
		"one path":        {func(p *fairq.Params) {}, spines * 60_000},
		"a floor of 8 KB": {func(p *fairq.Params) { p.Paths, p.MinWindow = spines, 8000 }, spines * 8000},
		// The SYN-ACK alone enters the connection in the table, and the port of the data is not known.
		"count: handshake": {func(p *fairq.Params) { p.Paths, p.Count = spines, "handshake" }, spines * 60_000},
	} {
		p := fairQDefaults()
		c.edit(&p)
		b := newBedOn(t, experiment.Topology{Kind: "leaf_spine", Leaves: 2, Spines: spines, Servers: 1}, p, "spine1", "spine2", "spine3", "spine4")
		from, to := "rack1.server1", "rack2.server1"
		var whole [spines]*talk
		for i := range spines { // at each, a flow that has both its data and its ACKs there
			whole[i] = b.talk(int32(i), from, to).by(i+1, i+1)
			whole[i].scale = [2]int8{}
			whole[i].opens()
			b.expect(what+": seen whole", whole[i].window(1), 25_000)
		}
		sum := 0
		for i := range spines {
			k := b.talk(int32(10+i), from, to).by(i+1, (i+1)%spines+1)
			k.scale = [2]int8{}
			if _, ack := k.opens(); ack != 60_000 {
				t.Errorf("%s: the opener's scale is not known for certain, and its ACK was limited to %d", what, ack)
			}
			sum += int(k.window(1))
			b.expect(what+": seen whole, next to them", whole[i].window(1), 25_000)
		}
		if sum != c.sum {
			t.Errorf("%s: the parts are %d together, want %d", what, sum, c.sum)
		}
		if n := b.tally(); (n[fairq.Unknown] > uint64(spines)) != (what == "one path") {
			t.Errorf("%s: %d unknown: the openers' %d, and without paths the others", what, n[fairq.Unknown], spines)
		}
		b.wait(30 * event.Millisecond)
		k := b.talk(10, from, to).by(1, 2)
		b.expect(what+": the twin has no flows", k.window(1), 60_000)
	}
}
