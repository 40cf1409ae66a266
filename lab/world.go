package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"weir/datapath/attach"
	"weir/datapath/rto"
	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/workload"
	"weir/lab/measure"
	"weir/lab/traffic"
	"weir/law"
)

// World runs experiments on real Linux TCP: it builds a lab, attaches the scheme's laws to its switches, starts
// the measuring program, sends the traffic, and removes everything.
type World struct {
	Laws Laws
	// WithoutMeasuring omits the measuring program, to determine its cost: queues, drops and marks are then absent
	// from the result.
	WithoutMeasuring bool
	// Controller and Agent are those of Options.
	Controller, Agent []string
	// Record returns the path of the recording of a run's controller; nil: none. The directory must exist.
	Record func(r *experiment.Run) string
}

// Name returns "lab".
func (w *World) Name() string { return "lab" }

// Check returns, before anything starts, why this machine cannot carry out r, or nil.
func (w *World) Check(r *experiment.Run) error {
	p, _, err := checkHost(&r.Config, Options{Controller: w.Controller, Commanded: w.Laws.Commanded(r)})
	if err != nil {
		return err
	}
	if _, err := workload.Expand(&r.Config, r.Seed); err != nil {
		return err
	}
	if err := w.Laws.Check(r); err != nil {
		return err
	}
	if w.WithoutMeasuring {
		return nil
	}
	if err := p.checkMeasured(); err != nil {
		return err
	}
	return attach.CheckMeasure()
}

// checkMeasured refuses a port of measure.ports without a queue.
func (p *plan) checkMeasured() error {
	shaped := map[string]bool{}
	for _, n := range p.nodes {
		for _, port := range n.ports {
			shaped[port.name] = port.rate > 0
		}
	}
	for _, label := range slices.Sorted(maps.Keys(p.cfg.Ports)) {
		if name := p.cfg.Ports[label]; !shaped[name] {
			return fmt.Errorf("measure.ports.%s: %s has no queue in the lab, because its link has no rate: name a port of a switch or towards one, or run with --world sim", label, name)
		}
	}
	return nil
}

// Run carries out one run. If the context is cancelled, the measurements so far are returned as partial.
func (w *World) Run(ctx context.Context, r *experiment.Run, p experiment.Progress) (raw *result.Raw, err error) {
	p.Phase(fmt.Sprintf("building %d nodes", len(r.Config.Graph.Nodes)))
	o := Options{
		Experiment: r.Experiment, Owned: true, Netstack: true, Controller: w.Controller, Agent: w.Agent, Commanded: w.Laws.Commanded(r), Scale: r.Scale, Progress: p.Phase,
	}
	if w.Record != nil {
		o.Record = w.Record(r)
	}
	l, err := Up(ctx, runName(), &r.Config, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		p.Phase("removing the lab")
		err = errors.Join(err, l.Down())
		if left := l.Left(); left != nil && raw != nil {
			raw.Unmet = append(raw.Unmet, result.UnmetTexts("lab", result.Warning, left.Error())...)
		}
	}()
	stop, err := l.Enforce(ctx, r, w.Laws)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	restore, err := l.setInitialRTOs()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore()) }()
	return w.measured(ctx, l, r, p)
}

// runName returns a lab's name that no other run on this machine has.
func runName() string {
	return fmt.Sprintf("run-%d", os.Getpid())
}

// setInitialRTOs sets the initial RTO of the guests that want one. The kernel has no such setting: a program sets
// it for the sockets that this process opens, so the process joins the lab's cgroup. If that fails the run
// continues and reports it.
func (l *Lab) setInitialRTOs() (restore func() error, err error) {
	none := func() error { return nil }
	rtos := l.InitialRTOs()
	if len(rtos) == 0 {
		return none, nil
	}
	refused := func(why error) (func() error, error) {
		l.unmet.add("all guests", "guests.initial_rto", "as asked", why.Error())
		return none, nil
	}
	if err := rto.Check(); err != nil {
		return refused(err)
	}
	dir, err := l.Cgroup()
	if err != nil {
		return refused(err)
	}
	program, err := rto.AttachInitial(dir, rtos)
	if err != nil {
		return nil, err
	}
	if err := l.JoinCgroup(); err != nil {
		return nil, errors.Join(err, program.Close())
	}
	return func() error {
		_ = l.leaveCgroup() // Down tries again
		return program.Close()
	}, nil
}

