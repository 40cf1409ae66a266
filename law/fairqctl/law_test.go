package fairqctl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/law/inventory"
	"weir/law/lawtest"
)

const ms = time.Millisecond

// script drives a law with a switch 1. Host n has the address 10.0.0.n, is at port n, and is VM n of host n.
type script struct {
	t   *testing.T
	law law.Law
	l   *Law
	now time.Duration
}

func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

// newScript has C = 200 Mbit/s, B = 125 kB, RTT 200 us and alpha = 0.5: 62,500 + 5000 bytes in flight.
func newScript(t *testing.T, change func(*Params)) *script {
	t.Helper()
	p := Default()
	p.TargetFraction, p.Rate, p.Buffer = 0.5, 200e6, 125_000
	if change != nil {
		change(p)
	}
	l, err := New(*p, 0)
	if err != nil {
		t.Fatal(err)
	}
	twin, _ := New(*p, 0)
	s := &script{t: t, law: lawtest.Checked(t, l, twin), l: l}
	for n := 1; n <= 5; n++ {
		s.host(law.Host(n), n)
	}
	return s
}

// host reports that a host has these VMs.
func (s *script) host(h law.Host, vms ...int) string {
	e := &inventory.Host{At: h}
	for _, n := range vms {
		e.VMs = append(e.VMs, inventory.VM{Number: law.VM(n), Addresses: []netip.Prefix{netip.PrefixFrom(address(n), 32)}})
	}
	return s.step(e)
}

// step returns the grants: "2>1:33750" is the window of VM 2 towards 10.0.0.1.
func (s *script) step(e law.Event) string {
	var words []string
	for _, a := range s.law.Step(s.now, e, nil) {
		g := a.(law.Grant)
		if g.Kind != law.WindowGrant || g.Lease != time.Duration(s.l.p.Lease) {
			s.t.Errorf("%+v", g)
		}
		words = append(words, fmt.Sprintf("%d>%d:%d", g.Key.VM, g.Key.Peer.As4()[3], g.Value))
	}
	return strings.Join(words, " ")
}

// after passes time, with a tick whenever the law wants one.
func (s *script) after(d time.Duration) string {
	var words []string
	end := s.now + d
	for range 10_000 {
		wake := s.law.Wake()
		if wake == 0 || wake > end {
			s.now = end
			return strings.Join(words, " ")
		}
		if wake < s.now {
			s.t.Fatalf("at %v it wakes at %v", s.now, wake)
		}
		s.now = wake
		if w := s.step(law.Tick{}); w != "" {
			words = append(words, w)
		}
	}
	s.t.Fatal("it never sleeps")
	return ""
}

// sends has a copy come of a segment that host from sends, at its own port.
func (s *script) sends(from, to int, ports [2]uint16, flags uint8) string {
	return s.sendsAt(from, from, to, ports, flags)
}

func (s *script) sendsAt(at, from, to int, ports [2]uint16, flags uint8) string {
	kind := fabric.FIN
	if flags&fabric.FlagSYN != 0 {
		kind = fabric.SYN
	}
	if flags&fabric.FlagRST != 0 {
		kind = fabric.RST
	}
	t := fabric.Tuple{Proto: 6, Src: address(from).As4(), Dst: address(to).As4(), SrcPort: ports[0], DstPort: ports[1]}
	return s.step(&fabric.PacketIn{At: law.Port{Switch: 1, N: uint32(at)}, Kind: kind, Frame: fabric.AppendSegment(nil, fabric.MAC{}, fabric.MAC{}, t, flags)})
}

// opens has a connection open from a port of host a to port 80 of host b.
func (s *script) opens(a int, port uint16, b int) string {
	return s.sends(a, b, [2]uint16{port, 80}, fabric.FlagSYN) + s.sends(b, a, [2]uint16{80, port}, fabric.FlagSYN|fabric.FlagACK)
}

// closes has host a, the opener of the connection from port 1000 to host 1, send its FIN, or the answerer.
func (s *script) closes(a int, answerer bool) string {
	if answerer {
		return s.sends(1, a, [2]uint16{80, 1000}, fabric.FlagFIN|fabric.FlagACK)
	}
	return s.sends(a, 1, [2]uint16{1000, 80}, fabric.FlagFIN|fabric.FlagACK)
}

