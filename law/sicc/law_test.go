package sicc

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/lawtest"
	"weir/law/telemetry"
)

const (
	bufferBytes = 125_000
	ms          = time.Millisecond
)

// script drives a law that has one switch with the ports 1 and 2, and three VMs: 10.0.0.1 to 10.0.0.3.
type script struct {
	t   *testing.T
	law law.Law
	l   *Law
	now time.Duration
}

func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

func newScript(t *testing.T, change func(*Params)) *script {
	t.Helper()
	p := Default()
	p.InitialWindow, p.QueueWeight, p.OffRule = 10, 1, OffOr
	if change != nil {
		change(p)
	}
	l, err := New(*p)
	if err != nil {
		t.Fatal(err)
	}
	twin, _ := New(*p)
	s := &script{t: t, law: lawtest.Checked(t, l, twin), l: l}
	host := &inventory.Host{At: 1}
	for n := 1; n <= 3; n++ {
		host.VMs = append(host.VMs, inventory.VM{Number: law.VM(n), Addresses: []netip.Prefix{netip.PrefixFrom(address(n), 32)}})
	}
	s.law.Step(0, host, nil)
	s.law.Step(0, &inventory.Switch{At: 1, Ports: []inventory.Port{{N: 1, BufferBytes: bufferBytes}, {N: 2, BufferBytes: bufferBytes}}}, nil)
	return s
}

func (s *script) port(n uint32) law.Port { return law.Port{Switch: 1, N: n} }

// opens reports SYNs of VMs to 10.0.0.9 at a port.
func (s *script) opens(port uint32, vms ...int) string {
	a := telemetry.PortArrivals{N: port, Counts: telemetry.Counts{SYN: uint64(len(vms))}}
	for _, n := range vms {
		a.Pairs = append(a.Pairs, telemetry.Pair{Source: address(n), Destination: address(9), Kinds: telemetry.SYN})
	}
	return s.step(&telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{a}})
}

// interval passes an interval and reports the queue of port 1.
func (s *script) interval(queue uint64) string {
	s.now += ms
	return s.step(&telemetry.Telemetry{At: 1, T: ms, Ports: []telemetry.Port{{N: 1, BacklogBytes: queue}}})
}

// step returns the actions as text: "+1" limits VM 1, "-1" releases it.
func (s *script) step(e law.Event) string {
	var out []string
	for _, a := range s.law.Step(s.now, e, nil) {
		g := a.(law.Grant)
		if g.Kind != law.WindowGrant || g.Key.Peer != address(9) || g.Value != least || g.Lease != 0 && g.Lease != time.Duration(s.l.p.Lease) {
			s.t.Errorf("grant %+v", g)
		}
		sign := "+"
		if g.Lease == 0 {
			sign = "-"
		}
		out = append(out, fmt.Sprintf("%s%d", sign, g.Key.VM))
	}
	return strings.Join(out, " ")
}

func (s *script) want(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%v, %s: %q, want %q", s.now, what, got, want)
	}
}

// SYNs and a queue that together would overflow the buffer begin an incast: all pairs through the port are limited. It ends when
// the queue is low, after the least hold.
func TestIncast(t *testing.T) {
	s := newScript(t, nil)
	s.opens(1, 1)
	s.want("one flow, an empty queue", s.interval(0), "")
	s.opens(1, 2, 3)
	s.want("two flows and a queue that is nearly full", s.interval(110_000), "+1 +2 +3")
	for range 3 {
		s.want("the least hold", s.interval(0), "")
	}
	s.want("after 4 ms the queue is low", s.interval(0), "-1 -2 -3")
	s.want("afterwards", s.interval(124_000), "")
	if c := s.l.Counts(); c.On != 1 || c.Off != 1 {
		t.Errorf("%+v", c)
	}
}

// Readings may list ports in any order, and leave some out.
func TestReadingsInAnyOrder(t *testing.T) {
	s := newScript(t, nil)
	for _, order := range [][]uint32{{1, 2, 3}, {3, 2, 1}, {2}, {3, 1}} {
		reading := &telemetry.Telemetry{At: 1, T: ms}
		for _, n := range order {
			reading.Ports = append(reading.Ports, telemetry.Port{N: n, BacklogBytes: uint64(1000 * n)})
		}
		s.now += ms
		s.step(reading)
		for _, n := range order {
			if at := s.l.ports[s.port(n)]; at == nil || at.queue != uint64(1000*n) {
				t.Errorf("%v: port %d: %+v", order, n, at)
			}
		}
	}
}

// printed is the prediction as the paper prints it, fed with the queues of intervals and the flows of the last one. SI-1: the mean
// is Q/4 + 3Q/4. SI-5: the flows count as segments, not as bytes. bytes: without the second error.
func printed(bytes bool, flows, segments float64, queues ...float64) float64 {
	mean := 0.0
	if !bytes {
		mean = queues[len(queues)-1] // without the first error, to show the second alone
	}
	for range queues {
		mean = mean/4 + 3*mean/4
	}
	if bytes {
		segments *= segmentBytes
	}
	return flows*segments + mean
}

