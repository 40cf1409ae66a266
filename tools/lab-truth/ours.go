package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/lab"
)

// base is the network that most checks use: a burst on one bottleneck.
const base = `
id: truth
worlds: [lab]
duration: 10s
seeds: [1]
topology: {kind: dumbbell, senders: 16, receivers: 1, hypervisors: false}
network: {rate: 200Mbit, rtt: 200us, buffer: 125KB}
guests: {cc: cubic}
schemes: [{name: droptail}]
measure: {ports: {bottleneck: "switch->receiver1"}, windows: {loaded: [2s, 9s]}}
`

// plan resolves the runs of an experiment text for the lab.
func plan(traffic string, set ...string) ([]*experiment.Run, error) {
	return planOf(strings.TrimSpace(base)+"\ntraffic:\n"+traffic, set...)
}

// planOf resolves the runs of a whole experiment text.
func planOf(text string, set ...string) ([]*experiment.Run, error) {
	f, err := laws.All().Parse("truth", []byte(text))
	if err != nil {
		return nil, err
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{"lab"}, Set: set})
	if err != nil {
		return nil, err
	}
	return p.Runs, nil
}

// runOnce runs the first run of an experiment text and returns its statistics.
func runOnce(ctx context.Context, w *lab.World, traffic string, set ...string) (*result.Run, error) {
	runs, err := plan(traffic, set...)
	if err != nil {
		return nil, err
	}
	raw, err := w.Run(ctx, runs[0], experiment.Silent{})
	if err != nil {
		return nil, err
	}
	if raw.Partial {
		return nil, fmt.Errorf("run was cut short")
	}
	return result.Build(runs[0].Info(), raw), nil
}

// metric returns one figure of a run; a missing one is an error.
func metric(r *result.Run, path string) (float64, error) {
	v, ok := r.Metric(strings.Split(path, "."))
	if !ok {
		return 0, fmt.Errorf("no metric %s", path)
	}
	return v, nil
}

