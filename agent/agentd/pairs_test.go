package agentd

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/bus/weirv1"
	"weir/datapath/host"
	"weir/law"
	"weir/law/hygenicc"
	"weir/law/telemetry"
)

// The longest prefix that has an address counts, as in a plain search.
func TestRanges_LongestPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r ranges[int]
		list := map[netip.Prefix]int{}
		address := func(label string) netip.Addr {
			if rapid.Bool().Draw(t, label+" is IPv6") {
				return netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(rapid.IntRange(0, 15).Draw(t, label))})
			}
			return netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 15).Draw(t, label))})
		}
		for i := range rapid.IntRange(0, 12).Draw(t, "ranges") {
			a := address("range")
			p, err := a.Prefix(a.BitLen() - rapid.IntRange(0, 5).Draw(t, "host bits"))
			if err != nil {
				t.Fatal(err)
			}
			list[p] = i
			r.add(p, i)
		}
		a := address("asked")
		best, want, found := -1, 0, false
		for p, v := range list {
			if p.Contains(a) && p.Bits() > best {
				best, want, found = p.Bits(), v, true
			}
		}
		if got, ok := r.of(a); ok != found || got != want {
			t.Fatalf("%v: %d, %v, want %d, %v of %v", a, got, ok, want, found, list)
		}
	})
}

// However many pairs have marks, an agent sends at most 2000 messages a second, and no mark is lost: those that wait are added up.
func TestPairs_MessagesHaveALimit(t *testing.T) {
	const agents, rounds, step = 300, 400, time.Millisecond
	list := make([]Peer, agents)
	for i := range list {
		list[i] = Peer{Agent: "h" + string(rune('a'+i%26)) + string(rune('a'+i/26)), Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)}}
	}
	messages, marks := 0, map[string]uint64{}
	p := &pairs{log: slog.New(slog.DiscardHandler), owed: map[string]map[owedPair]uint64{}, budget: marksAtOnce,
		send: func(to string, m *weirv1.PairMarks) error {
			messages++
			for _, pair := range m.GetPairs() {
				marks[to] += pair.GetPackets()
			}
			return nil
		}}
	to := newPeers(list)
	for round := range rounds {
		var out []law.Action
		for i := range list {
			out = append(out, law.Grant{Kind: law.MarksGrant, Key: law.Key{Pair: law.Pair{VM: 1, Peer: list[i].Addresses[0].Addr()}}, Value: 2 * telemetry.OneMark})
		}
		out = append(out, law.Grant{Kind: law.MarksGrant, Key: law.Key{Pair: law.Pair{VM: 1, Peer: netip.AddrFrom4([4]byte{9})}}, Value: telemetry.OneMark})
		if nowhere, full := p.owe(out, to); nowhere != 1 || full != 0 {
			t.Fatalf("%d marks belong to no peer, %d are beyond the limit", nowhere, full)
		}
		p.flush(time.Duration(round+1) * step)
	}
	if most := marksAtOnce + marksMessages*rounds/1000 + 1; messages > most || messages < most-agents/2 {
		t.Errorf("%d messages in %v, want about %d", messages, rounds*step, most)
	}
	for second := 1; len(p.owed) > 0; second++ {
		p.flush(rounds*step + time.Duration(second)*time.Second)
	}
	for i := range list {
		if got := marks[list[i].Agent]; got != 2*rounds {
			t.Fatalf("agent %s got %d marks of %d", list[i].Agent, got, 2*rounds)
		}
	}
}

// Senders beyond number, while the bus is slow: the memory is bounded, what is beyond it is counted, and there is room again afterwards.
func TestPairs_WaitingHasALimit(t *testing.T) {
	p := &pairs{log: slog.New(slog.DiscardHandler), owed: map[string]map[owedPair]uint64{}, send: func(string, *weirv1.PairMarks) error { return nil }}
	to := newPeers([]Peer{{Agent: "h8", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}})
	marksFrom := func(first, n int) (full uint64) {
		var out []law.Action
		for i := first; i < first+n; i++ {
			from := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			out = append(out, law.Grant{Kind: law.MarksGrant, Key: law.Key{Pair: law.Pair{VM: 1, Peer: from}}, Value: 3 * telemetry.OneMark})
		}
		_, full = p.owe(out, to)
		return full
	}
	const beyond = 100
	if full := marksFrom(0, owedMost+beyond); full != 3*beyond || len(p.owed["h8"]) != owedMost {
		t.Errorf("%d marks beyond the limit, %d pairs wait: want %d and %d", full, len(p.owed["h8"]), 3*beyond, owedMost)
	}
	if full := marksFrom(0, beyond); full != 0 || p.owed["h8"][owedPair{netip.AddrFrom4([4]byte{10}), 1}] != 6 {
		t.Errorf("%d marks of pairs that wait already are refused", full)
	}
	for second := 1; len(p.owed) > 0; second++ {
		p.flush(time.Duration(second) * time.Second)
	}
	if full := marksFrom(owedMost, beyond); full != 0 || p.waits != beyond {
		t.Errorf("after all was sent: %d marks beyond the limit, %d pairs wait", full, p.waits)
	}
}

// Marks from forged sources take no place of the law, so that those of peers still go back.
func TestPairs_ForgedSources(t *testing.T) {
	spec := hygenicc.Spec()
	p, err := newPairs(&spec, spec.Params(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	to := newPeers([]Peer{{Agent: "h8", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}})
	const forged = 70_000 // more than the law has places
	for i := range forged {
		p.came = append(p.came, host.Came{VM: 1, Source: netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)}), Packets: 1})
	}
	out, marks, strange := p.step(time.Second, to)
	if len(out) != 0 || marks != forged || strange != forged {
		t.Errorf("%d actions, %d marks, %d of strangers", len(out), marks, strange)
	}
	p.came = []host.Came{{VM: 2, Source: netip.MustParseAddr("10.0.0.9"), Packets: 40}}
	if out, _, strange = p.step(time.Second, to); len(out) != 1 || strange != 0 {
		t.Errorf("%d actions for marks of a peer, %d of strangers", len(out), strange)
	}
}