// SI-1: printed, the mean queue never changes, so the law does not see a queue that fills the buffer.
func TestSI1_MeanFollowsTheQueue(t *testing.T) {
	s := newScript(t, func(p *Params) { p.QueueWeight = 0.75; p.InitialWindow = 1 })
	s.interval(120_000)
	at := s.l.ports[law.Port{Switch: 1, N: 1}]
	if at.mean != 90_000 {
		t.Errorf("the mean is %v after one interval, want 3/4 of the queue", at.mean)
	}
	s.interval(120_000)
	s.opens(1, 1, 2, 3)
	if p := printed(true, 3, 1, 120_000, 120_000, 125_000); p >= bufferBytes {
		t.Errorf("the printed form predicts %v bytes: it begins this incast, too", p)
	}
	s.want("the mean has come near the queue", s.interval(125_000), "+1 +2 +3")
}

// SI-2, SI-3: kappa is a flag and a time. An incast ends after DM or with a low queue (or), after DM with a low queue (and, as
// printed), or with a low queue (ns-2).
func TestSI3_OffRules(t *testing.T) {
	// The queue stays high for 20 ms, then is low: after how many intervals does the incast end? In the second column it is low
	// from the beginning.
	for _, row := range []struct {
		rule      string
		high, low int
	}{{OffOr, 15, 4}, {OffAnd, 21, 15}, {OffQueue, 21, 4}} {
		for _, lowFrom := range []int{20, 0} {
			s := newScript(t, func(p *Params) { p.OffRule = row.rule })
			s.opens(1, 1, 2)
			s.want("begins", s.interval(120_000), "+1 +2")
			n := 0
			for {
				n++
				q := uint64(120_000)
				if n > lowFrom {
					q = 1000
				}
				if s.interval(q) == "-1 -2" {
					break
				}
				if n > 100 {
					t.Fatalf("rule %s: no end", row.rule)
				}
			}
			want := row.low
			if lowFrom > 0 {
				want = row.high
			}
			if n != want {
				t.Errorf("rule %s, low after %d ms: the incast ends after %d ms, want %d", row.rule, lowFrom, n, want)
			}
		}
	}
}

// SI-4: printed, ON is sent in each interval that predicts an overflow. Ours is sent once, and again only to renew the lease.
func TestSI4_OncePerIncast(t *testing.T) {
	s := newScript(t, func(p *Params) { p.OffRule = OffQueue })
	s.opens(1, 1, 2)
	s.want("begins", s.interval(120_000), "+1 +2")
	sent, predicted := 0, 0
	for range 300 {
		s.opens(1, 1, 2)
		if 2*10*segmentBytes+120_000 >= s.l.p.OnFraction*bufferBytes {
			predicted++ // the printed form sends ON
		}
		if s.interval(120_000) != "" {
			sent++
		}
	}
	if sent > 1 || predicted < 100 {
		t.Errorf("the limits were sent %d times in 300 ms, and the printed form sends them %d times", sent, predicted)
	}
	for sent == 0 { // SH-5: a third of the lease of 1 s
		if s.interval(120_000) == "+1 +2" {
			sent++
		}
	}
	if s.now > 350*ms {
		t.Errorf("renewed only after %v", s.now)
	}
}

// An experiment with time_scale has longer leases. An agent shortens them, so the limit must be renewed as often as before.
func TestLease_OfATimeScale(t *testing.T) {
	s := newScript(t, func(p *Params) { p.OffRule, p.Lease = OffQueue, 5e9 })
	s.opens(1, 1, 2)
	s.want("begins", s.interval(120_000), "+1 +2")
	for begun := s.now; s.interval(120_000) == ""; {
		if s.now-begun > law.LeaseMost/2 {
			t.Fatalf("no renewal in %v: an agent has ended the limit at %v", s.now-begun, law.LeaseMost)
		}
	}
}

// SI-5: printed, the prediction adds segments to bytes: two flows of ten segments would count 20 bytes.
func TestSI5_Bytes(t *testing.T) {
	s := newScript(t, nil)
	s.opens(1, 1, 2)
	if p := printed(false, 2, 10, 96_000); p >= bufferBytes {
		t.Errorf("the printed form predicts %v bytes: it begins this incast, too", p)
	}
	s.want("29,200 bytes come to a queue of 96,000", s.interval(96_000), "+1 +2")
}

