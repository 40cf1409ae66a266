//go:build cgo

package sim

import (
	"testing"
	"time"

	"weir/experiment"
	"weir/experiment/result"
	"weir/law"
	"weir/law/droptail"
	"weir/law/lawtest"
	"weir/law/mark"
	"weir/law/telemetry"
	"weir/sim/control"
	"weir/sim/event"
	"weir/sim/laws"
	"weir/sim/network"
)

// adder is a law that sums its events. It passes its sums on as actions, so that lawtest can compare them.
type adder struct {
	sum telemetry.Port
	c   telemetry.Counts
	vms uint64
	n   uint64
}

// sums is adder's action.
type sums struct {
	Backlog, Packets, Bytes, Sent, Drops, Marks, ByVM, Readings uint64
	Counts                                                      telemetry.Counts
	Kinds                                                       telemetry.Kind
}

func (sums) LawAction() {}

func (l *adder) Step(_ time.Duration, e law.Event, out []law.Action) []law.Action {
	var kinds telemetry.Kind
	switch e := e.(type) {
	case *telemetry.Telemetry:
		l.n++
		l.sum.BacklogBytes = 0
		for i := range e.Ports {
			p := &e.Ports[i]
			l.sum.Packets += p.Packets
			l.sum.Bytes += p.Bytes
			l.sum.SentBytes += p.SentBytes
			l.sum.Drops += p.Drops
			l.sum.BacklogBytes += p.BacklogBytes
			l.sum.Marks.Packets += p.Marks.Packets
			for _, m := range p.Marks.ByVM {
				l.vms += m.Packets * uint64(m.VM)
			}
		}
	case *telemetry.Arrivals:
		for i := range e.Ports {
			a := &e.Ports[i]
			l.c.Add(telemetry.SYN, a.Counts.SYN)
			l.c.Add(telemetry.SYNACK, a.Counts.SYNACK)
			l.c.Add(telemetry.FIN, a.Counts.FIN)
			l.c.Add(telemetry.RST, a.Counts.RST)
			l.c.Add(telemetry.Resume, a.Counts.Resume)
			l.c.Add(telemetry.Found, a.Counts.Found)
			l.c.Add(telemetry.Request, a.Counts.Request)
			for _, p := range a.Pairs {
				kinds |= p.Kinds
			}
		}
	default:
		return out
	}
	s := &l.sum
	return append(out, sums{s.BacklogBytes, s.Packets, s.Bytes, s.SentBytes, s.Drops, s.Marks.Packets, l.vms, l.n, l.c, kinds})
}

func (l *adder) Wake() time.Duration { return 0 }

// summed is the law with telemetry at every port of the switches, and its last sums.
type summed struct {
	laws.Quiet
	net   *network.Network
	tel   *laws.Telemetry
	ports []*network.Port
	last  sums
	kinds telemetry.Kind
	check func(*summed)
}

func (s *summed) Enforce(_ event.Time, a law.Action) error {
	s.last = a.(sums)
	s.kinds |= s.last.Kinds
	return nil
}

// Close makes the last reading.
func (s *summed) Close() {
	s.tel.Read(s.net.Queue.Now())
	s.tel.Close()
	s.check(s)
}

// putAdder returns the simulator's laws with `adder`, which check examines at the end of a run.
func putAdder(t *testing.T, check func(*summed)) (*experiment.Laws, laws.Laws) {
	put := func(n *network.Network, r *experiment.Run, name string) (laws.Attached, error) {
		m, err := laws.NewMessenger(n, r, name)
		if err != nil {
			return nil, err
		}
		s := &summed{net: n, check: check, ports: n.SwitchPorts(r.At)}
		site, err := m.Add(control.SiteOptions{Name: "switch", Law: lawtest.Checked(t, &adder{}, &adder{}), Enforcer: s})
		if err != nil {
			return nil, err
		}
		s.tel, err = laws.NewTelemetry(n.Queue, s.ports, laws.TelemetryOptions{
			At: 1, Every: law.Duration(5 * time.Millisecond), Idle: law.Duration(20 * time.Millisecond),
			Signals: []law.Signal{law.Backlog, law.Marks, law.Drops, law.Arrivals},
			VM:      func(network.NodeID) law.VM { return 3 }, Address: addr, To: site.Event,
		})
		return s, err
	}
	spec := law.Spec{Name: "adder", Worlds: []string{experiment.WorldSim}, Sites: []law.Site{law.SwitchPort}, Params: func() any { return &struct{}{} }}
	both := func(s law.Spec) experiment.Law { return experiment.Law{Spec: s, Built: law.BothWorlds()} }
	all := experiment.NewLaws(both(droptail.Spec()), both(mark.ECNSpec()), both(spec))
	return all, laws.Laws{"droptail": laws.DropTail(), mark.ECN: laws.Mark(), "adder": {Put: put}}
}