func (w *World) measured(ctx context.Context, l *Lab, r *experiment.Run, p experiment.Progress) (*result.Raw, error) {
	cfg := &r.Config
	p.Phase("idle round trip")
	rtt, err := idleRTT(ctx, l, cfg)
	if err != nil {
		return nil, err
	}
	var rec *measure.Recorder
	if !w.WithoutMeasuring {
		if rec, err = measure.Start(measuredPorts(l, cfg)); err != nil {
			return nil, err
		}
		defer func() { _ = rec.Stop() }() // if it ends early; Stop is called again below
	}
	p.Phase("running")
	cpus, laws := watchProcessors(), l.traceLaws(cfg)
	out, err := traffic.Run(ctx, l, cfg, r.Seed, traffic.Options{
		Progress: func(now law.Duration, flowsDone int) { p.At(now, cfg.Duration, flowsDone) },
		Declare:  l.declare(),
	})
	busy := cpus.stop()
	if err != nil {
		_, _ = laws.stop(0, 0) // there is no time to relate its samples to
		return nil, err
	}
	traced, err := laws.stop(out.T0, out.Ended)
	if err != nil {
		return nil, err
	}
	totals, troubled := l.lawTotals()
	raw := &result.Raw{
		RTT: rtt, Partial: out.Partial, Duration: out.Ended, Bin: cfg.Series.Std(), Flows: out.Flows,
		Unmet: unmet(ctx, l, cfg, out, troubled), Busy: busy, LawSamples: traced, LawTotals: totals,
	}
	if rec != nil {
		if err := rec.Stop(); err != nil {
			return nil, err
		}
		raw.Ports, raw.Drops, raw.LostRecords = rec.Results(out.T0, out.Ended)
	}
	return raw, nil
}

// unmet lists the settings and requests that were not fulfilled. There is no netem, so the delay is the machine's.
func unmet(ctx context.Context, l *Lab, cfg *experiment.Config, out *traffic.Outcome, ofLaws []result.Unmet) []result.Unmet {
	list := append(l.unmet.list(), ofLaws...)
	add := func(key string, severity result.Severity, texts ...string) {
		list = append(list, result.UnmetTexts(key, severity, texts...)...)
	}
	add("traffic", result.Warning, out.Unmet...)
	lost, stuck := l.troubleOfGuests()
	add("guests.stack", result.Fatal, lost...)
	add("guests.stack", result.Warning, stuck...)
	add("topology.switch", result.Warning, l.troubleOfSwitches()...)
	late, notes := l.troubleOfHardware()
	add("topology.switch", result.Fatal, late...)
	add("topology.switch", result.Note, notes...)
	add("topology.switch", result.Warning, l.troubleOfController(context.WithoutCancel(ctx))...)
	for cause, n := range out.Failures {
		add("traffic", result.Warning, fmt.Sprintf("traffic: %d flows failed: %s", n, cause))
	}
	if out.Reopened > 0 {
		add("traffic", result.Note, fmt.Sprintf("traffic: %d connections were opened twice, because the kernel reset them before their first byte", out.Reopened))
	}
	if cfg.RTT > 0 {
		add("network.rtt", result.Note, fmt.Sprintf("network.rtt %v: the lab adds no delay; rtt_us is the measured round trip", cfg.RTT))
	}
	slices.SortFunc(list, func(a, b result.Unmet) int { return strings.Compare(a.Text, b.Text) })
	return slices.Compact(list)
}

// idleRTT measures, before any traffic, the round trip between the ends of the first pair of every item, and
// returns the largest.
func idleRTT(ctx context.Context, l *Lab, cfg *experiment.Config) (time.Duration, error) {
	var longest time.Duration
	for _, item := range cfg.Items {
		if len(item.Pairs) == 0 {
			continue
		}
		pair := item.Pairs[0]
		rtt, err := traffic.RTT(ctx, l, pair.Src, pair.Dst, item.Profile)
		if err != nil {
			return 0, fmt.Errorf("round trip %s to %s: %w", pair.Src, pair.Dst, err)
		}
		longest = max(longest, rtt)
	}
	return longest, nil
}

// measuredPorts returns all shaped ports, for drops and marks; queues are sampled only at labelled ones.
func measuredPorts(l *Lab, cfg *experiment.Config) []measure.Port {
	labels := map[string][]string{}
	for label, name := range cfg.Ports {
		labels[name] = append(labels[name], label)
	}
	ports := make([]measure.Port, 0, len(l.Ports()))
	for _, port := range l.Ports() {
		sort.Strings(labels[port.Name])
		ports = append(ports, measure.Port{
			Name: port.Name, NetnsCookie: port.NetnsCookie, Ifindex: port.Ifindex,
			RateBps: int64(port.Rate), BufferBytes: int64(port.Buffer),
			Labels: labels[port.Name], Sample: len(labels[port.Name]) > 0,
			Enter: func(f func() error) error { return l.Enter(port.Node, f) },
		})
	}
	return ports
}