// SI-6: the port by which the data leaves counts, not the one by which the SYN came in, or another of the switch.
func TestSI6_PortOfTheData(t *testing.T) {
	s := newScript(t, nil)
	s.opens(2, 1, 2, 3)
	s.want("flows of another port", s.interval(120_000), "")
	s.opens(1, 1, 2)
	s.want("flows of this port", s.interval(120_000), "+1 +2")
}

// SI-7: the mean queue begins an incast, the queue itself ends it.
func TestSI7_QueueEnds(t *testing.T) {
	s := newScript(t, func(p *Params) { p.QueueWeight = 0.01; p.OnFraction = 0.1; p.OffRule = OffQueue; p.OffFraction = 0.2 })
	s.opens(1, 1, 2)
	s.want("begins", s.interval(30_000), "+1 +2")
	at := s.l.ports[law.Port{Switch: 1, N: 1}]
	at.mean = 100_000
	for range 4 {
		s.interval(25_000)
	}
	if at.on || at.mean < 90_000 {
		t.Errorf("on %v with the mean at %v: the queue is at 0.2 of the buffer", at.on, at.mean)
	}
}

// SI-2: printed, kappa is a flag, and now - kappa is the time since the law began: an incast would end at once.
func TestSI2_AgeOfTheIncast(t *testing.T) {
	s := newScript(t, nil)
	s.now = time.Second
	s.opens(1, 1, 2)
	s.want("begins", s.interval(120_000), "+1 +2")
	const kappa = 1 // true
	if s.now-kappa < time.Duration(s.l.p.MouseDuration) {
		t.Error("the printed form does not end this incast at once")
	}
	n := 1
	for s.interval(120_000) == "" {
		n++
	}
	if n != 15 {
		t.Errorf("the incast ends after %d ms, want 15", n)
	}
}

// SI-10: the published code takes the part of a second of an incast's age. So an incast that may last 1.5 s never ended.
func TestSI10_AgeDoesNotWrap(t *testing.T) {
	s := newScript(t, func(p *Params) { p.MouseDuration = law.Duration(1500 * ms) })
	s.opens(1, 1, 2)
	s.want("begins", s.interval(120_000), "+1 +2")
	begun, published := s.now, false
	for s.interval(120_000) != "-1 -2" {
		if s.now-begun > 10*time.Second {
			t.Fatal("the incast does not end")
		}
		published = published || (s.now-begun)%time.Second >= time.Duration(s.l.p.MouseDuration)
	}
	if got := s.now - begun; got != 1500*ms || published {
		t.Errorf("the incast ends after %v, want 1.5 s; the published code ends it: %v", got, published)
	}
}

// SI-9: FINs of old flows are subtracted from the SYNs of an interval, as printed, and never leave less than 0 flows.
func TestSI9_FINs(t *testing.T) {
	s := newScript(t, nil)
	both := telemetry.PortArrivals{N: 1, Counts: telemetry.Counts{SYN: 2, FIN: 2}}
	for n := 1; n <= 2; n++ {
		both.Pairs = append(both.Pairs, telemetry.Pair{Source: address(n), Destination: address(9), Kinds: telemetry.SYN})
	}
	s.step(&telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{both}})
	s.want("as many flows began as ended", s.interval(120_000), "")
	s.step(&telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{{N: 1, Counts: telemetry.Counts{FIN: 5}}}})
	s.opens(1, 1, 2)
	s.want("the flows that ended before are not owed", s.interval(120_000), "+1 +2")
}

// A pair that begins during an incast is limited at once. A pair that another port still limits is not released.
func TestPairs(t *testing.T) {
	s := newScript(t, nil)
	s.opens(1, 1)
	s.want("begins", s.interval(125_000), "+1")
	s.want("comes later", s.opens(1, 2), "+2")
	s.opens(2, 1, 3)
	s.now += ms
	s.want("another port", s.step(&telemetry.Telemetry{At: 1, T: ms, Ports: []telemetry.Port{{N: 1, BacklogBytes: 120_000}, {N: 2, BacklogBytes: 120_000}}}), "+1 +3")
	end := func(p1, p2 uint64) string {
		s.now += 5 * ms
		return s.step(&telemetry.Telemetry{At: 1, T: ms, Ports: []telemetry.Port{{N: 1, BacklogBytes: p1}, {N: 2, BacklogBytes: p2}}})
	}
	s.want("VM 1 is still limited by port 2", end(0, 120_000), "-2")
	s.want("the end", end(0, 0), "-1 -3")
}

// A reading leaves out a port where nothing waits: its incast ends there, too.
func TestQuietPort(t *testing.T) {
	s := newScript(t, nil)
	s.opens(1, 1, 2)
	s.want("begins", s.interval(125_000), "+1 +2")
	s.now += 5 * ms
	s.want("left out", s.step(&telemetry.Telemetry{At: 1, T: ms}), "-1 -2")
}

