package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/fairq"
	"weir/experiment"
	"weir/lab"
)

const (
	spinSpan  = 20 * time.Millisecond
	spinSpans = 60 // the best one counts: other programs use the processors too
)

// timer measures the share of a processor that the timer of one busy port uses, at several sampling intervals. It
// is mostly the interrupt: cheap on bare metal, expensive on a virtual machine.
func timer(ctx context.Context) (rows []row, err error) {
	err = withLab(ctx, "truth-timer", oneFlow, func(l *lab.Lab, _ *experiment.Run) error {
		for _, tick := range []time.Duration{fairqTick, 2 * fairqTick, 4 * fairqTick, 10 * fairqTick, 20 * fairqTick} {
			r, err := timerCost(l, tick)
			if err != nil {
				return err
			}
			rows = append(rows, r)
		}
		return ctx.Err()
	}, "topology.senders=1")
	return rows, err
}

// timerCost compares how fast each processor computes with the port's timer and without. The timer runs on one of
// them.
func timerCost(l *lab.Lab, tick time.Duration) (r row, err error) {
	f, err := startFairQ(l, fairq.Config{}, func(*lab.Port) (fairq.Law, bool) {
		return fairq.Law{TargetBytes: 1e6, Tick: tick, Period: tick, Active: fairq.MaxActive}, true
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	without := spinAll()
	clients, servers, err := dialAll(l, []string{"sender1"})
	s := &streams{clients: clients, servers: servers}
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return r, err
	}
	if _, err := clients[0].Write([]byte{0}); err != nil { // a flow for the next 4 s
		return r, err
	}
	start := time.Now()
	before, err := f.PortStats(bottleneck)
	if err != nil {
		return r, err
	}
	with := spinAll()
	after, err := f.PortStats(bottleneck)
	if err != nil {
		return r, err
	}
	perSecond := float64(after.Samples-before.Samples) / time.Since(start).Seconds()
	var stolen []float64
	for i := range with {
		stolen = append(stolen, 1-with[i]/without[i])
	}
	worst := slices.Max(stolen)
	return row{
		what: fmt.Sprintf("timer of a busy port, T = %v: share of a processor", tick), ours: 100 * worst, reference: 100, unit: "%",
		note: fmt.Sprintf("%.0f samples a second, %.1f us each", perSecond, 1e6*worst/perSecond),
	}, nil
}

// spinAll computes on every processor and returns how much each did, per second of its own time, in its best span.
func spinAll() []float64 {
	best := make([]float64, runtime.NumCPU())
	var all sync.WaitGroup
	for i := range best {
		all.Go(func() { best[i] = spin(i) })
	}
	all.Wait()
	return best
}

func spin(cpu int) (best float64) {
	runtime.LockOSThread() // never unlocked: the thread and its affinity end together
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return 0
	}
	x := uint64(1)
	for range spinSpans {
		began, done := threadTime(), 0.0
		for end := time.Now().Add(spinSpan); time.Now().Before(end); done++ {
			for range 10_000 {
				x = x*6364136223846793005 + 1442695040888963407
			}
		}
		best = max(best, done/(threadTime()-began).Seconds())
	}
	runtime.KeepAlive(x)
	return best
}

// threadTime returns the processor time of this thread, including interrupts.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("truth: no clock of the thread: " + err.Error())
	}
	return time.Duration(t.Nano())
}
