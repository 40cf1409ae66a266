package lab

import (
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weir/experiment"
	"weir/experiment/result"
)

// lawTrace reads the laws' metrics of the ports whose queues are sampled.
type lawTrace struct {
	end, done chan struct{}
	seen      []result.LawSample // At is CLOCK_MONOTONIC
	err       error
}

// traceLaws starts to read, until stop.
func (l *Lab) traceLaws(cfg *experiment.Config) *lawTrace {
	t := &lawTrace{end: make(chan struct{}), done: make(chan struct{})}
	ports := slices.Compact(slices.Sorted(maps.Values(cfg.Ports))) // several labels may name one port
	has := slices.ContainsFunc(l.laws, func(at attachedLaw) bool { return slices.ContainsFunc(ports, at.Has) })
	go func() {
		defer close(t.done)
		tick := time.NewTicker(result.LawEvery)
		defer tick.Stop()
		for has && t.err == nil {
			select {
			case <-t.end:
				return
			case <-tick.C:
			}
			for _, at := range l.laws {
				t.err = errors.Join(t.err, t.read(at, ports))
			}
		}
	}()
	return t
}

func (t *lawTrace) read(at Attached, ports []string) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	for _, name := range ports {
		values, err := at.Sample(name)
		if err != nil {
			return err
		}
		for _, v := range values {
			t.seen = append(t.seen, result.LawSample{At: time.Duration(now.Nano()), Port: name, Value: v})
		}
	}
	return nil
}

// stop returns the samples from t0 (CLOCK_MONOTONIC, ns) on, up to length; times are relative to t0.
func (t *lawTrace) stop(t0 int64, length time.Duration) ([]result.LawSample, error) {
	close(t.end)
	<-t.done
	var out []result.LawSample
	for _, s := range t.seen {
		if s.At -= time.Duration(t0); s.At >= 0 && s.At < length {
			out = append(out, s)
		}
	}
	return out, t.err
}
