package sicc

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"weir/law"
	"weir/law/telemetry"
)

// peer is the n-th address that a VM that floods sends to.
func peer(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)}) }

// floods reports a millisecond of 200,000 SYNs a second at port 1, each to another address. An agent lists at most 64 pairs, 8 of
// each source, the last of which has the source's further ones.
func (s *script) floods(from func(i int) netip.Addr) *telemetry.Arrivals {
	const n = 200
	a := telemetry.PortArrivals{N: 1, Counts: telemetry.Counts{SYN: n}}
	for i := range n {
		p := telemetry.Pair{Source: from(i), Destination: peer(int(s.now/ms)*n + i)}
		of := slices.DeleteFunc(slices.Clone(a.Pairs), func(o telemetry.Pair) bool { return o.Source != p.Source })
		switch {
		case len(of) == telemetry.MaxSourcePairs:
			last := of[len(of)-1].Destination
			a.Pairs[slices.IndexFunc(a.Pairs, func(o telemetry.Pair) bool { return o.Destination == last })].Opened++
		case len(a.Pairs) == telemetry.MaxPairs:
			a.Rest++
		default:
			p.Add(telemetry.SYN)
			a.Pairs = append(a.Pairs, p)
		}
	}
	return &telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{a}}
}

// granted counts the actions that limit VMs, by VM.
func (s *script) granted(to map[law.VM]int, e law.Event) {
	for _, a := range s.law.Step(s.now, e, nil) {
		if g := a.(law.Grant); g.Lease > 0 {
			to[g.Key.VM]++
		}
	}
}

// flooded has VMs 2 and 3 with a long flow each, and then 300 ms of flood while so much waits at the port. It returns how
// often each VM was limited.
func (s *script) flooded(queue uint64, from func(i int) netip.Addr) map[law.VM]int {
	s.opens(1, 2, 3)
	s.interval(0)
	limited := map[law.VM]int{}
	for range 300 {
		s.granted(limited, s.floods(from))
		s.now += ms
		s.granted(limited, &telemetry.Telemetry{At: 1, T: ms, Ports: []telemetry.Port{{N: 1, BacklogBytes: queue}}})
	}
	return limited
}

func ofVM1(int) netip.Addr { return address(1) }

// A flood of SYNs of one VM: as the paper counts, it limits everybody who sends through the port, for as long as it lasts. Ours
// limits nobody. An incast of the others is still seen, during the flood, and their pairs are not displaced.
func TestFlood_OfOneVM(t *testing.T) {
	paper := newScript(t, func(p *Params) { p.SourceShare = 0 }).flooded(40_000, ofVM1)
	if paper[2] < 19 || paper[3] < 19 { // an incast of 15 ms follows the other
		t.Errorf("as the paper counts, the others are limited %v times: the test shows no harm", paper)
	}
	s := newScript(t, nil)
	if ours := s.flooded(40_000, ofVM1); len(ours) != 0 || s.l.Counts().On != 0 {
		t.Errorf("limited %v, %+v", ours, s.l.Counts())
	}
	if at := s.l.ports[s.port(1)]; !at.known[pair{2, address(9)}] || at.ofVM[1] > 16*telemetry.MaxSourcePairs {
		t.Errorf("%d pairs, %d of VM 1", len(at.pairs), at.ofVM[1])
	}
	limited := map[law.VM]int{}
	s.granted(limited, s.floods(ofVM1))
	s.granted(limited, &telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{{N: 1, Counts: telemetry.Counts{SYN: 10}, Pairs: []telemetry.Pair{
		{Source: address(2), Destination: address(9), Kinds: telemetry.SYN, Opened: 5}, {Source: address(3), Destination: address(9), Kinds: telemetry.SYN, Opened: 5},
	}}}})
	s.now += ms
	s.granted(limited, &telemetry.Telemetry{At: 1, T: ms, Ports: []telemetry.Port{{N: 1, BacklogBytes: 40_000}}})
	if limited[2] != 1 || limited[3] != 1 {
		t.Errorf("an incast of VMs 2 and 3 during the flood: limited %v", limited)
	}
}

// At a port that is busy any flow begins an incast, as in the paper. A flood then begins one, when it begins, and no more.
func TestFlood_AtABusyPort(t *testing.T) {
	for share, most := range map[float64]uint64{0: 1000, 0.5: 1} {
		s := newScript(t, func(p *Params) { p.SourceShare = share })
		s.flooded(120_000, ofVM1)
		on := s.l.Counts().On
		if on > most || share == 0 && on < 19 {
			t.Errorf("share %v: %d incasts in 300 ms", share, on)
		}
	}
}

