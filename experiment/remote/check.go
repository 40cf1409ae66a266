package remote

import (
	"fmt"
	"math"
	"slices"
	"time"

	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/workload"
)

// Limits of measurements, beyond which statistics would take too long or too much memory.
const (
	maxUnmet = 1000
	maxMouse = 1 << 20
	maxBusy  = 1 << 20
	// maxSamples is how many samples a port may have, in any run. A long run may have as many as the lab takes, one each labStep. Each one
	// takes 8 bytes of memory once it is expanded. No world has a step below leastStep.
	maxSamples = 1 << 25
	labStep    = 500 * time.Microsecond
	leastStep  = time.Microsecond
	// maxClock is how much the clocks of two machines may differ.
	maxClock = 24 * time.Hour
)

// belongs checks that measurements can be those of a run: its groups, nodes and ports, times within its duration, finite numbers. A
// worker that makes up plausible measurements is not found.
func belongs(run *experiment.Run, raw *result.Raw) error {
	// The lab ends some seconds later than the traffic.
	longest := 2*run.Config.Duration.Std() + time.Minute
	in := func(t time.Duration) bool { return t >= -longest && t <= longest }
	switch {
	case raw.Partial:
		return fmt.Errorf("it is partial")
	case raw.Duration < 0 || raw.Duration > longest:
		return fmt.Errorf("it took %v of %v", raw.Duration, run.Config.Duration)
	case raw.RTT < 0 || raw.RTT > longest || raw.Bin < 0 || raw.Bin > longest || raw.Bin == 0 && len(raw.Flows) > 0:
		return fmt.Errorf("the round-trip time %v, bins of %v", raw.RTT, raw.Bin)
	case len(raw.Unmet) > maxUnmet || len(raw.Busy) > maxBusy:
		return fmt.Errorf("%d unmet settings, %d seconds of a busy machine", len(raw.Unmet), len(raw.Busy))
	case !finite(raw.PayloadShare) || raw.PayloadShare < 0 || raw.PayloadShare > 1 || !finite(raw.Busy...):
		return fmt.Errorf("a share that is none")
	}
	for _, u := range raw.Unmet {
		if !plainText(u.Key) || !plainText(u.Group) || !plainText(u.Text) || !slices.Contains([]result.Severity{result.Note, result.Warning, result.Fatal}, u.Severity) {
			return fmt.Errorf("an unmet setting: %.80q", u.Text)
		}
	}
	names := namesOf(run)
	names.samples = max(maxSamples, int64(longest/labStep))
	for i := range raw.Flows {
		if err := names.flow(&raw.Flows[i], raw, in); err != nil {
			return fmt.Errorf("flow %d: %w", i, err)
		}
	}
	for i := range raw.Ports {
		if err := names.port(&raw.Ports[i], in); err != nil {
			return fmt.Errorf("port %.80q: %w", raw.Ports[i].Name, err)
		}
	}
	for i := range raw.Drops {
		if d := &raw.Drops[i]; !in(d.At) || !names.ports[d.Port] || d.Bytes < 0 || d.Bytes > 1<<20 || len(d.Reason) > 40 || !plainText(d.Reason) {
			return fmt.Errorf("drop %d at port %.80q", i, d.Port)
		}
	}
	return lawsBelong(raw, names, in)
}

// lawsBelong checks the laws' metrics.
func lawsBelong(raw *result.Raw, names *names, in func(time.Duration) bool) error {
	metrics := map[string]bool{}
	for _, v := range raw.LawTotals {
		metrics[v.Metric] = true
		if !finite(v.Value) || math.Abs(v.Value) > 1<<62 {
			return fmt.Errorf("the metric %.80q of a law", v.Metric)
		}
	}
	for i := range raw.LawSamples {
		s := &raw.LawSamples[i]
		metrics[s.Metric] = true
		if !in(s.At) || !names.ports[s.Port] || !finite(s.Value.Value) || len(metrics) > 100 {
			return fmt.Errorf("the metric %.80q of a law at port %.80q", s.Metric, s.Port)
		}
	}
	if len(metrics) > 100 {
		return fmt.Errorf("%d metrics of laws", len(metrics))
	}
	for name := range metrics {
		if len(name) > 80 || !plainText(name) {
			return fmt.Errorf("a law's metric %.80q", name)
		}
	}
	return nil
}

// names are those that the measurements of a run can have.
type names struct {
	groups map[[2]string]bool // group and item
	nodes  map[string]bool
	ports  map[string]bool
	labels map[string]string // of ports
	// samples limits those of a port.
	samples int64
}

func namesOf(run *experiment.Run) *names {
	n := &names{groups: map[[2]string]bool{}, nodes: map[string]bool{}, ports: map[string]bool{}, labels: run.Config.Ports}
	for i := range run.Config.Items {
		it := &run.Config.Items[i]
		n.groups[[2]string{workload.Group(&it.Traffic), it.Name}] = true
	}
	for _, node := range run.Config.Graph.Nodes {
		n.nodes[node.Name] = true
	}
	for _, l := range run.Config.Graph.Links {
		n.ports[experiment.PortName(l.A, l.B)], n.ports[experiment.PortName(l.B, l.A)] = true, true
	}
	return n
}

func (n *names) flow(f *result.Flow, raw *result.Raw, in func(time.Duration) bool) error {
	switch {
	case !n.groups[[2]string{f.Group, f.Item}]:
		return fmt.Errorf("the file has no traffic %.80q in group %.80q", f.Item, f.Group)
	case !n.nodes[f.Src] || !n.nodes[f.Dst]:
		return fmt.Errorf("the network has no %.80q or %.80q", f.Src, f.Dst)
	case !in(f.Start) || !in(f.End) || !in(f.Wrote) || f.Deadline < 0:
		return fmt.Errorf("from %v to %v", f.Start, f.End)
	case f.Mouse < 0 || f.Mouse > maxMouse || f.Epoch < 0 || f.Bytes < 0 || f.Size < 0 || f.Timeouts < -1 || f.Timeouts > 1<<30 || f.Causes.FLoss < 0 || f.Causes.LAck < 0 || f.OutOfOrder.Segments < 0 || f.Opening > result.NeverOpened:
		return fmt.Errorf("a number is out of range")
	}
	last := int64(raw.Duration/raw.Bin) + 1
	before := int32(-1)
	for _, d := range f.Delivered {
		if d.Bin <= before || int64(d.Bin) > last || d.Bytes < 0 {
			return fmt.Errorf("bytes in bin %d of %d", d.Bin, last)
		}
		before = d.Bin
	}
	return nil
}

func (n *names) port(p *result.Port, in func(time.Duration) bool) error {
	if !n.ports[p.Name] || p.RateBps < 0 || p.Buffer < 0 || len(p.Labels) > len(n.labels) {
		return fmt.Errorf("the network has no such port")
	}
	for _, l := range p.Labels {
		if n.labels[l] != p.Name {
			return fmt.Errorf("it has no label %.80q", l)
		}
	}
	all := int64(0)
	for i := range p.Samples {
		s := &p.Samples[i]
		if !in(s.At) || s.Step < leastStep || !in(s.Step) || s.Count < 0 || s.Count > int64(math.MaxInt64/s.Step) || !in(s.At+time.Duration(s.Count)*s.Step) || s.Backlog < 0 {
			return fmt.Errorf("sample %d at %v", i, s.At)
		}
		if all += s.Count; all > n.samples {
			return fmt.Errorf("more than %d samples", n.samples)
		}
	}
	return nil
}

func finite(list ...float64) bool {
	return !slices.ContainsFunc(list, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}