// Only VMs that a host reports are limited, and only ports with a known buffer have incasts.
func TestUnknown(t *testing.T) {
	s := newScript(t, nil)
	s.opens(1, 1, 200)
	s.want("an address of nobody", s.interval(125_000), "+1")
	if s.l.Counts().Unknown != 1 {
		t.Errorf("%+v", s.l.Counts())
	}
	s.step(&inventory.HostLeft{At: 1})
	s.opens(1, 2)
	if c := s.l.Counts(); c.Unknown != 2 {
		t.Errorf("VMs of a host that left: %+v", c)
	}
	s.step(&inventory.SwitchLeft{At: 1})
	if len(s.l.ports)+len(s.l.switches)+len(s.l.limited) != 0 {
		t.Error("ports of a switch that left stay")
	}
	s.opens(7, 1)
	s.now += ms
	s.want("a port without a buffer", s.step(&telemetry.Telemetry{At: 1, T: ms, Ports: []telemetry.Port{{N: 7, BacklogBytes: 1e9}}}), "")
}

// A VM that has moved is known at its new host, also if the old host reports after the new one that it left.
func TestMovedVM(t *testing.T) {
	s := newScript(t, nil)
	s.step(&inventory.Host{At: 2, VMs: []inventory.VM{{Number: 1, Addresses: []netip.Prefix{netip.PrefixFrom(address(1), 32)}}}})
	s.step(&inventory.Host{At: 1})
	s.opens(1, 1, 2)
	s.want("one VM moved, the other is gone", s.interval(125_000), "+1")
}

// Flows that were idle count as arrivals only if the operator says so.
func TestArrivals_Active(t *testing.T) {
	for _, row := range []struct{ arrivals, want string }{{ArrivalsSYN, ""}, {ArrivalsActive, "+1 +2"}} {
		s := newScript(t, func(p *Params) { p.Arrivals = row.arrivals })
		a := telemetry.PortArrivals{N: 1, Counts: telemetry.Counts{Resume: 2}}
		for n := 1; n <= 2; n++ {
			a.Pairs = append(a.Pairs, telemetry.Pair{Source: address(n), Destination: address(9), Kinds: telemetry.Resume})
		}
		s.step(&telemetry.Arrivals{At: 1, Ports: []telemetry.PortArrivals{a}})
		s.want(row.arrivals, s.interval(120_000), row.want)
	}
}

func TestParams(t *testing.T) {
	for _, row := range []struct {
		change func(*Params)
		says   string
	}{
		{func(p *Params) { p.Model = ModelQueueNS2 }, "model: queue is a law of its own"},
		{func(p *Params) { p.MinHold = p.MouseDuration + 1 }, "min_hold is longer"},
	} {
		p := Default()
		row.change(p)
		if _, err := New(*p); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%v, want %q", err, row.says)
		}
	}
	if !slices.Contains(Spec().Signals, law.Arrivals) || Spec().Interval(Default()) != Default().Interval {
		t.Error("the law's Spec")
	}
}

// A port keeps the pairs that came last: a newer one replaces the oldest, whose limit ends.
func TestLimits(t *testing.T) {
	s := newScript(t, nil)
	s.law = s.l // the test fills its table
	s.opens(1, 1)
	s.want("begins", s.interval(125_000), "+1")
	at := s.l.ports[law.Port{Switch: 1, N: 1}]
	for n := range maxPairs - 1 {
		k := pair{7, netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)})}
		at.pairs, at.known[k] = append(at.pairs, k), true
	}
	s.want("one more", s.opens(1, 2), "-1 +2")
	if c := s.l.Counts(); c.TooMany != 1 || len(at.pairs) != maxPairs || len(at.known) != maxPairs || len(s.l.limited) != 1 {
		t.Errorf("%+v with %d pairs, %d known, %d limited", c, len(at.pairs), len(at.known), len(s.l.limited))
	}
}

// The law keeps no borrowed memory, and equal events give equal actions.
func TestKeeps(t *testing.T) {
	lawtest.Keeps(t, func() law.Law {
		l, err := New(*Default())
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}

// A VM moves: its new host reports it before the old host reports that it is gone. A new VM can also have the address already.
func TestHosts_MovesInAnyOrder(t *testing.T) {
	for _, newVM := range []law.VM{1, 8} {
		s := newScript(t, nil)
		at := func(h law.Host, vms ...inventory.VM) { s.step(&inventory.Host{At: h, VMs: vms}) }
		at(2, inventory.VM{Number: newVM, Addresses: []netip.Prefix{netip.PrefixFrom(address(1), 32)}})
		at(1)
		s.opens(1, 1, 2)
		if got, want := s.opens(1, 1)+s.interval(bufferBytes*2), fmt.Sprintf("+%d", newVM); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if n := s.l.Counts().Unknown; n != 1 { // VM 2 is nowhere
			t.Errorf("%d unknown", n)
		}
	}
}
