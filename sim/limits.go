package sim

import (
	"errors"
	"fmt"
	"time"

	"weir/experiment"
	"weir/sim/network"
)

// Limits of one run. What can be told from its configuration is refused before anything of it is built; what only shows
// as it goes on is counted, and ends it. Beside them stands what each takes, as measured: some 10 GB is what a run with
// all of it at once would take, without laws that keep tables. Nodes are bounded by the file (20,000; 2.4 KB each with the ports of their
// links, and routes take 4 B for each pair of switches), and so are steps of rates over time. A law with a table takes 180 B more for
// each connection at each switch that knows it (81,920 at most), and at each switch 4 B for every number of a connection
// up to the highest that passed it: with a million open at a time 4 MB a switch, 6 GB of the most switches (1500).
const (
	maxPairs = 2 << 20   // 44 B
	maxOpen  = 1_000_000 // connections at a time: 2.5 KB with both programs, and their scoreboards
	// maxBins is up to how many bins of delivered bytes (8 B) all flows may fill; workload.MaxFlows bounds the flows
	// themselves: 5 million of 290 B, and 400 B more as they are summed up and written.
	maxBins = 50_000_000
	// maxPackets is how many packets may be under way (128 B, and 16 B in the port that holds them): some 15 GB of data
	// in buffers and on lines.
	maxPackets = 10_000_000
)

// checkLimits tells what of a network or its traffic cannot be simulated, or is too much.
func checkLimits(cfg *experiment.Config) error {
	g := cfg.Graph
	if g == nil || len(g.Nodes) == 0 {
		return errors.New("the run has no network")
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
		if it.Size == 0 && it.CDF == "" { // those of others are counted as they come
			bins += int64(len(it.Pairs)) * int64(max(it.Count, 1)) * binsOf(cfg)
		}
		if bins > maxBins {
			return fmt.Errorf("traffic %s: the rates of its flows over %v would have more than %d steps: take a longer measure.series (it is %v), or fewer flows",
				it.Name, cfg.Duration, maxBins, cfg.Series)
		}
	}
	if pairs > maxPairs {
		return fmt.Errorf("traffic between %d pairs of hosts: the simulator takes %d; narrow from, to or pair of an item", pairs, maxPairs)
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
		return errors.New("one of its ends is no node")
	case l.Rate <= 0 && (a == experiment.Switch || b == experiment.Switch):
		return errors.New("a rate of 0 carries nothing: above 0kbit")
	case a != experiment.Switch && b != experiment.Switch:
		return nil
	case l.Buffer.N < 1 || !l.Buffer.Packets && l.Buffer.N < network.FullFrame:
		return fmt.Errorf("a buffer of %v holds no full frame: at least %dB or 1pkt", l.Buffer, network.FullFrame)
	}
	return nil
}
