package sed

import (
	"net/netip"
	"testing"
	"time"

	"weir/law"
	"weir/law/flows"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// The remaining size follows from what was sent if the application does not give one, and a second message of a connection counts from
// where the first ended.
func TestLeft(t *testing.T) {
	for i, row := range []struct {
		sent, from, bytes uint64
		want              float64
	}{
		{0, 0, 0, segmentBytes}, {50_000, 0, 0, 50_000}, {50_000, 40_000, 0, 10_000},
		{0, 0, 100_000, 100_000}, {30_000, 0, 100_000, 70_000}, {130_000, 100_000, 100_000, 70_000}, {300_000, 0, 100_000, 0},
	} {
		f := &flow{sent: row.sent, message: message{from: row.from, bytes: row.bytes}}
		if got := f.left(); got != row.want {
			t.Errorf("%d: %v, want %v", i, got, row.want)
		}
	}
}

// A flow that may send and does not has no share. It gets one again when it sends.
func TestIdle(t *testing.T) {
	s := newScript(t, nil)
	s.began(1, 2)
	s.sent(map[int]uint64{1: 10, 2: 10})
	s.congested(true)
	for s.now = ms; s.now <= 6*ms; s.now += ms {
		s.sent(map[int]uint64{2: uint64(s.now)})
	}
	if f := s.l.flows[flowN(2)]; f.granted < 44*segmentBytes {
		t.Errorf("flow 2 alone has %d bytes", f.granted)
	}
	if f := s.l.flows[flowN(1)]; f.granted != 1460 {
		t.Errorf("flow 1, which is silent, has %d bytes", f.granted)
	}
	s.want("it sends again", s.sent(map[int]uint64{1: 1_000_000}), "1=33580 2=32120")
}

// The tables have limits, for all and for each VM. A flow that ends makes room. A switch that leaves takes its flows along.
func TestLimits(t *testing.T) {
	s := newScript(t, nil)
	s.law = s.l
	many := flowN(1)
	for n := range maxOfVM + 5 {
		many.Src = netip.AddrPortFrom(address(1), uint16(n+1))
		s.step(&flows.Began{At: law.Port{Switch: 1, N: 1}, Flow: many})
	}
	if c := s.l.counts; c.TooMany != 5 || len(s.l.flows) != maxOfVM {
		t.Errorf("%+v, %d flows", c, len(s.l.flows))
	}
	s.began(2)
	if s.l.flows[flowN(2)] == nil {
		t.Error("another VM has no room")
	}
	s.step(&flows.Ended{Flow: many})
	if s.step(&flows.Ended{Flow: flowN(2)}); len(s.l.flows) != maxOfVM || len(s.l.ofVM) != 1 {
		t.Errorf("%d flows, %d VMs", len(s.l.flows), len(s.l.ofVM))
	}
	for n := range maxOfVM + 5 { // from sources that are no VM's
		many.Src = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 14: byte(n >> 8), 15: byte(n)}), 1)
		s.step(&flows.Began{At: law.Port{Switch: 1, N: 1}, Flow: many})
	}
	if c := s.l.counts; c.TooMany != 10 || len(s.l.flows) != 2*maxOfVM {
		t.Errorf("%+v, %d flows with those of no VM", c, len(s.l.flows))
	}
	s.step(&inventory.Host{At: 500, VMs: []inventory.VM{{Number: 500, Addresses: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("fe80::"), 128)}}}})
	if s.l.Step(0, &flows.Congested{At: law.Port{Switch: 1, N: 1}, Now: true}, nil); s.l.ofVM[0] != maxOfVM-1 || s.l.ofVM[500] != 1 {
		t.Errorf("a VM got known: %d flows of no VM, %d of it", s.l.ofVM[0], s.l.ofVM[500])
	}
	s.l.Step(0, &inventory.SwitchLeft{At: 1}, nil)
	if len(s.l.flows) != 0 || len(s.l.ports) != 0 || len(s.l.ofVM) != 0 {
		t.Errorf("%d flows, %d ports", len(s.l.flows), len(s.l.ports))
	}
}

