package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"weir/experiment"
	"weir/sim/event"
	"weir/sim/network"
)

var (
	seeds    = flag.Int("seeds", 150, "how many random experiments TestRandom runs")
	fromSeed = flag.Int64("from-seed", 1, "the first of them")
)

// drawn makes the text of an experiment from a source of randomness.
type drawn struct{ *rand.Rand }

func (d drawn) of(list ...string) string  { return list[d.IntN(len(list))] }
func (d drawn) between(from, to int) int  { return from + d.IntN(to-from+1) }
func (d drawn) maybe(text string) string  { return d.of("", text) }
func (d drawn) count(from, to int) string { return fmt.Sprint(d.between(from, to)) }
func (d drawn) ms(from, to int) string    { return d.count(from, to) + "ms" }
func (d drawn) flag() string              { return d.of("true", "false") }

func (d drawn) topology() (text, from, to string) {
	switch d.IntN(5) {
	case 0:
		return fmt.Sprintf("kind: racks, racks: %d, servers: %d", d.between(2, 3), d.between(1, 3)), "rack1.server*", "rack2.server*"
	case 1:
		return fmt.Sprintf("kind: leaf_spine, leaves: %d, spines: %d, servers: %d, routing: %s", d.between(2, 3), d.between(1, 4), d.between(1, 3), d.of("ecmp", "single")), "rack1.server*", "rack2.server*"
	case 2:
		return fmt.Sprintf("kind: fat_tree, cores: %d, aggs: %d, tors: %d, servers: %d", d.between(1, 3), d.between(1, 3), d.between(2, 3), d.between(1, 2)), "rack1.server*", "rack2.server*"
	case 3:
		return fmt.Sprintf("kind: chain, hops: %d, senders: %d, receivers: 1", d.between(1, 3), d.between(1, 2)), "switch1.sender*", "switch2.receiver1"
	}
	return fmt.Sprintf("kind: dumbbell, senders: %d, receivers: %d", d.between(1, 6), d.between(1, 2)), "sender*", "receiver*"
}

func (d drawn) traffic(i int, from, to string) string {
	head := fmt.Sprintf("{name: t%d, from: %q, to: %q, start: %s, cc: %s, sack: %s, ecn: %s, initial_window: %s", i, from, to, d.ms(0, 50),
		d.of("reno", "cubic", "dctcp", "d2tcp", "newreno", "sack"), d.flag(), d.flag(), d.count(1, 20))
	size := d.of("1B", "1448B", "10KB", "100KB", "1MB")
	how := d.maybe(", data: pull") + d.maybe(", connection: persistent") + d.maybe(", give_up: 300ms") + d.maybe(", deadline: 20ms")
	switch d.IntN(6) {
	case 0:
		return head + ", pattern: bulk, stop: " + d.ms(100, 400) + d.maybe(", data: pull") + "}"
	case 1:
		return head + ", pattern: burst, size: " + size + ", epochs: " + d.count(2, 3) + ", every: " + d.ms(1, 100) + how + d.maybe(", gap: 24us") + "}"
	case 2:
		return head + ", pattern: closed_loop, size: " + size + ", requests: " + d.count(1, 9) + ", concurrency: " + d.count(1, 3) + how + "}"
	case 3:
		return head + ", pattern: poisson, load: 0.2, size: 20KB, stop: 200ms" + how + "}"
	case 4:
		return fmt.Sprintf("{name: t%d, from: %q, to: %q, proto: udp, pattern: cbr, rate: %s, stop: %s%s}", i, from, to, d.of("1Mbit", "50Mbit"), d.ms(60, 300), d.maybe(", size: 30KB"))
	}
	return head + ", pattern: cbr, rate: " + d.of("1Mbit", "20Mbit") + ", stop: " + d.ms(100, 400) + "}"
}

func (d drawn) file() string {
	topology, from, to := d.topology()
	items := []string{}
	for i := range d.between(1, 3) {
		items = append(items, d.traffic(i, from, to))
	}
	return fmt.Sprintf(`id: random
duration: 500ms
topology: {%s, hypervisors: %s}
network: {rate: %s, rtt: %s, buffer: %s}
guests: {delayed_ack: %s, rto_min: %s, initial_rto: %s}
traffic:
  - %s
schemes: [{name: x, laws: %s}]
`, topology, d.flag(), d.of("10Mbit", "100Mbit", "1Gbit"), d.of("20us", "400us", "5ms"), d.of("3KB", "20KB", "125KB", "1pkt", "30pkt"),
		d.flag(), d.of("1ms", "200ms"), d.of("10ms", "1s"), strings.Join(items, "\n  - "),
		d.of("[droptail]", "[droptail]", "[ecn], params: {threshold: 6KB}", "[red], params: {threshold: 5pkt}"))
}

// flap takes a link down, or up again.
type flap struct {
	port *network.Port
	ev   event.Event
	down bool
}

func (f *flap) Happen(*event.Event, event.Time) { f.port.SetDown(f.down) }

