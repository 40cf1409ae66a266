package sim

import (
	"context"
	"os"
	"reflect"
	"runtime"
	"runtime/pprof"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
)

// speedCase is a workload whose figures are reported.
type speedCase struct {
	name, about string
	run         *experiment.Run
}

// speedCases returns 4 long flows, as other simulators are measured with, and larger workloads; with drop-tail and the
// first seed.
func speedCases(t testing.TB) []speedCase {
	t.Helper()
	const four = `{name: long, from: "sender*", to: receiver1, pattern: bulk, stop: 2s}`
	first := func(path string, duration law.Duration) *experiment.Run {
		r := firstRun(t, path)
		if duration > 0 {
			r.Config.Duration = duration
		}
		return r
	}
	cases := []speedCase{
		{"4 flows", "4 long flows to one host, 1 Gbit/s, 400 us, 10 s", planned(t, baseWith(four),
			"duration=10s", "traffic.long.stop=10s", "network.rate=1Gbit", "network.buffer=125KB", "measure.series=100ms")[0]},
		{"S1", "S1.yaml: 20 elephants, 60 mice, 1 Gbit/s, hypervisors, 5 s", first("../experiments/sicc/S1.yaml", 0)},
		{"144 servers", "S3.yaml: the first 500 ms", first("../experiments/sicc/S3.yaml", 500e6)},
		{"288 servers", "S4.yaml: the first 250 ms", first("../experiments/sicc/S4.yaml", 250e6)},
		{"10k flows, k=16", "fat tree of 1024 hosts, 10,240 long flows, 40 ms", first("testdata/fat-tree-10k.yaml", 0)},
	}
	if !*speedFull {
		for _, c := range cases {
			shorten(c.run)
		}
	}
	if *speedOnly == "" {
		return cases
	}
	for _, c := range cases {
		if c.name == *speedOnly {
			return []speedCase{c}
		}
	}
	t.Fatalf("there is no case %q", *speedOnly)
	return nil
}

// firstRun returns the run of a file with its first scheme that the simulator has, and seed 1.
func firstRun(t testing.TB, path string) *experiment.Run {
	t.Helper()
	f, err := laws.All().Load(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldSim}, SeedCount: 1, Available: true})
	if err != nil {
		t.Fatal(err)
	}
	return p.Runs[0]
}

// caseRow has the figures of a case. Data packets are those with payload that arrived at their hosts, retransmitted or
// not. A hop is one packet, with payload or not, on one line.
type caseRow struct {
	Name       string  `json:"name"`
	About      string  `json:"about"`
	Flows      int     `json:"flows"` // long ones and short ones
	Packets    int64   `json:"data_packets"`
	PerSecond  float64 `json:"data_packets_per_s"`
	Ns         float64 `json:"ns_per_data_packet"`
	Hops       float64 `json:"hops_per_data_packet"`
	NsPerHop   float64 `json:"ns_per_hop"`
	Events     float64 `json:"events_per_data_packet"`
	EventRate  float64 `json:"events_per_s"`
	Allocs     float64 `json:"steady_allocations_per_data_packet"`
	Live       int64   `json:"live_bytes"` // of the heap near the end: network, hosts, packets, measurements
	Bare       float64 `json:"bare_ns_per_data_packet"`
	BareHops   float64 `json:"bare_hops_per_data_packet"`
	BareEvents float64 `json:"bare_events_per_data_packet"`
	OverBare   float64 `json:"times_bare"`
	Share      float64 `json:"share_of_processor"` // 1: no other process ran

	PerFlow float64 `json:"live_bytes_per_flow"` // of Live, without the network, its packets and the records of drops
}

// cases measures every case and its baseline, in turns.
func (r *speedReport) cases(t *testing.T) {
	t.Helper()
	r.caseHead()
	for _, c := range speedCases(t) {
		n := countRun(t, c.run)
		every := int32(1)
		if n.other > 0 {
			every = int32(max(1, (n.data+n.other/2)/n.other))
		}
		var with, without spent
		var base *bare
		for range *speedRepeats {
			with = with.least(timeRun(t, c.run, n.events))
			base = bareOf(t, c.run, every)
			without = without.least(timeBare(t, base, n.data))
		}
		row := caseRow{
			Name: c.name, About: c.about, Flows: n.flows, Packets: n.data, PerSecond: 1e9 / with.per(n.data), Ns: with.per(n.data),
			Hops: float64(n.hops) / float64(n.data), NsPerHop: with.per(n.hops),
			Events: float64(n.events) / float64(n.data), EventRate: 1e9 / with.per(int64(n.events)),
			Allocs: n.allocs, Live: n.live, Bare: without.per(n.data), OverBare: with.per(n.data) / without.per(n.data),
			BareHops: float64(allHops(base.net)) / float64(n.data), BareEvents: float64(base.net.Queue.Happened()) / float64(n.data),
			Share: with.share(), PerFlow: float64(n.live-n.network-n.borrowed*packetBytes-n.drops) / float64(n.flows),
		}
		r.Cases = append(r.Cases, row)
		r.caseLine(&row)
	}
	r.caseFoot()
}

