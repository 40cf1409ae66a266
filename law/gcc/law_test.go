package gcc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/inventory"
	"weir/law/lawtest"
	"weir/law/telemetry"
)

const ms = time.Millisecond

// script drives the controller's half.
type script struct {
	t   *testing.T
	l   *Law
	law law.Law
	now time.Duration
}

func newScript(t *testing.T, change func(*Config)) *script {
	t.Helper()
	p := Default()
	if change != nil {
		change(p)
	}
	l, err := New(*p)
	if err != nil {
		t.Fatal(err)
	}
	twin, err := New(*p)
	if err != nil {
		t.Fatal(err)
	}
	return &script{t, l, lawtest.Checked(t, l, twin), 0}
}

// marks is a port with marks of these VMs.
func marks(n uint32, all uint64, by ...telemetry.VMMarks) telemetry.Port {
	return telemetry.Port{N: n, Marks: telemetry.Marks{Packets: all, ByVM: by}}
}

// of is marks of a VM.
func of(vm law.VM, n uint64) telemetry.VMMarks { return telemetry.VMMarks{VM: vm, Packets: n} }

// reads has a switch report after an interval, and returns the messages: VM and marks.
func (s *script) reads(at law.Switch, ports ...telemetry.Port) string {
	s.t.Helper()
	s.now += 5 * ms
	var out []string
	for _, a := range s.law.Step(s.now, &telemetry.Telemetry{At: at, T: 5 * ms, Ports: ports}, nil) {
		g := a.(law.Grant)
		if g.Kind != law.MarksGrant || g.Lease <= 0 {
			s.t.Errorf("%+v: want marks with a lease", g)
		}
		out = append(out, fmt.Sprintf("%d:%.2f", g.Key.VM, float64(g.Value)/telemetry.OneMark))
	}
	return strings.Join(out, " ")
}

