package agentd

import (
	"errors"
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/bus/weirv1"
	"weir/datapath/host"
	"weir/internal/alarm"
	"weir/law"
)

// The times of readings stay on one grid, however late they are, and each time that is left out is counted.
func TestFollowing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		begin := 1000 * time.Second
		every := time.Duration(rapid.IntRange(1e6, 1e9).Draw(t, "T"))
		next, now := begin+every, begin
		readings, left := uint64(0), uint64(0)
		for range rapid.IntRange(1, 50).Draw(t, "readings") {
			now = max(now, next) + time.Duration(rapid.Int64Range(0, int64(5*every)).Draw(t, "took"))
			was := next
			var out uint64
			next, out = following(was, now, every)
			readings, left = readings+1, left+out
			if next < was+every || now-next >= every {
				t.Fatalf("after the reading of %v, at %v, comes that of %v: T is %v", was, now, next, every)
			}
		}
		if grid := (next - begin) / every; (next-begin)%every != 0 || uint64(grid) != readings+left+1 {
			t.Fatalf("%d readings, %d left out, and the next is number %d", readings, left, grid)
		}
	})
}

// Readings come every T of the machine's clock, not before their time, until stop.
func TestReadings_Run(t *testing.T) {
	at, err := alarm.New()
	if err != nil {
		t.Fatal(err)
	}
	const every = time.Millisecond
	stop, began, times := make(chan struct{}), clock(), []time.Duration(nil)
	r := newReadings(&fakeBus{}, slog.New(slog.DiscardHandler), every)
	r.run(at, stop, func() time.Duration {
		if times = append(times, clock()); len(times) == 5 {
			close(stop)
		}
		return every
	})
	for i, is := range times {
		if early := began + time.Duration(i)*every - is; early > 0 {
			t.Errorf("reading %d is %v too early", i+1, early)
		}
	}
	if len(times) < 5 {
		t.Errorf("%d readings", len(times))
	}
}

// An agent of a host alone uses one processor, unless the operator says otherwise. That of a switch reads counters while it does other work.
func TestOneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	for _, row := range []struct {
		c    Config
		set  string
		want int
	}{{Config{Host: &Host{}, Switch: &Switch{}}, "", 2}, {Config{Host: &Host{}}, "2", 2}, {Config{Host: &Host{}}, "", 1}} {
		t.Setenv("GOMAXPROCS", row.set)
		row.c.OneProcessor()
		if n := runtime.GOMAXPROCS(0); n != row.want {
			t.Errorf("%d processors with GOMAXPROCS=%q, want %d", n, row.set, row.want)
		}
	}
}

// fakeBus takes messages as the bus does.
type fakeBus struct {
	events []*weirv1.Events
	down   bool
}

func (f *fakeBus) SendTelemetry(*weirv1.Telemetry) error { return f.result() }

func (f *fakeBus) SendEvents(e *weirv1.Events) error {
	e.Origin = &weirv1.Origin{Incarnation: 1, Sequence: 1}
	b, err := weirv1.Encode(e)
	if err != nil {
		return err
	}
	got, err := weirv1.DecodeEvents(b)
	f.events = append(f.events, got)
	return errors.Join(err, f.result())
}

func (f *fakeBus) result() error {
	if f.down {
		return errors.New("down")
	}
	return nil
}

// Arrivals at very many ports are sent in several messages that the bus takes. None is lost or there twice.
func TestArrivals_ManyPorts(t *testing.T) {
	from, to := netip.MustParseAddr("fd00::1").AsSlice(), netip.MustParseAddr("fd00::2").AsSlice()
	m := &weirv1.Events{Switch: 3}
	for n := range uint32(weirv1.MaxPorts) {
		a := &weirv1.Arrivals{Port: n + 1, Syn: 64}
		for range weirv1.MaxPairs {
			a.Pairs = append(a.Pairs, &weirv1.NewPair{Source: from, Destination: to, Kinds: 1})
		}
		m.Arrivals = append(m.Arrivals, a)
	}
	bus := &fakeBus{}
	r := newReadings(bus, slog.New(slog.DiscardHandler), time.Second)
	r.arrivals(m)
	next := uint32(1)
	for _, e := range bus.events {
		for _, a := range e.GetArrivals() {
			if e.GetSwitch() != 3 || a.GetPort() != next || len(a.GetPairs()) != weirv1.MaxPairs {
				t.Fatalf("port %d of switch %d with %d pairs, want port %d", a.GetPort(), e.GetSwitch(), len(a.GetPairs()), next)
			}
			next++
		}
	}
	if next != weirv1.MaxPorts+1 || r.counts.Lost != 0 || r.counts.Arrivals != uint64(len(bus.events)) || len(bus.events) < 20 {
		t.Errorf("%d ports in %d messages, %+v", next-1, len(bus.events), r.counts)
	}
	bus.down = true
	r.arrivals(&weirv1.Events{Switch: 3, Arrivals: m.GetArrivals()[:1]})
	if r.counts.Lost != 1 {
		t.Errorf("%+v", r.counts)
	}
}

// A grant ends at most a second after the report that its command answers.
func TestLease(t *testing.T) {
	for _, row := range []struct{ lease, age, want time.Duration }{
		{time.Minute, 0, time.Second},
		{time.Minute, 300 * time.Millisecond, 700 * time.Millisecond},
		{500 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond},
		{500 * time.Millisecond, 800 * time.Millisecond, 200 * time.Millisecond},
		{time.Second, 2 * time.Second, 0},
		{0, 0, 0},
	} {
		g := law.Grant{Lease: row.lease}
		if capped := capLease(&g, row.age); g.Lease != row.want || capped != (row.lease > row.want) {
			t.Errorf("a lease of %v at an age of %v: %v, capped %t; want %v", row.lease, row.age, g.Lease, capped, row.want)
		}
	}
}

// Grants that come while nothing is enforced are counted.
func TestGrants_Off(t *testing.T) {
	g := NewGrants(slog.New(slog.DiscardHandler), clock)
	g.Obey(nil, 1, 0, make([]law.Grant, 3))
	g.Obey(nil, 1, 0, make([]law.Grant, 2))
	s := HostStatus{Refused: map[string]uint64{}}
	g.count(&s)
	if s.Refused["off"] != 5 || s.Set != 0 || len(s.Refused) != len(host.Reasons)+2 {
		t.Errorf("%+v", s)
	}
}

func TestDifferences(t *testing.T) {
	type item struct {
		name string
		v    []int
	}
	of := func(i *item) (string, any) { return i.name, i.v }
	got := differences([]item{{"a", []int{1}}, {"b", []int{1}}, {"c", []int{1}}}, []item{{"b", []int{2}}, {"c", []int{1}}, {"d", []int{1}}}, of)
	if want := []string{"b: changed", "d: added", "a: removed"}; len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%q", got)
	}
	if got := least([]string{"a", "b", "c"}, 2); len(got) != 3 || got[2] != "and 1 more" {
		t.Errorf("%q", got)
	}
}
