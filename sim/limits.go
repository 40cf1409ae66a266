package sim

import (
	"errors"
	"fmt"
	"time"

	"weir/experiment"
	"weir/sim/network"
)

// Limits of one run. checkLimits checks those that follow from the configuration before anything is built. The others
// are counted during the run, and stop it when exceeded. The comments give the memory of each, as measured: a run at
// all limits needs about 10 GB, without laws that have tables.
//
// The file bounds nodes (20,000; 2.4 KB each with the ports of their links, and 4 B of routes for each pair of
// switches) and steps of rates over time. A law with a table needs 180 B more per connection and switch (81,920
// connections at most). In addition it needs, at each switch, 4 B for every connection number up to the highest that
// passed. With a million open at a time this is 4 MB per switch, and 6 GB at the most switches (1500).
const (
	maxPairs = 2 << 20   // 44 B
	maxOpen  = 1_000_000 // open connections: 2.5 KB with both programs, and their scoreboards
	// maxBins bounds the bins of delivered bytes (8 B) of all flows. workload.MaxFlows bounds the flows themselves: 5
	// million of 290 B, and 400 B more each while they are summed up and written.
	maxBins = 50_000_000
	// maxPackets bounds the packets in the network (128 B, and 16 B in the port that has them): about 15 GB of data in
	// buffers and on lines.
	maxPackets = 10_000_000
)

// checkLimits returns an error if a network or its traffic cannot be simulated, or exceeds a limit.
func checkLimits(cfg *experiment.Config) error {
	g := cfg.Graph
	if g == nil || len(g.Nodes) == 0 {
		return errors.New("the run has no network: give the experiment a topology")
	}
	kinds := make(map[string]experiment.NodeKind, len(g.Nodes))
	for _, n := range g.Nodes {
		kinds[n.Name] = n.Kind
	}
	for _, l := range g.Links {
		if err := checkLink(kinds, &l); err != nil {
			return fmt.Errorf("link %s - %s: %w", l.A, l.B, err)
		}
	}
	pairs, bins := 0, int64(0)
	for i := range cfg.Items {
		it := &cfg.Items[i]
		for _, p := range it.Pairs {
			for _, name := range []string{p.Src, p.Dst} {
				if kind, ok := kinds[name]; !ok || kind != experiment.Guest {
					return fmt.Errorf("traffic %s: %s to %s: there is no host %q", it.Name, p.Src, p.Dst, name)
				}
			}
		}
		pairs += len(it.Pairs)
		if it.Size == 0 && it.CDF == "" { // flows of other items are counted during the run
			bins += int64(len(it.Pairs)) * int64(max(it.Count, 1)) * binsOf(cfg)
		}
		if bins > maxBins {
			return fmt.Errorf("traffic %s: the rates of its flows over %v would have more than %d steps: take a longer measure.series (it is %v), or fewer flows",
				it.Name, cfg.Duration, maxBins, cfg.Series)
		}
	}
	if pairs > maxPairs {
		return fmt.Errorf("traffic between %d pairs of hosts: at most %d; narrow from, to or pair of an item", pairs, maxPairs)
	}
	if n := int64(cfg.Duration) / int64(coarsestGrid) * int64(len(cfg.Ports)); n > maxSamples {
		return fmt.Errorf("the queues of %d ports over %v have %d samples: at most %d; name fewer in measure.ports, or take a shorter duration",
			len(cfg.Ports), cfg.Duration, n, maxSamples)
	}
	return nil
}

func binsOf(cfg *experiment.Config) int64 {
	bin := cfg.Series.Std()
	if bin <= 0 {
		bin = 10 * time.Millisecond
	}
	return int64(cfg.Duration.Std()/bin) + 1
}

func checkLink(kinds map[string]experiment.NodeKind, l *experiment.Link) error {
	a, okA := kinds[l.A]
	b, okB := kinds[l.B]
	switch {
	case !okA || !okB:
		return errors.New("one of its ends is not a node")
	case l.Rate <= 0 && (a == experiment.Switch || b == experiment.Switch):
		return errors.New("rate 0: set a rate above 0kbit")
	case a != experiment.Switch && b != experiment.Switch:
		return nil
	case l.Buffer.N < 1 || !l.Buffer.Packets && l.Buffer.N < network.FullFrame:
		return fmt.Errorf("a buffer of %v is smaller than a full frame: set at least %dB or 1pkt", l.Buffer, network.FullFrame)
	}
	return nil
}