// SYNs of forged addresses: those of no known VM have one share together, and the flows beyond the list do not count.
func TestFlood_ForgedSources(t *testing.T) {
	forged := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}) }
	if paper := newScript(t, func(p *Params) { p.SourceShare = 0 }).flooded(40_000, forged); paper[2] < 19 {
		t.Errorf("as the paper counts, the others are limited %v times: the test shows no harm", paper)
	}
	s := newScript(t, nil)
	if ours := s.flooded(40_000, forged); len(ours) != 0 {
		t.Errorf("limited %v, %+v", ours, s.l.Counts())
	}
}

// A VM that begins few flows at a time, each to another address, does not displace others' pairs.
func TestFlood_SlowOnePairByPair(t *testing.T) {
	s := newScript(t, nil)
	s.law = s.l
	s.opens(1, 2)
	for n := range maxPairs + 10 {
		s.now += 20 * ms
		s.step(&telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{{N: 1, Counts: telemetry.Counts{SYN: 1}, Pairs: []telemetry.Pair{
			{Source: address(1), Destination: peer(n), Kinds: telemetry.SYN, Opened: 1},
		}}}})
	}
	at := s.l.ports[s.port(1)]
	if !at.known[pair{2, address(9)}] || at.ofVM[1] != maxPairsOfVM || len(at.pairs) != maxPairsOfVM+1 || len(at.known) != len(at.pairs) || at.known[pair{1, peer(0)}] {
		t.Errorf("%d pairs, %d known, %d of VM 1", len(at.pairs), len(at.known), at.ofVM[1])
	}
}

// A VM counts again when it has not flooded for a mouse_duration. One that only exceeds its share counts up to it all the time.
func TestShare_Windows(t *testing.T) {
	s := newScript(t, nil) // a share of 62,500 B is 5 flows of 14,600 B, rounded up
	at := s.l.ports[s.port(1)]
	for i, row := range []struct {
		at      time.Duration
		n, want int64
	}{
		{0, 3, 3}, {ms, 3, 2}, {2 * ms, 1, 0}, // the share is used up
		{15 * ms, 6, 5}, {29 * ms, 9, 0}, // the next time of mouse_duration
		{30 * ms, 30, 5}, {31 * ms, 11, 0}, // 41 flows are more than 8 times the share: it floods
		{45 * ms, 1, 0}, {59 * ms, 1, 0}, // and so does the time after it
		{60 * ms, 2, 2},   // 2 flows in that time: no flood
		{61 * ms, 41, 0},  // at once
		{100 * ms, 2, 2},  // it was silent since
		{101 * ms, 4, 3},  // of the 5
		{115 * ms, 41, 0}, // a flood
		{131 * ms, 1, 0},
		{300 * ms, 1, 1},
	} {
		if got := s.l.share(row.at, at, 1, row.n); got != row.want {
			t.Errorf("row %d: %d of %d flows count, want %d", i, got, row.n, row.want)
		}
	}
	if got := s.l.share(301*ms, at, 2, 9); got != 5 {
		t.Errorf("another VM has a share of its own: %d", got)
	}
}

// The table of VMs has a limit, and forgets those that began nothing lately.
func TestShare_Limit(t *testing.T) {
	s := newScript(t, nil)
	at := s.l.ports[s.port(1)]
	for vm := range law.VM(maxSources) {
		s.l.share(0, at, vm+1, 1)
	}
	if got := s.l.share(29*ms, at, maxSources+1, 1); got != 0 || s.l.Counts().TooMany != 1 {
		t.Errorf("%d, %+v", got, s.l.Counts())
	}
	if got := s.l.share(30*ms, at, maxSources+1, 1); got != 1 || len(at.sources) != 1 {
		t.Errorf("%d, %d VMs", got, len(at.sources))
	}
}

// SYNs of forged addresses beyond the list are taken for those of unknown addresses: else a report would show 64 of 200, which is no
// flood, and a share would count in each mouse_duration.
func TestFlood_ForgedBeyondTheList(t *testing.T) {
	s := newScript(t, func(p *Params) { p.InitialWindow = 1 }) // a share is 43 flows, a flood 345
	at := s.l.ports[s.port(1)]
	counted := []int64{}
	for n := range 12 {
		s.now = time.Duration(n) * 5 * ms
		a := s.floods(func(i int) netip.Addr { return netip.AddrFrom4([4]byte{172, 16, byte(n), byte(i)}) })
		counted = append(counted, s.l.began(s.now, at, &a.Ports[0]))
	}
	if want := []int64{43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}; !slices.Equal(counted, want) {
		t.Errorf("%v, want %v", counted, want)
	}
}