func (s *script) want(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// flows compares the flows of ports 1, 2, ... .
func (s *script) flows(what string, want ...int) {
	s.t.Helper()
	var got []int
	for n := range want {
		if p := s.l.ports[law.Port{Switch: 1, N: uint32(n + 1)}]; p != nil {
			got = append(got, p.flows)
		} else {
			got = append(got, 0)
		}
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: flows %v, want %v", what, got, want)
	}
}

// Vectors by hand: (0.5 * 125,000 + 200e6 / 8 * 200e-6) / beta = 67,500 / beta. A new flow is limited at once, the others with the
// next update.
func TestWindows(t *testing.T) {
	s := newScript(t, nil)
	s.want("a SYN", s.sends(2, 1, [2]uint16{1000, 80}, fabric.FlagSYN), "")
	s.want("first", s.sends(1, 2, [2]uint16{80, 1000}, fabric.FlagSYN|fabric.FlagACK), "2>1:67500 1>2:67500")
	s.flows("first", 1, 1)
	s.want("second, within the update", s.opens(3, 1000, 1), "3>1:33750 1>3:67500")
	s.want("update", s.after(ms), "2>1:33750")
	s.want("third", s.opens(2, 1001, 1), "2>1:22500 1>2:33750")
	s.want("its update", s.after(ms), "3>1:22500")
	s.flows("three", 3, 2, 1)
	s.want("end of data to port 1", s.closes(3, false), "")
	s.want("the same again", s.closes(3, false), "")
	s.want("update after the end", s.after(ms), "2>1:33750")
	s.flows("FQ-8: the other direction counts", 2, 2, 1)
	s.want("its end", s.closes(3, true)+s.after(ms), "")
	s.flows("both", 2, 2, 0)
	if c := s.l.Counts(); c.Opened != 3 || c.Ended != 1 || c.Granted != 9 || c.Unknown+c.Nowhere+c.Malformed != 0 {
		t.Errorf("%+v", c)
	}
}

// FQ-12: with less than a segment and a byte a flow would starve.
func TestFQ12_Floor(t *testing.T) {
	s := newScript(t, nil)
	for n := range 100 {
		s.opens(2, uint16(1000+n), 1)
	}
	s.after(ms)
	s.flows("100", 100, 100)
	s.want("another pair", s.opens(3, 1, 1), "3>1:1461 1>3:67500")
}

// FQ-8: a RST ends both directions. FQ-9: retransmissions do not count. FQ-1: no count falls below 0.
func TestFQ8_RST(t *testing.T) {
	s := newScript(t, nil)
	for range 3 {
		s.opens(2, 1000, 1)
	}
	s.flows("retransmitted handshake", 1, 1)
	for range 2 {
		s.sends(1, 2, [2]uint16{80, 1000}, fabric.FlagRST)
	}
	s.closes(2, false)
	s.flows("reset", 0, 0)
	if len(s.l.conns) != 0 {
		t.Error("the connection is still known")
	}
	s.want("the same ports again", s.opens(2, 1000, 1), "2>1:67500 1>2:67500")
}

// A connection counts once both its SYN and its SYN-ACK were copied, whichever the controller sees first. One whose FINs are lost counts
// until it was silent for `idle`.
func TestLostCopies(t *testing.T) {
	s := newScript(t, func(p *Params) { p.Idle = 60e9 })
	answer := func() string { return s.sends(1, 2, [2]uint16{80, 1000}, fabric.FlagSYN|fabric.FlagACK) }
	s.want("no SYN", answer(), "")
	s.after(handshake)
	s.want("too late", s.sends(2, 1, [2]uint16{1000, 80}, fabric.FlagSYN), "")
	s.after(handshake)
	s.want("too late", answer(), "")
	s.flows("neither", 0, 0)
	s.want("the SYN after its answer", s.sends(2, 1, [2]uint16{1000, 80}, fabric.FlagSYN), "2>1:67500 1>2:67500")
	s.flows("both", 1, 1)
	s.after(59 * time.Second)
	s.flows("almost", 1, 1)
	s.after(time.Second)
	s.flows("idle", 0, 0)
	if c := s.l.Counts(); c.Idle != 1 || len(s.l.conns)+s.l.byAge.Len()+len(s.l.shares)+len(s.l.halves)+s.l.halvesByAge.Len() != 0 {
		t.Errorf("%+v", c)
	}
	s.after(time.Duration(s.l.p.Lease))
	if len(s.l.pairs)+len(s.l.every)+s.l.granted.Len()+s.l.unused.Len() != 0 || s.law.Wake() != 0 {
		t.Errorf("%d pairs, wakes at %v", len(s.l.pairs), s.law.Wake())
	}
	if len(s.l.stations) != 2 || s.l.empty.Len() != 2 {
		t.Errorf("%d stations, %d of them empty", len(s.l.stations), s.l.empty.Len())
	}
}

// Grants are renewed before they end, while there is a flow. A pair without flows keeps what it has until the lease ends; its next
// flow gets its window at once.
func TestLease(t *testing.T) {
	s := newScript(t, func(p *Params) { p.Lease = 3e9 }) // renewed each third of law.LeaseMost
	s.opens(2, 1000, 1)
	s.want("before", s.after(333*ms), "")
	s.want("renewed", s.after(ms), "2>1:67500 1>2:67500")
	s.closes(2, false)
	s.want("only the other", s.after(334*ms), "1>2:67500")
	s.want("a new flow", s.opens(2, 1001, 1), "2>1:67500 1>2:33750")
	s.sends(2, 1, [2]uint16{1001, 80}, fabric.FlagRST)
	s.sends(2, 1, [2]uint16{1000, 80}, fabric.FlagRST)
	s.want("none", s.after(10*time.Second), "")
	if len(s.l.pairs) != 0 {
		t.Errorf("%d pairs", len(s.l.pairs))
	}
}

// A VM moves to another host, and the new host reports first: it gets its grants when the old one gives the VM up. A host that restarts gets them again. A VM that
// is gone gets none.
func TestHosts_Move(t *testing.T) {
	s := newScript(t, nil)
	s.opens(2, 1000, 1)
	s.after(ms)
	s.want("the new host reports first, and the old one has the VM", s.host(3, 2, 3), "")
	s.want("the old one gives it up", s.host(2), "2>1:67500")
	s.want("the host restarts", s.host(3, 2, 3), "2>1:67500")
	s.want("the host is silent", s.step(&inventory.HostLeft{At: 3}), "")
	s.want("no renewal", s.after(334*ms), "1>2:67500")
	s.want("it is back", s.host(2, 2), "2>1:67500")
	s.want("a peer that is no VM counts", s.opens(9, 1, 1), "1>9:67500 2>1:33750")
	if n := s.l.Counts().Unknown; n != 1 {
		t.Errorf("%d unknown", n)
	}
}

// The VM sends SYNs from another port: its flows count there.
func TestStations_Move(t *testing.T) {
	s := newScript(t, nil)
	s.opens(2, 1000, 1)
	s.opens(2, 1001, 1)
	s.opens(3, 1000, 4)
	s.flows("before", 2, 2, 1, 1)
	s.after(ms)
	s.want("moves to port 4", s.sendsAt(4, 1, 5, [2]uint16{7, 80}, fabric.FlagSYN), "3>4:22500 2>1:22500")
	s.flows("after", 0, 2, 1, 3)
	s.sends(2, 1, [2]uint16{1000, 80}, fabric.FlagRST)
	s.flows("after", 0, 1, 1, 2)
}

// An agent's rate and buffer replace those of the file. A port without any is not limited.
func TestCapacity(t *testing.T) {
	s := newScript(t, func(p *Params) { p.Rate, p.Buffer = 0, 0 })
	s.want("unknown", s.opens(2, 1000, 1)+s.after(time.Second), "")
	report := &inventory.Switch{At: 1, Ports: []inventory.Port{{N: 1, Rate: 400e6, BufferBytes: 100_000}, {N: 2, Rate: 1e9}, {N: 3, BufferBytes: 7}}}
	s.want("reported", s.step(report), "2>1:60000")
	s.want("the same again", s.step(report)+s.after(ms), "")
	report.Ports[0].Rate = 800e6
	s.want("changed", s.step(report), "2>1:70000")
}

// A window is sent again when it differs by more than 2 %: of 67,500 / 37 = 1824, the next two are 1776 and 1730.
func TestHysteresis(t *testing.T) {
	for is, limits := range map[uint64][2]uint64{1824: {1788, 1860}, 100: {98, 102}, 0: {0, 0}} {
		for want := range 2 * is {
			if got := differs(is, want); got != (want < limits[0] || want > limits[1]) {
				t.Errorf("%d after %d: %v", want, is, got)
			}
		}
	}
	if !differs(0, 1) {
		t.Error("a first window is no change")
	}
}

// A guest that sends SYN-ACKs without a SYN before, as from its own port to many of a neighbour, does not change the neighbour's windows.
func TestForgedSYNACKs(t *testing.T) {
	s := newScript(t, nil)
	s.want("a connection to the neighbour", s.opens(2, 1000, 1), "2>1:67500 1>2:67500")
	for n := range uint16(1000) {
		s.want("forged", s.sends(3, 1, [2]uint16{80, 2000 + n}, fabric.FlagSYN|fabric.FlagACK), "")
	}
	s.want("update", s.after(10*ms), "")
	s.flows("only the real one", 1, 1, 0)
}

// A VM that opens connections without end displaces its own when the table is full, not the older ones of others.
func TestShares(t *testing.T) {
	s := newScript(t, nil)
	s.law = s.l
	for n := range uint16(10) {
		s.opens(2, 1000+n, 1)
	}
	for n := range maxConnections + 1000 {
		s.sends(3, 4, [2]uint16{uint16(n), uint16(80 + n>>16)}, fabric.FlagSYN)
		s.sends(4, 3, [2]uint16{uint16(80 + n>>16), uint16(n)}, fabric.FlagSYN|fabric.FlagACK)
	}
	if c := s.l.Counts(); c.Evicted != 1010 || len(s.l.conns) != maxConnections {
		t.Errorf("%+v, %d connections", c, len(s.l.conns))
	}
	s.flows("the other VM's connections", 10, 10, maxConnections-10)
	for n := range uint16(10) { // it has most no longer
		s.opens(5, 1000+n, 1)
	}
	s.flows("room for others", 20, 10, maxConnections-20)
	sum := 0
	for vm, sh := range s.l.shares {
		if sum += sh.conns.Len(); sh.vm != vm || sh.conns.Len() > s.l.largest().conns.Len() {
			t.Errorf("VM %d has %d connections, the largest is VM %d", vm, sh.conns.Len(), s.l.largest().vm)
		}
	}
	if sum != len(s.l.conns) {
		t.Errorf("shares of %d connections", sum)
	}
}

// The tables have limits: the oldest connection makes room, and so does the longest unused station.
func TestLimits(t *testing.T) {
	s := newScript(t, nil)
	s.law = s.l
	for n := range maxConnections + 10 {
		s.sends(201+n/200%50, n%200+1, [2]uint16{uint16(n >> 16), uint16(n)}, fabric.FlagSYN)
		s.sends(n%200+1, 201+n/200%50, [2]uint16{uint16(n), uint16(n >> 16)}, fabric.FlagSYN|fabric.FlagACK)
	}
	if c := s.l.Counts(); c.Evicted != 10 || len(s.l.conns) != maxConnections || s.l.byAge.Len() != maxConnections {
		t.Errorf("%+v, %d connections", c, len(s.l.conns))
	}
	spoof := func(n int) {
		t := fabric.Tuple{Proto: 6, Src: fabric.IPv4{11, byte(n >> 16), byte(n >> 8), byte(n)}, Dst: fabric.IPv4{10, 0, 0, 1}}
		s.step(&fabric.PacketIn{At: law.Port{Switch: 2, N: uint32(n)}, Kind: fabric.SYN, Frame: fabric.AppendSegment(nil, fabric.MAC{}, fabric.MAC{}, t, fabric.FlagSYN)})
	}
	for n := range maxStations + 1000 {
		spoof(n)
	}
	if len(s.l.stations) != maxStations || len(s.l.ports) != maxPorts || s.l.Counts().TooMany == 0 {
		t.Errorf("%d stations, %d ports", len(s.l.stations), len(s.l.ports))
	}
	if len(s.l.halves) != maxHalves || s.l.halvesByAge.Len() != maxHalves {
		t.Errorf("%d halves of handshakes", len(s.l.halves))
	}
	for n := range 200 { // connections and their flows are still there
		if st := s.l.stations[address(n+1)]; st == nil || st.flows == 0 {
			t.Fatalf("station %d is forgotten", n+1)
		}
	}
}

// Frames that are no segments, and other reasons of packets, change nothing.
func TestCopies_Malformed(t *testing.T) {
	s := newScript(t, nil)
	s.want("nonsense", s.step(&fabric.PacketIn{Kind: fabric.SYN, Frame: make([]byte, 60)}), "")
	s.want("another reason", s.step(&fabric.PacketIn{Kind: fabric.UnknownSource, Frame: make([]byte, 60)}), "")
	if c := s.l.Counts(); c.Malformed != 1 || len(s.l.stations)+len(s.l.ports) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestParams_Check(t *testing.T) {
	for name, change := range map[string]func(*Params){
		"":                 func(*Params) {},
		"update: 10us":     func(p *Params) { p.Update = 10e3 },
		"lease: 5ms":       func(p *Params) { p.Lease = 5e6 },
		"at most":          func(p *Params) { p.Idle = 25 * 3600e9 },
		"set both":         func(p *Params) { p.Rate = 1e9 },
		"buffer 5000MB":    func(p *Params) { p.Rate, p.Buffer = 1e9, 5e9 },
		"rate 20000Gbit: ": func(p *Params) { p.Rate, p.Buffer = 2e13, 1 },
	} {
		p := Default()
		change(p)
		_, err := New(*p, 0)
		if (err == nil) != (name == "") || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The round trip is that of the parameters, else that of the network, else 200 us.
func TestRTT(t *testing.T) {
	for want, given := range map[law.Duration][2]law.Duration{1e6: {1e6, 5e6}, 5e6: {0, 5e6}, 200e3: {0, 0}} {
		p := *Default()
		p.RTT = given[0]
		if l, err := New(p, given[1]); err != nil || l.p.RTT != want {
			t.Errorf("%v, %v, want %v", l.p.RTT, err, want)
		}
	}
}

// The law says in a few words why it granted, without allocation.
func TestExplain(t *testing.T) {
	s := newScript(t, nil)
	if got := string(s.l.Explain(nil)); got != "" {
		t.Errorf("before any grant: %q", got)
	}
	s.opens(2, 1000, 1)
	s.opens(2, 1001, 1)
	s.after(ms)
	room := make([]byte, 0, 100)
	if got := string(s.l.Explain(room)); got != "port 2: 2 flows, 33750 B each" {
		t.Error(got)
	}
	if n := testing.AllocsPerRun(10, func() { s.l.Explain(room) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	s.after(time.Second)
	if got := string(s.l.Explain(room)); got != "port 2: again: 2 flows, 33750 B each" {
		t.Error(got)
	}
}

// The law keeps no borrowed memory, and equal events give equal actions.
func TestKeeps(t *testing.T) {
	lawtest.Keeps(t, func() law.Law {
		p := *Default()
		p.Rate, p.Buffer, p.Idle, p.Lease = 1e9, 125_000, 2e9, 1e9
		l, err := New(p, 0)
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}

// A pair with a flow has a grant at any time, also where agents shorten a lease to a second and an experiment makes it longer.
func TestLease_AgentsShortenIt(t *testing.T) {
	for _, lease := range []law.Duration{100e6, 1e9, 40e9} {
		s := newScript(t, func(p *Params) { p.Lease = lease })
		s.opens(2, 1000, 1)
		ends := min(time.Duration(lease), time.Second)
		for range 20 {
			before := s.now
			wake := s.law.Wake()
			if wake-before > ends*2/3 {
				t.Fatalf("lease %v: after %v it sleeps until %v", lease, before, wake)
			}
			s.now = wake
			s.want(fmt.Sprint("lease ", lease), s.step(law.Tick{}), "2>1:67500 1>2:67500")
		}
	}
}