// After losses and flaps the network heals; then every flow ends, no packet is left anywhere, and what every port got it
// has sent or dropped. Whatever happened, no queue was above its buffer, and no flow has more or fewer bytes than it
// should.
func TestRandom_NothingIsLostOfWhatMustHold(t *testing.T) {
	for seed := *fromSeed; seed < *fromSeed+int64(*seeds); seed++ {
		d := drawn{event.NewRandom(seed, "random experiment")}
		text := d.file()
		replay := fmt.Sprintf("go test ./sim -run TestRandom -from-seed %d -seeds 1", seed)
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v\n%s\n%s", p, replay, text)
					panic(p)
				}
			}()
			for _, fault := range randomRun(t, d, text, seed) {
				t.Errorf("%s\n%s\n%s", fault, replay, text)
			}
		}()
		if t.Failed() {
			return
		}
	}
}

// healed is when nothing is lost any more, and patience how long flows may take after it: SYNs are given up after 127 s
// with an initial RTO of 1 s, and an RTO may have grown to 120 s.
const (
	healed   = 300 * event.Millisecond
	patience = 1000 * event.Second
)

func randomRun(t *testing.T, d drawn, text string, seed int64) (faults []string) {
	t.Helper()
	fault := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(format, a...)) }
	f, err := experiment.Parse("random.yaml", []byte(text))
	if err != nil {
		return []string{err.Error()}
	}
	plan, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, AssumeAll: true, Seeds: []int64{seed}})
	if err != nil {
		return []string{err.Error()}
	}
	r := plan.Runs[0]
	r.Config.Ports = map[string]string{}
	for i, l := range r.Config.Graph.Links { // all queues are looked at
		if l.Rate > 0 {
			r.Config.Ports[fmt.Sprintf("p%d", i)] = experiment.PortName(l.B, l.A)
		}
	}
	if err := (&World{}).Check(r); err != nil {
		return []string{err.Error()}
	}
	s, err := build(r)
	if err != nil {
		return []string{err.Error()}
	}
	lossiness := []int{0, 0, 1, 5, 30}[d.IntN(5)]
	s.net.Loss(func(*network.Port, *network.Packet) bool { return s.queue.Now() < healed && d.IntN(1000) < lossiness })
	for range d.IntN(3) {
		s.flapAt(d, s.net.Ports[d.IntN(len(s.net.Ports))])
	}
	s.rec.begin()
	s.traffic.begin()
	s.traffic.end += patience
	s.until(context.Background(), s.traffic.end, func() bool { return s.traffic.left == 0 }, func(event.Time) {})
	if s.traffic.left != 0 {
		fault("%d flows or loops have not ended", s.traffic.left)
	}
	s.until(context.Background(), s.queue.Now()+patience, func() bool { return s.traffic.open == 0 && s.stack.Open() == 0 && s.net.Lent() == 0 }, func(event.Time) {})
	if s.traffic.open != 0 || s.stack.Open() != 0 || s.net.Lent() != 0 {
		fault("%d connections of programs, %d of the stack and %d packets are left", s.traffic.open, s.stack.Open(), s.net.Lent())
	}
	s.traffic.finish(true)
	s.checkFlows(fault)
	s.checkPorts(fault)
	return faults
}

// flapAt takes a link down at some time before the network has healed.
func (s *simulation) flapAt(d drawn, p *network.Port) {
	from := event.Time(d.Int64N(int64(healed) - 1))
	until := from + 1 + event.Time(d.Int64N(int64(healed-from)))
	down, up := &flap{port: p, down: true}, &flap{port: p}
	for at, f := range map[event.Time]*flap{from: down, until: up} { // any order: the times differ
		f.ev.Init(f)
		s.queue.Set(&f.ev, at)
	}
}

func (s *simulation) checkFlows(fault func(format string, a ...any)) {
	for i := range s.traffic.results {
		f := &s.traffic.results[i]
		sum := int64(0)
		for k, v := range f.Delivered {
			sum += int64(v.Bytes)
			if v.Bytes <= 0 || k > 0 && v.Bin < f.Delivered[k-1].Bin {
				fault("flow %s %d: deliveries %v", f.Item, f.Epoch, f.Delivered)
			}
		}
		if sum != f.Bytes || f.End < f.Start || f.Start < 0 {
			fault("flow %+v: %d bytes in bins", f, sum)
		}
	}
	for _, it := range s.traffic.items {
		if it.Size == 0 {
			continue
		}
		for i := range s.traffic.results {
			f := &s.traffic.results[i]
			if f.Item == it.Name && (f.Bytes > int64(it.Size) || f.Done != (f.Bytes == int64(it.Size))) {
				fault("flow %+v of %v", f, it.Size)
			}
		}
	}
}

func (s *simulation) checkPorts(fault func(format string, a ...any)) {
	for _, p := range s.net.Ports {
		c := p.Counters()
		for _, v := range [][2]int64{
			{c.In.Bytes, c.Sent.Bytes + c.Tail.Bytes + c.Law.Bytes + c.Down.Bytes + c.Held.Bytes},
			{c.In.Packets, c.Sent.Packets + c.Tail.Packets + c.Law.Packets + c.Down.Packets + c.Held.Packets},
			{c.Held.Bytes, 0}, {c.Held.Packets, 0},
		} {
			if v[0] != v[1] {
				fault("port %s: %+v", p.Name, c)
				break
			}
		}
	}
	for _, w := range s.rec.watch {
		limit := w.port.Buffer
		for _, v := range w.samples {
			if v.Backlog < 0 || !limit.Packets && v.Backlog > limit.N || limit.Packets && v.Backlog > limit.N*1514 {
				fault("port %s: %d bytes in a buffer of %v at %v", w.port.Name, v.Backlog, limit, v.At)
				break
			}
		}
	}
}
