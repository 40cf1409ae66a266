package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"weir/datapath/fairq"
	"weir/experiment"
	"weir/lab"
)

const (
	busyFlows = 4
	idleFlows = 1000
	// poolByte is the interval between bytes on idle connections: each connection sends one every 10 s.
	poolByte    = 10 * time.Second / idleFlows
	poolSettle  = 3 * time.Second
	poolMeasure = 5 * time.Second
	poolLater   = 20 * time.Second
)

// pool measures the effect of idle keep-alive connections between the same hosts on busy flows, with each way of
// counting flows.
func pool(ctx context.Context) (rows []row, err error) {
	for _, c := range []struct {
		name  string
		count fairq.Count
	}{{"active", fairq.CountActive}, {"handshake", fairq.CountHandshake}} {
		err := withLab(ctx, "truth-pool", oneFlow, func(l *lab.Lab, _ *experiment.Run) error {
			got, err := withPool(ctx, l, c.count)
			if err != nil {
				return err
			}
			rows = append(rows, got.rows("count: "+c.name, c.count == fairq.CountActive)...)
			return nil
		}, fmt.Sprintf("topology.senders=%d", busyFlows))
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// shares has the rates of the busy flows over some seconds.
type shares struct {
	each                 []float64 // Mbit/s
	sum                  float64
	flows, window, queue []float64 // samples of the bottleneck
}

// poolShares has the shares without the pool, directly after it opens, and later.
type poolShares struct{ alone, atOnce, later *shares }

// withPool measures the busy flows alone and with the pool.
func withPool(ctx context.Context, l *lab.Lab, count fairq.Count) (got poolShares, err error) {
	f, err := startFairQ(l, fairq.Config{Count: count}, nil)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	var nodes []string
	for i := range busyFlows {
		nodes = append(nodes, fmt.Sprintf("sender%d", i+1))
	}
	busy, err := openStreams(l, nodes)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, busy.close()) }()
	if err := pause(ctx, poolSettle); err != nil {
		return got, err
	}
	if got.alone, err = measureShares(ctx, f, busy); err != nil {
		return got, err
	}
	idle := &streams{}
	defer func() { err = errors.Join(err, idle.close()) }()
	if idle.clients, idle.servers, err = dialAll(l, slices.Repeat(nodes, idleFlows/busyFlows)); err != nil {
		return got, err
	}
	idle.tasks.Go(func() { keepAlive(idle.clients) })
	if got.atOnce, err = measureShares(ctx, f, busy); err != nil {
		return got, err
	}
	if err := pause(ctx, poolLater); err != nil {
		return got, err
	}
	got.later, err = measureShares(ctx, f, busy)
	return got, err
}

// keepAlive sends a byte on one connection after the other until they are closed.
func keepAlive(conns []net.Conn) {
	ticker := time.NewTicker(poolByte)
	defer ticker.Stop()
	for i := 0; ; i++ {
		<-ticker.C
		if _, err := conns[i%len(conns)].Write([]byte{0}); err != nil {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func measureShares(ctx context.Context, f *running, busy *streams) (*shares, error) {
	s := &shares{}
	start, before := time.Now(), busy.totals()
	for time.Since(start) < poolMeasure {
		if err := pause(ctx, countEvery); err != nil {
			return nil, err
		}
		p, err := f.PortStats(bottleneck)
		if err != nil {
			return nil, err
		}
		s.flows, s.window, s.queue = append(s.flows, float64(p.Flows)), append(s.window, float64(p.GrantBytes)), append(s.queue, float64(p.QueueBytes))
	}
	s.each, s.sum = rates(before, busy.totals(), time.Since(start))
	return s, nil
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// rows compares with the flows alone. If excluded is true the pool must change nothing; otherwise it must be
// visible.
func (b *poolShares) rows(name string, excluded bool) (rows []row) {
	limit := func(l float64) float64 {
		if excluded {
			return l
		}
		return 0
	}
	for _, at := range []struct {
		when string
		s    *shares
	}{{"at once", b.atOnce}, {"after 20 s", b.later}} {
		what := fmt.Sprintf("%s, %d idle, %s: ", name, idleFlows, at.when)
		rows = append(rows,
			row{what: what + "goodput", ours: at.s.sum, reference: b.alone.sum, unit: "Mbit/s", limit: limit(0.05)},
			row{what: what + "least / largest share", ours: slices.Min(at.s.each) / slices.Max(at.s.each),
				reference: slices.Min(b.alone.each) / slices.Max(b.alone.each), limit: limit(0.05),
				note: fmt.Sprintf("Jain's index %.4f, alone %.4f", jain(at.s.each), jain(b.alone.each))},
			row{what: what + "window granted", ours: mean(at.s.window) / 1e3, reference: mean(b.alone.window) / 1e3, unit: "KB", limit: limit(0.1)},
			row{what: what + "mean queue", ours: mean(at.s.queue) / 1e3, reference: mean(b.alone.queue) / 1e3, unit: "KB", limit: limit(0.2)},
		)
		count := row{what: what + "flows counted, mean", ours: mean(at.s.flows), reference: mean(b.alone.flows),
			note: fmt.Sprintf("%.0f to %.0f; the idle ones send 100 bytes a second", slices.Min(at.s.flows), slices.Max(at.s.flows))}
		if !excluded {
			count.reference, count.limit = busyFlows+idleFlows, 0.01
		}
		rows = append(rows, count)
		if !excluded && at.s == b.atOnce {
			window := &rows[len(rows)-3]
			window.limit, window.atMost, window.note = 0.7, true, "the law reacts slowly, here as to any change"
		}
	}
	return rows
}
