// Package sim is the simulator: a world that runs experiments packet by packet on a simulated clock, with complete TCP.
// It has no laws of its own, but runs those of datapath/core as the kernel does.
//
//	world.go         one run, from its configuration to its measurements
//	limits.go        checks before anything is built
//	guests.go        settings of TCP as in an experiment file
//	rtt.go           the idle network's RTT, and a network with another RTT
//	traffic.go       the flows and their starts;  traffic_flow.go  one flow
//	traffic_conn.go  a connection, both ends;  traffic_loop.go  persistent ones, closed loops;  traffic_udp.go  UDP
//	results.go       queues and drops
//	pcap.go          --pcap: frames of the named ports;  frame.go  their bytes
//	trace.go         --trace: the state of every connection over time
//	digest.go        a hash of the measurements
//
// Below it: sim/event (the clock), sim/network (links, ports, switches), sim/laws (the laws of a scheme at the ports),
// sim/tcp (the hosts' transport).
//
// One run is one goroutine. The same run gives the same result to the last bit, on every machine.
package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/workload"
	"weir/law"
	"weir/sim/event"
	"weir/sim/laws"
	"weir/sim/network"
	"weir/sim/tcp"
)

// World runs experiments in the simulator. Several goroutines may use it at once, for different runs.
type World struct {
	Laws laws.Laws
	// PCAP is a directory for captures of the ports of measure.ports; "": no captures.
	PCAP string
	// Trace is a directory for the states of connections over time; "": no trace.
	Trace string
	// Record begins the recording of a run's laws at a controller: tap is as experiment.Run has it, and end ends the recording. nil: none.
	Record func(r *experiment.Run) (tap func(l law.Law, name string) law.Law, end func() error, err error)
}

// Name returns "sim".
func (w *World) Name() string { return experiment.WorldSim }

// Check returns an error, before anything is built, if r cannot be carried out.
func (w *World) Check(r *experiment.Run) error {
	if err := checkLimits(&r.Config); err != nil {
		return err
	}
	for i := range r.Config.Items {
		it := &r.Config.Items[i]
		if workload.UDP(&it.Traffic) {
			continue
		}
		if _, err := tcpConfig(&r.Config.Profiles[it.Profile]); err != nil {
			return fmt.Errorf("scheme %s: traffic %s: %w", r.Scheme, it.Name, err)
		}
	}
	if err := w.Laws.Check(r); err != nil {
		return fmt.Errorf("scheme %s: %w", r.Scheme, err)
	}
	if w.PCAP != "" && len(r.Config.Ports) == 0 {
		return errors.New("--pcap: the file names no port to capture: name one in measure.ports, as in 'measure: {ports: {bottleneck: \"switch->receiver1\"}}'")
	}
	_, err := workload.Expand(&r.Config, r.Seed)
	return err
}

// Run carries out one run. If the context is cancelled, it returns the measurements up to then as partial.
func (w *World) Run(ctx context.Context, r *experiment.Run, p experiment.Progress) (raw *result.Raw, err error) {
	p.Phase(fmt.Sprintf("building %d nodes", len(r.Config.Graph.Nodes)))
	if w.Record != nil {
		recorded := *r
		tap, end, failed := w.Record(r)
		if failed != nil {
			return nil, failed
		}
		recorded.Tap = tap
		defer func() { err = errors.Join(err, end()) }()
		r = &recorded
	}
	s, err := buildWith(r, w.Laws, networkOptions(r))
	if err != nil {
		return nil, err
	}
	defer s.close()
	return w.carryOut(ctx, s, r, p)
}

// carryOut runs a simulation that is built.
func (w *World) carryOut(ctx context.Context, s *simulation, r *experiment.Run, p experiment.Progress) (raw *result.Raw, err error) {
	p.Phase("idle round trip")
	if err := s.warm(); err != nil {
		return nil, err
	}
	if r.Starts != nil {
		frame := slowestFrame(&r.Config)
		if err := errors.Join(s.net.DelayHosts(r.Seed, frame), s.net.DelaySwitches(r.Seed, frame)); err != nil {
			return nil, err
		}
	}
	observers, err := w.observe(s, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, observers.close()) }()
	p.Phase("running")
	s.begin()
	observers.begin(s.traffic.t0)
	partial := s.run(ctx, p)
	if err := s.traffic.broken; err != nil {
		return nil, err
	}
	raw = s.raw(partial)
	raw.RTT = s.rtt
	raw.Unmet = append(raw.Unmet, result.UnmetTexts("observe", result.Note, observers.cut()...)...)
	slices.SortFunc(raw.Unmet, func(a, b result.Unmet) int { return strings.Compare(a.Text, b.Text) })
	return raw, nil
}

// hostFrames is the queue of a host's NIC, in frames: more than its TCPs may have in flight. A real host's NIC never
// drops, because Linux's TCP keeps only about a millisecond of data in it (TSQ).
const hostFrames = 1 << 24

// networkOptions returns the options of the network. For comparisons with the lab, lines count bytes as the lab's do.
func networkOptions(r *experiment.Run) network.Options {
	return network.Options{Seed: r.Seed, NICFrames: hostFrames, FrameOnly: r.LabRTT}
}

// simulation is one run in progress.
type simulation struct {
	cfg     *experiment.Config
	queue   *event.Queue
	net     *network.Network
	laws    *laws.Set
	stack   *tcp.Stack
	traffic *traffic
	rec     *recorder
	rtt     time.Duration // of the idle network; 0: warm was not called

	options     network.Options
	mostPackets int64 // in the network
}