// packetBytes is the memory of a queued or travelling packet in the network: the packet, and its place in a port's
// ring.
const packetBytes = 128 + 16

// counted has the counts of a run.
type counted struct {
	data, other   int64 // packets that arrived, with payload and without
	hops          int64
	events        uint64
	flows         int
	allocs        float64 // for each data packet, from the middle of the run to shortly before its end
	live, network int64   // bytes then, and of the network when it was built
	borrowed      int64   // packets outside the pool then
	drops         int64   // bytes of their records then
}

// arrivals counts delivered packets.
type arrivals struct {
	next        network.Sink
	data, other int64
}

// Deliver implements network.Sink.
func (a *arrivals) Deliver(host network.NodeID, pk *network.Packet, now event.Time) {
	if pk.Payload() > 0 {
		a.data++
	} else {
		a.other++
	}
	a.next.Deliver(host, pk, now)
}

// countRun carries out a run and counts; it is not timed.
func countRun(t testing.TB, r *experiment.Run) counted {
	t.Helper()
	before := live()
	alone, err := network.Build(event.NewQueue(), &r.Config, networkOptions(r))
	if err != nil {
		t.Fatal(err)
	}
	n := counted{network: live() - before}
	runtime.KeepAlive(alone)
	before = live()
	s := ready(t, r)
	defer s.close()
	a := &arrivals{next: s.net.Sink}
	s.net.Sink = a
	hops, events := allHops(s.net), s.queue.Happened()
	var allocs, data int64
	begin, length := s.queue.Now(), event.Time(r.Config.Duration)
	doAt(s.queue, begin+length/2, func() { allocs, data = allocations(), a.data })
	doAt(s.queue, begin+length/10*9, func() {
		n.allocs = float64(allocations()-allocs) / float64(max(1, a.data-data))
		n.live, n.borrowed = live()-before, s.net.Borrowed()
		n.drops = int64(cap(s.rec.drops)) * int64(reflect.TypeFor[result.Drop]().Size())
	})
	s.run(context.Background(), quiet{})
	n.data, n.other, n.hops, n.events = a.data, a.other, allHops(s.net)-hops, s.queue.Happened()-events-2
	n.flows = len(s.traffic.results)
	switch {
	case s.traffic.broken != nil:
		t.Fatal(s.traffic.broken)
	case n.data < 100 || n.hops < n.data || n.live == 0:
		t.Fatalf("%s: %+v", r.Experiment, n)
	}
	return n
}

// allHops returns how many packets all lines have carried.
func allHops(net *network.Network) int64 {
	n := int64(0)
	for _, p := range net.Ports {
		if p.Rate > 0 {
			n += p.Counters().Sent.Packets
		}
	}
	return n
}

// ready builds a run and begins it, as World.Run does before the clock runs. The caller closes it.
func ready(t testing.TB, r *experiment.Run) *simulation {
	t.Helper()
	s, err := build(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.warm(); err != nil {
		t.Fatal(err)
	}
	s.begin()
	return s
}

// timeRun times a run without building it. The run must have the same number of events as the counted one.
func timeRun(t testing.TB, r *experiment.Run, events uint64) spent {
	t.Helper()
	s := ready(t, r)
	defer s.close()
	before := s.queue.Happened()
	out := stopwatch(func() { s.run(context.Background(), quiet{}) })
	if n := s.queue.Happened() - before; n != events {
		t.Fatalf("%s: %d events, and %d in a run before", r.Experiment, n, events)
	}
	return out
}

// profileCases writes a profile of the timed part of the cases.
func profileCases(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []*simulation
	for _, c := range speedCases(t) {
		for range *speedRepeats {
			s := ready(t, c.run)
			defer s.close()
			all = append(all, s)
		}
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		s.run(context.Background(), quiet{})
	}
	pprof.StopCPUProfile()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
