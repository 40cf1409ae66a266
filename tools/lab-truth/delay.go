package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"weir/experiment"
	"weir/experiment/result"
	"weir/lab"
	"weir/lab/measure"
	"weir/lab/traffic"
)

const probeEvery = 5 * time.Millisecond

// queueAgainstDelay fills the bottleneck with 16 flows and compares the queue that the measuring program records
// with the delay of a probe from a 17th sender.
func queueAgainstDelay(ctx context.Context) ([]row, error) {
	var queue, delay float64
	err := withLab(ctx, "truth-delay", strings.ReplaceAll(longFlows, "sender*", "sender1..16"), func(l *lab.Lab, r *experiment.Run) error {
		idle, err := probeFor(ctx, l, time.Second)
		if err != nil {
			return err
		}
		rec, err := measure.Start(labelled(l, "switch->receiver1"))
		if err != nil {
			return err
		}
		defer func() { _ = rec.Stop() }() // if it ends early; Stop is called again below
		probing, stop := context.WithCancel(ctx)
		defer stop()
		type probed struct {
			samples []traffic.Sample
			err     error
		}
		done := make(chan probed, 1)
		go func() {
			s, err := traffic.Probe(probing, l, "sender17", "receiver1", 0, probeEvery)
			done <- probed{s, err}
		}()
		out, err := traffic.Run(ctx, l, &r.Config, r.Seed, traffic.Options{})
		stop()
		got := <-done
		if err := errors.Join(err, got.err, rec.Stop()); err != nil {
			return err
		}
		raw := &result.Raw{Duration: out.Ended, Flows: out.Flows, Bin: r.Config.Series.Std()}
		raw.Ports, raw.Drops, raw.LostRecords = rec.Results(out.T0, out.Ended)
		queue, err = metric(result.Build(r.Info(), raw), "loaded.bottleneck.queue_bytes.mean")
		from, to := r.Config.Windows["loaded"][0], r.Config.Windows["loaded"][1]
		delay = meanMs(got.samples, out.T0+int64(from), out.T0+int64(to)) - meanMs(idle, 0, 1<<62)
		return err
	}, "topology.senders=17")
	const bytesPerMs = 200e6 / 8 / 1e3
	return []row{{what: "delay of a probe, compared with queue / rate", ours: delay, reference: queue / bytesPerMs, unit: "ms", limit: 0.15,
		note: fmt.Sprintf("mean queue %.0f KB", queue/1e3)}}, err
}

func probeFor(ctx context.Context, l *lab.Lab, d time.Duration) ([]traffic.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return traffic.Probe(ctx, l, "sender17", "receiver1", 0, probeEvery)
}

// meanMs returns the mean round trip of the answered probes sent in [from, to).
func meanMs(samples []traffic.Sample, from, to int64) float64 {
	sum, n := 0.0, 0
	for _, s := range samples {
		if s.RTT > 0 && s.At >= from && s.At < to {
			sum += s.RTT.Seconds() * 1e3
			n++
		}
	}
	return sum / float64(n)
}

// labelled returns one port of the lab for the measuring program, with the label of the base text.
func labelled(l *lab.Lab, name string) []measure.Port {
	for _, p := range l.Ports() {
		if p.Name == name {
			return []measure.Port{{
				Name: p.Name, NetnsCookie: p.NetnsCookie, Ifindex: p.Ifindex, RateBps: int64(p.Rate),
				BufferBytes: int64(p.Buffer), Labels: []string{"bottleneck"}, Sample: true,
				Enter: func(f func() error) error { return l.Enter(p.Node, f) },
			}}
		}
	}
	return nil
}

// idleCost measures the idle machine: resident bytes of this process, busy share of all CPUs.
func idleCost(ctx context.Context, d time.Duration) (residentBytes, busy float64, err error) {
	before, err := lab.ReadProcessors()
	if err != nil {
		return 0, 0, err
	}
	select {
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-time.After(d):
	}
	after, err := lab.ReadProcessors()
	if err != nil {
		return 0, 0, err
	}
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0, err
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(data))[1], 64)
	return pages * float64(os.Getpagesize()), after.BusySince(before), err
}