// A declaration makes a row only if it says something of a message. A row that no port has seen, or that another switch's ports have, is
// removed when it is idle and its deadline has passed.
func TestDeclared_RowsAreRemoved(t *testing.T) {
	s := newScript(t, nil)
	s.began(1)
	s.step(&flows.Ended{At: law.Port{Switch: 1, N: 1}, Flow: flowN(1)})
	s.declared(1, 0, 0) // the host takes the deadline back
	if n := len(s.l.flows); n != 0 {
		t.Errorf("%d rows of a flow that has ended", n)
	}
	s.declared(2, 50*ms, 1e6) // never begins
	s.declared(3, 10*time.Second, 1e6)
	s.step(&flows.Began{At: law.Port{Switch: 2, N: 1}, Flow: flowN(4)})
	if s.now = 900 * ms; len(s.l.flows) != 3 {
		t.Fatalf("%d rows", len(s.l.flows))
	}
	for s.now = time.Second; s.now <= 3*time.Second; s.now += 100 * ms {
		s.step(&flows.Progress{At: 1})
	}
	if s.l.flows[flowN(2)] != nil || s.l.flows[flowN(3)] == nil || s.l.flows[flowN(4)] != nil || len(s.l.ofVM) != 1 {
		t.Errorf("%d rows, of %d VMs; only the deadline of flow 3 is ahead", len(s.l.flows), len(s.l.ofVM))
	}
	s.now = 20 * time.Second // without switches
	if s.declared(5, 50*ms, 1e6); len(s.l.flows) != 1 {
		t.Errorf("%d rows after a declaration", len(s.l.flows))
	}
}

// A connection that was silent for so long that its row was removed sends the next message. Its earlier bytes are no part of that.
func TestProgress_OfASilentConnection(t *testing.T) {
	s := newScript(t, nil)
	s.began(1)
	s.step(&flows.Progress{At: 1, Sent: []flows.Sent{{Flow: flowN(1), Port: 1, Bytes: 1e6}}})
	for ; s.now <= 3*time.Second; s.now += 100 * ms {
		s.step(&flows.Progress{At: 1})
	}
	if s.l.flows[flowN(1)] != nil {
		t.Fatal("the row is still there")
	}
	s.declared(1, 50*ms, 1e5)
	s.step(&flows.Progress{At: 1, Sent: []flows.Sent{{Flow: flowN(1), Port: 1, Bytes: 1e6 + 1000}}})
	if f := s.l.flows[flowN(1)]; !f.urgent(s.now) || f.left() != 1e5 {
		t.Errorf("urgent %v, %.0f bytes left of 100000", f.urgent(s.now), f.left())
	}
	s.step(&flows.Progress{At: 1, Sent: []flows.Sent{{Flow: flowN(1), Port: 1, Bytes: 1e6 + 41_000}}})
	if f := s.l.flows[flowN(1)]; f.left() != 6e4 {
		t.Errorf("%.0f bytes left of 60000", f.left())
	}
}