const telemetryFile = `id: telemetry
duration: 2s
seeds: [1]
worlds: [sim]
topology: {kind: dumbbell, senders: 4, receivers: 1, hypervisors: false}
network: {rate: 50Mbit, rtt: 400us, buffer: 30KB}
guests: {cc: reno}
traffic:
  - {name: long, from: "sender1..2", to: receiver1, pattern: bulk, stop: 1s}
  - {name: short, from: "sender*", to: receiver1, data: pull, pattern: burst, size: 11.5KB, start: 100ms, every: 100ms, epochs: 10, gap: 24us}
schemes: [{name: adder}]
`

// A law that sums the telemetry of a switch reaches the totals of the simulator's own counters: bytes, drops, marks, backlog.
// Every connection arrives once. Reading with another period changes nothing.
func TestTelemetry_TotalsAreTheSimulators(t *testing.T) {
	for _, scheme := range []string{"[{name: adder}]", "[{name: both, laws: [ecn, adder], params: {threshold: 15KB}}]"} {
		checked := false
		all, build := putAdder(t, func(s *summed) {
			checked = true
			var want sums
			for _, p := range s.ports {
				c := p.Counters()
				want.Packets += uint64(c.In.Packets - c.Law.Packets - c.Down.Packets)
				want.Bytes += uint64(c.In.Bytes - c.Law.Bytes - c.Down.Bytes)
				want.Sent += uint64(c.Sent.Bytes)
				want.Drops += uint64(c.Tail.Packets)
				want.Backlog += uint64(c.Queued.Bytes)
				want.Marks += uint64(c.Marks + c.MarksDropped) // a law does not see that a packet is dropped behind it
			}
			got := s.last
			if got.Packets != want.Packets || got.Bytes != want.Bytes || got.Sent != want.Sent || got.Drops != want.Drops || got.Backlog != want.Backlog {
				t.Errorf("%s: %+v, the ports counted %+v", scheme, got, want)
			}
			if got.Marks != want.Marks || got.ByVM != 3*want.Marks || (want.Marks > 0) == (len(scheme) < 20) {
				t.Errorf("%s: %d marks, %d by VM, the ports counted %d", scheme, got.Marks, got.ByVM, want.Marks)
			}
			if want.Drops == 0 || got.Readings < 200 {
				t.Errorf("%s: %d drops, %d readings: the run shows nothing", scheme, want.Drops, got.Readings)
			}
			t.Logf("%s: %+v", scheme, got)
			c := got.Counts
			// 2 long flows, and 40 short ones.
			if c.SYN != 42 || c.SYN != c.SYNACK || c.Found != 0 || s.kinds&(telemetry.SYN|telemetry.SYNACK|telemetry.Request) == 0 {
				t.Errorf("%s: arrivals %+v, kinds of pairs %#x", scheme, c, s.kinds)
			}
		})
		f, err := all.Parse("telemetry.yaml", []byte(telemetryFile))
		if err == nil {
			f, err = f.With([]string{"schemes=" + scheme, "guests.cc=dctcp"})
		}
		if err != nil {
			t.Fatal(err)
		}
		plan, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldSim}})
		if err != nil {
			t.Fatal(err)
		}
		var raw *result.Raw
		if raw, err = (&World{Laws: build}).Run(t.Context(), plan.Runs[0], quiet{}); err != nil {
			t.Fatal(err)
		}
		if !checked || len(raw.Flows) == 0 {
			t.Errorf("%s: the law was not closed, or nothing was sent", scheme)
		}
	}
}