// buildWith builds a run with these laws and these options of its network. Nothing happens yet.
func buildWith(r *experiment.Run, ls laws.Laws, o network.Options) (*simulation, error) {
	cfg := &r.Config
	work, err := workload.Expand(cfg, r.Seed)
	if err != nil {
		return nil, err
	}
	work.StartAt(cfg, r.Starts)
	s := &simulation{cfg: cfg, queue: event.NewQueue(), options: o, mostPackets: maxPackets}
	if s.net, err = network.Build(s.queue, cfg, o); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if s.laws, err = ls.Put(s.net, r); err != nil {
		return nil, err
	}
	s.stack = tcp.NewStack(s.queue, s.net, r.Seed)
	if s.traffic, err = newTraffic(s.net, s.stack, cfg, work); err != nil {
		s.laws.Close()
		return nil, err
	}
	s.traffic.declared = s.laws.Declare
	s.rec = newRecorder(s.net, cfg, s.laws)
	return s, nil
}

// slowestFrame returns the time of a full frame on the network's slowest line. In comparisons with the lab it is the
// largest jitter of hosts and of links between switches: Floyd and Jacobson's remedy against phase effects, which real
// hosts and switches do not have.
func slowestFrame(cfg *experiment.Config) event.Time {
	const bits = (1514 + 24) * 8
	slowest := law.Rate(math.MaxInt64)
	for i := range cfg.Graph.Links {
		if rate := cfg.Graph.Links[i].Rate; rate > 0 {
			slowest = min(slowest, rate)
		}
	}
	return mulDiv(bits, int64(event.Second), int64(slowest))
}

// warm measures the idle network's RTT, and moves the clock by that time, to where t = 0 will be: a whole millisecond.
func (s *simulation) warm() error {
	rtt, took, err := idle(s.cfg, s.options)
	if err != nil {
		return err
	}
	s.rtt = time.Duration(rtt)
	s.queue.Run((took + event.Millisecond - 1) / event.Millisecond * event.Millisecond)
	return nil
}

// begin marks t = 0.
func (s *simulation) begin() {
	s.rec.begin()
	s.traffic.begin()
}

// close frees the laws' memory outside of Go's heap.
func (s *simulation) close() { s.laws.Close() }

const (
	// chunkEvents is about how many events happen between two checks of the context and the wall clock.
	chunkEvents  = 20_000
	firstChunk   = event.Millisecond
	longestChunk = 10 * event.Millisecond
	progressStep = 200 * time.Millisecond
)

// run has everything happen until all flows have ended, or until Duration. It reports whether it was cut short.
func (s *simulation) run(ctx context.Context, p experiment.Progress) (partial bool) {
	t, cfg := s.traffic, s.cfg
	partial = !s.until(ctx, t.end, func() bool { return t.left == 0 }, func(now event.Time) {
		p.At(law.Duration(now-t.t0), cfg.Duration, int(t.ended))
	})
	if t.left == 0 && !partial {
		// Connections end by themselves, as in the lab.
		s.until(ctx, s.queue.Now()+drainTime, func() bool { return t.open == 0 }, func(event.Time) {})
	}
	t.finish(!partial)
	return partial
}

// until has events happen up to end or until over, whichever is first. It returns false if the context was cancelled.
func (s *simulation) until(ctx context.Context, end event.Time, over func() bool, report func(now event.Time)) bool {
	chunk, reported := firstChunk, time.Now()
	for s.queue.Now() < end && !over() && s.traffic.broken == nil {
		if ctx.Err() != nil {
			return false
		}
		if time.Since(reported) > progressStep {
			report(s.queue.Now())
			reported = time.Now()
		}
		before := s.queue.Happened()
		s.queue.Run(min(end, s.queue.Now()+chunk))
		if s.net.Borrowed() > s.mostPackets {
			s.traffic.stop(fmt.Errorf("more than %d packets are in the network: take smaller buffers, lower rates, or fewer flows at a time", s.mostPackets))
		}
		// The size of the next chunk does not change what happens, only how often we check.
		switch n := s.queue.Happened() - before; {
		case n > 2*chunkEvents:
			chunk = max(chunk/2, event.Nanosecond)
		case n < chunkEvents/2:
			chunk = min(2*chunk, longestChunk)
		}
	}
	return true
}

// raw collects the measurements.
func (s *simulation) raw(partial bool) *result.Raw {
	t := s.traffic
	raw := &result.Raw{Partial: partial, Bin: time.Duration(t.bin), Flows: t.results, LostRecords: s.rec.lost, PayloadShare: s.payloadShare()}
	for i := range raw.Flows {
		raw.Duration = max(raw.Duration, raw.Flows[i].End)
	}
	slices.SortStableFunc(raw.Flows, func(a, b result.Flow) int { return cmp.Compare(a.Start, b.Start) })
	raw.Ports, raw.Drops = s.rec.results(raw.Duration, func(id network.NodeID) experiment.NodeKind { return s.cfg.Graph.Nodes[id].Kind })
	s.rec.laws.fill(raw)
	for cause, n := range t.errs { // sorted with the rest
		raw.Unmet = append(raw.Unmet, result.UnmetTexts("traffic", result.Warning, fmt.Sprintf("traffic: %d flows failed: %s", n, cause))...)
	}
	return raw
}

// payloadShare returns the largest possible share of payload on a line, for the traffic of the run. Of the bytes that a
// full frame takes, a TCP segment has 1460, or 1448 with timestamps (RFC 7323). A run with UDP only has 1472.
func (s *simulation) payloadShare() float64 {
	most := 0.0
	for i := range s.traffic.items {
		if c := s.traffic.items[i].tcp; c != nil {
			n := float64(c.MSS)
			if c.Timestamps {
				n -= 12
			}
			most = max(most, n)
		}
	}
	if most == 0 {
		most = datagramBytes
	}
	if s.options.FrameOnly {
		return most / network.FullFrame
	}
	return most / network.FullLine
}
