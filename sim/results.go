package sim

import (
	"cmp"
	"slices"
	"time"

	"weir/experiment"
	"weir/experiment/result"
	"weir/sim/event"
	"weir/sim/laws"
	"weir/sim/network"
)

const (
	// widestGrid and finestGrid bound the step of the grid on which queues are sampled. The widest is the lab's. If the
	// RTT is short the grid is finer, so that several samples fall within one RTT.
	widestGrid = 500 * event.Microsecond
	finestGrid = 10 * event.Microsecond
	// coarsestGrid is used if the widest would give too many samples. By contract queue_bytes has a step of 1 ms or
	// less.
	coarsestGrid = event.Millisecond
	// wishedSamples: the grid is made finer only up to this number of samples of all ports. maxSamples (48 bytes each)
	// is the limit of a run.
	wishedSamples = 1_000_000
	maxSamples    = 20_000_000
	// maxDrops bounds recorded drops (about 120 bytes each). With more, metrics that depend on drops are absent.
	maxDrops = 5_000_000
)

// grid returns the step between samples for that many ports.
func grid(cfg *experiment.Config, ports int) event.Time {
	step := widestGrid
	samples := func(step event.Time) int64 { return int64(cfg.Duration) / int64(step) * int64(ports) }
	for _, finer := range []event.Time{250e3, 100e3, 50e3, 20e3, finestGrid} {
		if step > event.Time(cfg.RTT)/2 && samples(finer) <= wishedSamples {
			step = finer
		}
	}
	if samples(step) > maxSamples {
		return coarsestGrid
	}
	return step
}

// recorder fills result.Port and result.Drop as the lab's measuring program does. It samples backlog, bytes and marks
// of the named ports on a fixed grid of time, and records every drop.
type recorder struct {
	net   *network.Network
	t0    event.Time
	step  event.Time
	tick  event.Event
	watch []watched
	drops []result.Drop
	lost  uint64
	laws  lawRecorder
}

// watched is a port whose queue is sampled.
type watched struct {
	port    *network.Port
	samples []result.Sample
}

// newRecorder records the ports that have labels, and drops, from now on.
func newRecorder(n *network.Network, cfg *experiment.Config, ls *laws.Set) *recorder {
	r := &recorder{net: n, laws: lawRecorder{laws: ls}}
	for _, p := range n.Ports {
		if len(p.Labels) > 0 {
			r.watch = append(r.watch, watched{port: p})
			r.laws.watch(p)
		}
	}
	r.step = grid(cfg, len(r.watch))
	r.tick.Init(r)
	n.OnDrop = r.dropped
	return r
}

// begin takes the first sample, at t = 0.
func (r *recorder) begin() {
	r.t0 = r.net.Queue.Now()
	r.net.Queue.Set(&r.tick, r.t0)
	r.laws.begin(r.net.Queue)
}

// Happen takes a sample of the queues.
func (r *recorder) Happen(_ *event.Event, now event.Time) {
	for i := range r.watch {
		w := &r.watch[i]
		backlog, _, marks := w.port.Gauge()
		sent := w.port.LineBytes()
		if n := len(w.samples); n > 0 {
			if last := &w.samples[n-1]; last.Backlog == backlog && last.Sent == uint64(sent) && last.Marks == uint64(marks) {
				last.Count++
				continue
			}
		}
		w.samples = append(w.samples, result.Sample{
			At: time.Duration(now - r.t0), Step: time.Duration(r.step), Count: 1,
			Backlog: backlog, Sent: uint64(sent), Marks: uint64(marks),
		})
	}
	if len(r.watch) > 0 {
		r.net.Queue.Set(&r.tick, now+r.step)
	}
}

func (r *recorder) dropped(p *network.Port, pk *network.Packet, reason network.DropReason, now event.Time) {
	if len(r.drops) >= maxDrops {
		r.lost++
		return
	}
	r.drops = append(r.drops, result.Drop{
		At: time.Duration(now - r.t0), Port: p.Name, Key: keyOf(pk), Bytes: int(pk.Bytes()), Reason: reason.String(),
	})
}

// results returns what happened in [0, end): every port that has a rate, and the queues of the sampled ports.
func (r *recorder) results(end time.Duration, kind func(network.NodeID) experiment.NodeKind) (ports []result.Port, drops []result.Drop) {
	for _, p := range r.net.Ports {
		if p.Rate == 0 {
			continue
		}
		out := result.Port{Name: p.Name, Labels: p.Labels, RateBps: int64(p.Rate)}
		if kind(p.Node) == experiment.Switch {
			out.Buffer = int64(p.Buffer.Bytes())
		}
		if i := slices.IndexFunc(r.watch, func(w watched) bool { return w.port == p }); i >= 0 {
			out.Samples = before(r.watch[i].samples, end)
		}
		ports = append(ports, out)
	}
	n, _ := slices.BinarySearchFunc(r.drops, end, func(d result.Drop, end time.Duration) int { return cmp.Compare(d.At, end) })
	return ports, r.drops[:n:n]
}

// before cuts samples to the points of the grid before end.
func before(samples []result.Sample, end time.Duration) []result.Sample {
	for i := range samples {
		s := &samples[i]
		left := int64((end - s.At + s.Step - 1) / s.Step) // points of the grid from s.At to before end
		if left <= 0 {
			return samples[:i]
		}
		s.Count = min(s.Count, left)
	}
	return samples
}
