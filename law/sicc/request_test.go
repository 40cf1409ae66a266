package sicc

import (
	"net/netip"
	"testing"

	"weir/law/telemetry"
)

// asks reports requests of 10.0.0.9 to VMs that leave by port 2: so many in all.
func (s *script) asks(requests uint64, vms ...int) string {
	a := telemetry.PortArrivals{N: 2, Counts: telemetry.Counts{Request: requests}}
	for _, n := range vms {
		a.Pairs = append(a.Pairs, telemetry.Pair{Source: address(9), Destination: address(n), Kinds: telemetry.Request})
	}
	return s.step(&telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{a}})
}

// A request announces its answer at the port by which data to the one who asks leaves. The answers' own data does not count again.
func TestArrivals_Request(t *testing.T) {
	s := newScript(t, func(p *Params) { p.Arrivals = ArrivalsRequest })
	s.want("nothing is known yet", s.asks(3, 1, 2, 3)+s.interval(bufferBytes), "")
	if c := s.l.Counts(); c.Nowhere != 3 || c.On != 0 {
		t.Errorf("%+v", c)
	}
	s.opens(1, 1) // data of VM 1 to 10.0.0.9 leaves by port 1
	s.interval(0)
	s.want("3 answers of 14,600 B beside 82,000 B", s.asks(3, 1, 2, 3)+s.interval(82_000), "+1 +2 +3")
	if !s.l.ports[s.port(1)].on || s.l.ports[s.port(2)].on {
		t.Error("the incast must be at port 1, which the answers leave by")
	}
	s.want("during it", s.asks(1, 2), "")
	s.now += 15 * ms
	s.want("it ends", s.interval(0), "-1 -2 -3")
	data := telemetry.PortArrivals{N: 1, Counts: telemetry.Counts{Resume: 3, Found: 3}, Pairs: []telemetry.Pair{{Source: address(1), Destination: address(9), Kinds: telemetry.Resume}}}
	s.step(&telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{data}})
	s.want("the answers themselves", s.interval(bufferBytes-1), "")

	// More requests than pairs are listed: each pair stands for a part of them. 9 answers are 131,400 B.
	s.want("9 requests, 2 pairs", s.asks(9, 1, 2)+s.interval(0), "+1 +2 +3")
}

// The table of addresses has a limit, and a switch that leaves takes its part along.
func TestArrivals_RequestLimit(t *testing.T) {
	s := newScript(t, func(p *Params) { p.Arrivals = ArrivalsRequest })
	s.law = s.l
	s.opens(1, 1)
	known := s.l.towards[1]
	for n := len(known); n < maxPeers; n++ {
		known[netip.AddrFrom4([4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)})] = 1
	}
	s.step(&telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{{N: 1, Pairs: []telemetry.Pair{
		{Source: address(1), Destination: address(9), Kinds: telemetry.SYN}, {Source: address(1), Destination: address(8), Kinds: telemetry.SYN},
	}}}})
	if c := s.l.Counts(); c.TooMany != 1 || len(known) != maxPeers {
		t.Errorf("%+v, %d known", c, len(known))
	}
}