func (s *script) expect(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Switches report new marks, so each reading counts as it is. TestGC1_NewMinusOld has the difference of two totals.
func TestReadings_CountAsTheyAre(t *testing.T) {
	s := newScript(t, nil)
	for _, n := range []uint64{8, 8, 0, 4} {
		want := ""
		if n > 0 {
			want = fmt.Sprintf("1:%.2f", float64(n))
		}
		s.expect("reading", s.reads(1, marks(1, n, of(1, n))), want)
	}
}

// GC-2: each port divides by its own sources. With the printed beta, which is never reset, the second port's marks are divided by the
// sources of both.
func TestGC2_SourcesOfEachPort(t *testing.T) {
	s := newScript(t, nil)
	ours := s.reads(1, marks(1, 12, of(1, 4), of(2, 4), of(3, 4)), marks(2, 12, of(4, 12)))
	s.expect("two ports", ours, "1:4.00 2:4.00 3:4.00 4:12.00")
	printed, beta := "", 0
	for _, sources := range [][]int{{1, 2, 3}, {4}} { // of each port
		beta += len(sources)
		for _, vm := range sources {
			printed += fmt.Sprintf("%d:%.2f ", vm, 12/float64(beta))
		}
	}
	s.expect("printed", printed, "1:4.00 2:4.00 3:4.00 4:3.00 ")
}

// GC-3: a VM that sends by two ports is a source of both. The printed table keeps its last destination only.
func TestGC3_SeveralDestinations(t *testing.T) {
	s := newScript(t, nil)
	s.reads(1, marks(1, 2, of(1, 1), of(2, 1)))
	s.reads(1, marks(2, 2, of(1, 2)))
	s.expect("the first port again", s.reads(1, marks(1, 10, of(2, 10))), "1:5.00 2:5.00")
	printed := map[law.VM]uint32{1: 2, 2: 1} // VM 1 sent by port 2 last
	n := 0
	for _, at := range printed {
		if at == 1 {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the printed table has %d sources of port 1", n)
	}
}

// GC-4: marks are divided by all sources of the port, and what is left over counts later: 2 marks an interval among 3 sources are
// 200 marks after 100 intervals. Integers (the published code) would send none.
func TestGC4_NothingIsLost(t *testing.T) {
	s := newScript(t, nil)
	sent, integers, marked, sources := 0.0, uint64(0), uint64(2), uint64(3)
	s.reads(1, marks(1, 3, of(1, 1), of(2, 1), of(3, 1)))
	for range 100 {
		s.now += 5 * ms
		for _, a := range s.law.Step(s.now, &telemetry.Telemetry{At: 1, T: 5 * ms, Ports: []telemetry.Port{marks(1, 2, of(1, 1), of(2, 1), of(3, 0))}}, nil) {
			sent += float64(a.(law.Grant).Value) / telemetry.OneMark
		}
		integers += marked / sources
	}
	if sent < 200-3.0/telemetry.OneMark || sent > 200 || integers != 0 {
		t.Errorf("sent %v of 200 marks; with integers %d", sent, integers)
	}
}

// GC-4, GC-5: the messages of a port add up to its marks. The published code divides by the sources of each destination, and two
// destinations of both sources get twice the marks. Listing 9 prints the undivided count in each message. The bytes of ours are in
// TestIP_Vectors and TestCarryMarks.
func TestGC4_GC5_MessagesAddUp(t *testing.T) {
	s := newScript(t, nil)
	s.expect("two sources", s.reads(1, marks(1, 12, of(1, 6), of(2, 6))), "1:6.00 2:6.00")
	code, listing := 0, 0
	for _, sources := range [][]int{{1, 2}, {1, 2}} { // of each destination
		for range sources {
			code += 12 / len(sources)
			listing += 12
		}
	}
	if code != 24 || listing != 48 {
		t.Errorf("of 12 marks the code sends %d, Listing 9 %d", code, listing)
	}
}

// GC-6: all ports of all switches. The published code reads one port of one switch: one of these six messages.
func TestGC6_AllPorts(t *testing.T) {
	s := newScript(t, nil)
	for sw := law.Switch(1); sw <= 3; sw++ {
		s.expect(fmt.Sprint("switch ", sw), s.reads(sw, marks(7, 4, of(1, 4)), marks(9, 2, of(2, 2))), "1:4.00 2:2.00")
	}
	if c := s.l.Counts(); c.Sent != 6 {
		t.Errorf("%d messages, want 6", c.Sent)
	}
}

// A VM that two congested ports limit gets one message with the sum.
func TestOneMessageForEachVM(t *testing.T) {
	s := newScript(t, nil)
	s.expect("sum", s.reads(1, marks(1, 4, of(1, 2), of(2, 2)), marks(2, 6, of(1, 6))), "1:8.00 2:2.00")
}

// The paper divides equally, whoever caused the congestion; by_vm gives each VM its own.
func TestDivide(t *testing.T) {
	uneven := func() telemetry.Port { return marks(1, 100, of(1, 10), of(2, 90)) }
	s := newScript(t, nil)
	s.expect("equal", s.reads(1, uneven()), "1:50.00 2:50.00")
	s = newScript(t, func(p *Config) { p.Divide = ByVM })
	s.expect("by_vm", s.reads(1, uneven()), "1:10.00 2:90.00")
	s.expect("by_vm, nothing left", s.reads(1, marks(1, 5, of(2, 5))), "2:5.00")
	p := uneven()
	p.Marks.Unknown, p.Marks.Rest = 3, 4
	s.reads(1, p)
	if c := s.l.Counts(); c.Unknown != 7 {
		t.Errorf("%+v: want 7 unknown", c)
	}
}

// A VM stays a source for the time of inactivity.
func TestSources_Expire(t *testing.T) {
	s := newScript(t, func(p *Config) { p.Inactivity = 20e6 })
	s.reads(1, marks(1, 2, of(1, 1), of(2, 1)))
	s.expect("5 ms later", s.reads(1, marks(1, 2, of(1, 2))), "1:1.00 2:1.00")
	s.now += 10 * ms
	s.expect("20 ms later", s.reads(1, marks(1, 2, of(1, 2))), "1:2.00")
	s.now += 100 * ms
	s.expect("marks of nobody known", s.reads(1, marks(1, 2)), "")
	if c := s.l.Counts(); c.Nobody != 2 {
		t.Errorf("%+v: want 2 marks of nobody", c)
	}
}

// A switch that left is forgotten, and the tables have limits.
func TestTables_Limits(t *testing.T) {
	s := newScript(t, nil)
	s.reads(1, marks(1, 2, of(1, 1), of(2, 1)))
	s.law.Step(s.now, &inventory.SwitchLeft{At: 1}, nil)
	s.expect("after it came back", s.reads(1, marks(1, 2, of(1, 2))), "1:2.00")
	for vm := range law.VM(maxSources) {
		s.l.learn(s.now, s.l.ports[law.Port{Switch: 1, N: 1}], []telemetry.VMMarks{of(vm+1, 1)})
	}
	s.l.learn(s.now, s.l.ports[law.Port{Switch: 1, N: 1}], []telemetry.VMMarks{of(maxSources+1, 1)})
	if n := len(s.l.ports[law.Port{Switch: 1, N: 1}].sources); n != maxSources || s.l.Counts().TooMany != 1 {
		t.Errorf("%d sources, %+v", n, s.l.Counts())
	}
	for n := range maxPorts {
		s.l.port(law.Port{Switch: 2, N: uint32(n)})
	}
	if s.l.port(law.Port{Switch: 3, N: 1}) != nil {
		t.Error("a port above the limit has a state")
	}
}

// Impossible numbers do not wrap.
func TestMarks_Large(t *testing.T) {
	s := newScript(t, nil)
	most := fmt.Sprintf("1:%d.00", int64(telemetry.MaxMarks))
	s.expect("one port", s.reads(1, marks(1, 1<<63, of(1, 1<<63))), most)
	s.expect("two ports", s.reads(1, marks(1, 1<<63, of(1, 1<<63)), marks(2, 1<<63, of(1, 1))), most)
}

func TestLaw_KeepsNothingBorrowed(t *testing.T) {
	lawtest.Keeps(t, func() law.Law {
		l, err := New(*Default())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}, func(t *rapid.T) law.Event { return drawnReport(t, 4) })
}

// drawnReport draws a report with few ports and VMs.
func drawnReport(t *rapid.T, vms int) *telemetry.Telemetry {
	e := &telemetry.Telemetry{At: law.Switch(rapid.IntRange(1, 2).Draw(t, "switch")), T: 5 * ms}
	for n := range uint32(rapid.IntRange(1, 3).Draw(t, "ports")) {
		p := telemetry.Port{N: n + 1}
		for vm := range law.VM(vms) {
			if n := rapid.Uint64Range(0, 40).Draw(t, "marks"); n > 20 {
				p.Marks.ByVM = append(p.Marks.ByVM, of(vm+1, n-20))
				p.Marks.Packets += n - 20
			}
		}
		p.Marks.Unknown = rapid.Uint64Range(0, 3).Draw(t, "unknown")
		p.Marks.Packets += p.Marks.Unknown
		e.Ports = append(e.Ports, p)
	}
	return e
}

// model divides marks, slow and obvious: it remembers all reports, and passes the units of a mark around one by one.
type model struct {
	p       Config
	reports []reported
}

type reported struct {
	at time.Duration
	e  *telemetry.Telemetry
}

// sources are the VMs with a marked packet at a port in the time before the n-th report.
func (m *model) sources(port law.Port, n int) (out []law.VM) {
	for vm := law.VM(1); vm < 20; vm++ {
		for _, r := range m.reports[:n+1] {
			if r.e.At != port.Switch || m.reports[n].at-r.at >= time.Duration(m.p.Inactivity) {
				continue
			}
			for _, p := range r.e.Ports {
				for _, v := range p.Marks.ByVM {
					// A port without marks at all is not looked at.
					if p.N == port.N && v.VM == vm && len(out) < 1000 && (len(out) == 0 || out[len(out)-1] != vm) {
						out = append(out, vm)
					}
				}
			}
		}
	}
	return out
}

// messages returns what each VM gets for the last report.
func (m *model) messages() map[law.VM]int {
	last := m.reports[len(m.reports)-1]
	got := map[law.VM]int{}
	for _, p := range last.e.Ports {
		if m.p.Divide == ByVM {
			for _, v := range p.Marks.ByVM {
				got[v.VM] += int(v.Packets) * telemetry.OneMark
			}
			continue
		}
		pot := 0 // units that wait for a full round, from the first report on
		for i, r := range m.reports {
			for _, q := range r.e.Ports {
				if r.e.At != last.e.At || q.N != p.N || q.Marks.Packets == 0 {
					continue
				}
				to := m.sources(law.Port{Switch: r.e.At, N: q.N}, i)
				if len(to) == 0 {
					continue
				}
				for pot += int(q.Marks.Packets) * telemetry.OneMark; pot >= len(to); pot -= len(to) {
					for _, vm := range to {
						if r == last {
							got[vm]++
						}
					}
				}
			}
		}
	}
	return got
}

// The law divides as the model does.
func TestLaw_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Default()
		p.Divide = rapid.SampledFrom([]string{Equal, ByVM}).Draw(t, "divide")
		p.Inactivity = law.Duration(rapid.IntRange(10, 60).Draw(t, "inactivity")) * law.Duration(ms)
		l, err := New(*p)
		if err != nil {
			t.Fatal(err)
		}
		m := &model{p: *p}
		now := time.Duration(0)
		for range rapid.IntRange(1, 15).Draw(t, "reports") {
			now += time.Duration(rapid.IntRange(0, 40).Draw(t, "ms")) * ms
			e := drawnReport(t, 5)
			m.reports = append(m.reports, reported{now, e})
			want := m.messages()
			for vm, n := range want {
				if n == 0 {
					delete(want, vm)
				}
			}
			last := law.VM(0)
			for _, a := range l.Step(now, e, nil) {
				g := a.(law.Grant)
				if g.Key.VM <= last {
					t.Fatalf("VM %d after VM %d: one message each, in order", g.Key.VM, last)
				}
				last = g.Key.VM
				if int(g.Value) != want[g.Key.VM] {
					t.Fatalf("at %v VM %d gets %d units, want %d", now, g.Key.VM, g.Value, want[g.Key.VM])
				}
				delete(want, g.Key.VM)
			}
			if len(want) > 0 {
				t.Fatalf("at %v these get nothing: %v", now, want)
			}
		}
	})
}

// A step costs the same however long the law runs, and allocates for its actions only.
func TestLaw_Allocations(t *testing.T) {
	s := newScript(t, nil)
	e := &telemetry.Telemetry{At: 1, T: 5 * ms, Ports: []telemetry.Port{marks(1, 8, of(1, 4), of(2, 4))}}
	out := make([]law.Action, 0, 8)
	s.l.Step(0, e, out)
	if n := testing.AllocsPerRun(100, func() { s.l.Step(0, e, out[:0]) }); n > 2 {
		t.Errorf("%v allocations for 2 messages", n)
	}
}