// A port without a rate, or that is not in the inventory any more, limits nothing. Before, its flows kept their windows for ever.
func TestInventory_ReleasesPorts(t *testing.T) {
	two := func(rate law.Rate) *inventory.Switch {
		return &inventory.Switch{At: 1, Ports: []inventory.Port{{N: 1, Rate: rate}, {N: 2, Rate: gbit}}}
	}
	gone := &inventory.Switch{At: 1, Ports: []inventory.Port{{N: 2, Rate: gbit}}}
	const limited = "1..5=13140"
	for name, row := range map[string]struct {
		first string
		now   *inventory.Switch
	}{
		"crowded, without a rate":   {FirstBase, two(0)},
		"crowded, gone":             {FirstBase, gone},
		"congested, without a rate": {FirstOpen, two(0)},
		"congested, gone":           {FirstOpen, gone},
	} {
		s := newScript(t, func(p *Params) { p.First = row.first })
		s.began(1, 2, 3, 4, 5)
		peak := &telemetry.Telemetry{At: 1, T: ms, Ports: []telemetry.Port{{N: 1, PeakBytes: 50_000}}}
		if row.first == FirstOpen {
			s.want(name, s.step(peak), limited)
		}
		s.want(name, s.step(row.now), "1..5=free")
		s.want(name+": progress", s.step(&flows.Progress{At: 1, Sent: []flows.Sent{{Port: 1, Flow: flowN(1), Bytes: 1}}}), "")
		if row.now == gone && (len(s.l.switches[1]) != 2 || s.l.ports[law.Port{Switch: 1, N: 1}].rate != 0 || len(s.l.flows) != 5) {
			t.Errorf("%s: %d ports, %d flows", name, len(s.l.switches[1]), len(s.l.flows))
		}
		s.step(two(gbit))
		e := &flows.Progress{At: 1, Congested: []uint32{1}}
		for n := range 5 {
			e.Sent = append(e.Sent, flows.Sent{Port: 1, Flow: flowN(n + 1), Bytes: 10})
		}
		s.want(name+": the port is back", s.step(e), limited)
	}
}

// A host sends a declaration again to a new controller, with its number. The same one again changes nothing: else the message would begin
// anew with what is left of it.
func TestDeclared_Again(t *testing.T) {
	s := newScript(t, nil)
	s.began(1, 2)
	s.congested(true)
	declare := func(number, bytes uint64) {
		s.step(&flows.Declared{Flow: flowN(1), Left: 50 * ms, Bytes: bytes, Number: number})
	}
	declare(7, 1e6)
	s.now += 10 * ms
	s.sent(map[int]uint64{1: 400_000, 2: 1000})
	f := s.l.flows[flowN(1)]
	if declare(7, 1e6); f.left() != 600_000 || f.message.deadline != 50*ms {
		t.Errorf("again: %v bytes left until %v", f.left(), f.message.deadline)
	}
	if declare(8, 1e6); f.left() != 1e6 || f.message.deadline != 60*ms {
		t.Errorf("the next message: %v bytes left until %v", f.left(), f.message.deadline)
	}
}

// The agent of a switch is silent and comes back, and counts what flows have sent from 0 again. A flow keeps a deadline that is ahead,
// with what was left of its message; others are forgotten.
func TestForget_KeepsDeadlines(t *testing.T) {
	s := newScript(t, nil)
	s.began(1, 2)
	s.declared(1, 10*time.Second, 2e6)
	s.sent(map[int]uint64{1: 500_000, 2: 500_000})
	s.step(&inventory.SwitchLeft{At: 1})
	if f := s.l.flows[flowN(1)]; f == nil || f.left() != 1.5e6 || s.l.flows[flowN(2)] != nil {
		t.Fatalf("flow 1: %+v, flow 2: %+v", f, s.l.flows[flowN(2)])
	}
	s.now = 2 * time.Second
	s.step(&inventory.Switch{At: 1, Ports: []inventory.Port{{N: 1, Rate: gbit}}})
	s.sent(map[int]uint64{1: 1000})
	s.now += ms
	s.sent(map[int]uint64{1: 101_000})
	if f := s.l.flows[flowN(1)]; f == nil || f.left() != 1.4e6 || !f.urgent(s.now) || len(f.places) != 1 {
		t.Fatalf("after 100 kB more: %+v", f)
	}
	s.step(&inventory.SwitchLeft{At: 1})
	for s.now = 12 * time.Second; s.now < 15*time.Second; s.now += 100 * ms {
		s.step(&flows.Progress{At: 1})
	}
	if n := len(s.l.flows); n != 0 {
		t.Errorf("%d rows after the deadline", n)
	}
}