func median(values []float64) float64 {
	s := slices.Clone(values)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// racks is the papers' testbed, without traffic: 4 racks of 7 servers.
const racks = `
id: racks
worlds: [lab]
duration: 60s
seeds: [1]
topology: {kind: racks, racks: 4, servers: 7, hypervisors: true}
network: {rate: 200Mbit, rtt: 300us, buffer: 125KB}
guests: {cc: cubic}
schemes: [{name: droptail}]
traffic:
`

const (
	oneFlow   = `  - {name: long, from: sender1, to: receiver1, pattern: bulk, start: 0s, stop: 10s}`
	longFlows = `  - {name: long, from: "sender*", to: receiver1, pattern: bulk, start: 0s, stop: 10s}`
	mixed     = longFlows + `
  - {name: mice, from: "sender*", to: receiver1, data: pull, pattern: burst, size: 11.5KB, start: 2s, every: 100ms, epochs: 70, gap: 24us}`
)

// portLimitMbps is the payload that the port can carry: 1448 of each 1514 B that its shaper counts.
const portLimitMbps = 200 * result.PayloadShareLab

// capacity checks that one flow reaches the port's limit, and that 16 flows fill it.
func capacity(ctx context.Context) ([]row, error) {
	one, err := runOnce(ctx, &lab.World{Laws: laws.Lab()}, oneFlow)
	if err != nil {
		return nil, err
	}
	got, err := metric(one, "loaded.long.throughput_mbps")
	if err != nil {
		return nil, err
	}
	many, err := runOnce(ctx, &lab.World{Laws: laws.Lab()}, longFlows)
	if err != nil {
		return nil, err
	}
	used, err := metric(many, "loaded.bottleneck.utilisation")
	if err != nil {
		return nil, err
	}
	all, err := metric(many, "loaded.long.throughput_mbps")
	if err != nil {
		return nil, err
	}
	return []row{
		{what: "goodput of 1 flow, compared with the port's limit", ours: got, reference: portLimitMbps, unit: "Mbit/s", limit: 0.95, atLeast: true},
		{what: "goodput of 16 flows, compared with the port's limit", ours: all, reference: portLimitMbps, unit: "Mbit/s", limit: 0.95, atLeast: true,
			note: "retransmitted segments use the port but are not goodput"},
		{what: "utilisation with 16 flows", ours: used, reference: 1, unit: "", limit: 0.99, atLeast: true},
	}, nil
}

// costOfMeasuring runs the same traffic with and without the measuring program, alternately. The bursts fit the
// buffer, because runs with losses repeat only within 5 %, with or without the program.
func costOfMeasuring(ctx context.Context) ([]row, error) {
	const rounds = 5
	var goodput, fct [2][]float64
	for i := range rounds {
		for j, w := range []*lab.World{{Laws: laws.Lab()}, {Laws: laws.Lab(), WithoutMeasuring: true}} {
			r, err := runOnce(ctx, w, mixed, marking, "guests.initial_window=2", fmt.Sprintf("seeds=[%d]", i+1))
			if err != nil {
				return nil, err
			}
			g, err := metric(r, "loaded.long.throughput_mbps")
			if err != nil {
				return nil, err
			}
			f, err := metric(r, "mice.fct_ms.p50")
			if err != nil {
				return nil, err
			}
			goodput[j], fct[j] = append(goodput[j], g), append(fct[j], f)
		}
	}
	note := fmt.Sprintf("medians of %d rounds in turn", rounds)
	return []row{
		{what: "goodput with measuring / without", ours: median(goodput[0]), reference: median(goodput[1]), unit: "Mbit/s", limit: 0.01, note: note},
		{what: "mice's p50 FCT with measuring / without", ours: median(fct[0]), reference: median(fct[1]), unit: "ms", limit: 0.03, note: note},
	}, nil
}

// repeatability runs the same seed three times, with three kinds of traffic. Values that cannot repeat are for
// information: if bursts do not fit the buffer, one mouse of ten (ecn) or four (droptail) has a retransmission
// timeout, and microseconds determine which ones.
func repeatability(ctx context.Context) ([]row, error) {
	const chaotic = "for information: the median depends on which of the mice have an RTO"
	var rows []row
	for _, c := range []struct {
		what, traffic, fct, goodput, note string
		limit                             float64
		set                               []string
	}{
		{"8 closed loops", loopTraffic, "pages.fct_ms.p50", "", "", 0.05, []string{"duration=60s"}},
		{"ecn, bursts that fit", mixed, "mice.fct_ms.p50", "loaded.long.throughput_mbps", "", 0.05, []string{marking, "guests.initial_window=2"}},
		{"ecn, bursts", mixed, "mice.fct_ms.p50", "loaded.long.throughput_mbps", chaotic, 0, append(whole(), marking)},
		{"droptail, bursts", mixed, "mice.fct_ms.p50", "loaded.long.throughput_mbps", chaotic, 0, whole()},
	} {
		var goodput, fct []float64
		for range 3 {
			r, err := runOnce(ctx, &lab.World{Laws: laws.Lab()}, c.traffic, c.set...)
			if err != nil {
				return nil, err
			}
			f, err := metric(r, c.fct)
			if err != nil {
				return nil, err
			}
			fct = append(fct, f)
			if c.goodput == "" {
				continue
			}
			g, err := metric(r, c.goodput)
			if err != nil {
				return nil, err
			}
			goodput = append(goodput, g)
		}
		if c.goodput != "" {
			rows = append(rows, row{what: c.what + ": goodput, largest of 3 runs / smallest", ours: slices.Max(goodput),
				reference: slices.Min(goodput), unit: "Mbit/s", limit: 0.05})
		}
		rows = append(rows, row{what: c.what + ": p50 FCT, largest of 3 runs / smallest", ours: slices.Max(fct),
			reference: slices.Min(fct), unit: "ms", limit: c.limit, note: c.note})
	}
	return rows, nil
}

// marking changes the scheme of the base text to one that marks.
const marking = "schemes=[{name: ecn, guests: {ecn: true}, params: {threshold: 25KB}}]"

// whole makes the mixed traffic as long as in experiments/incast.yaml.
func whole() []string {
	return []string{"duration=20s", "traffic.long.stop=20s", "traffic.mice.epochs=170", "measure.windows.loaded=[2s, 19s]"}
}

// racksUpDown builds the papers' testbed, 4 x 7 servers with hypervisors, and removes it.
func racksUpDown(ctx context.Context) ([]row, error) {
	runs, err := planOf(racks + racksPages)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	l, err := lab.Up(ctx, "truth-racks", &runs[0].Config, lab.Options{Experiment: "truth", Owned: true})
	if err != nil {
		return nil, err
	}
	up := time.Since(started)
	memory, cpu, err := idleCost(ctx, 5*time.Second)
	if err != nil {
		return nil, err
	}
	started = time.Now()
	if err := l.Down(); err != nil {
		return nil, err
	}
	down := time.Since(started)
	return []row{
		{what: "28 servers with hypervisors: seconds to go up, of 10", ours: 10, reference: up.Seconds(), unit: "s", limit: 1, atLeast: true},
		{what: "28 servers with hypervisors: seconds to go down, of 5", ours: 5, reference: down.Seconds(), unit: "s", limit: 1, atLeast: true,
			note: fmt.Sprintf("idle: this process %.0f MB, machine's CPUs %.1f %% busy", memory/1e6, 100*cpu)},
	}, nil
}
