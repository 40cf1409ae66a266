package lab

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath"
	"weir/experiment"
	"weir/experiment/result"
)

// lawEvery is how often a law's state is read, in the world's time: a few hundred of these a second cost
// less than one per cent of a processor.
const lawEvery = 10 * time.Millisecond

// lawTrace reads what FairQ counts and grants at the ports whose queues are sampled.
type lawTrace struct {
	end, done chan struct{}
	seen      []result.LawSample // At is CLOCK_MONOTONIC
	err       error
}

// traceLaws begins to read, until stop. Other laws than FairQ have nothing to read.
func (l *Lab) traceLaws(cfg *experiment.Config) *lawTrace {
	t := &lawTrace{end: make(chan struct{}), done: make(chan struct{})}
	ports := slices.Compact(slices.Sorted(maps.Values(cfg.Ports))) // labels may share one
	go func() {
		defer close(t.done)
		tick := time.NewTicker(lawEvery)
		defer tick.Stop()
		for len(l.fairqs) > 0 && t.err == nil {
			select {
			case <-t.end:
				return
			case <-tick.C:
			}
			for _, f := range l.fairqs {
				t.err = errors.Join(t.err, t.read(f, ports))
			}
		}
	}()
	return t
}

func (t *lawTrace) read(f *datapath.FairQ, ports []string) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	for _, name := range ports {
		if !f.On(name) {
			continue
		}
		p, err := f.PortStats(name)
		if err != nil {
			return err
		}
		t.seen = append(t.seen, result.LawSample{
			At: time.Duration(now.Nano()), Port: name, Flows: p.Flows, Window: p.WindowBytes, Grant: p.GrantBytes,
		})
	}
	return nil
}

// stop gives what was seen, with times from t0 (CLOCK_MONOTONIC, ns) on, up to length.
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

// lawAcks counts what FairQ did with acknowledgements so far; nil where there is none.
func (l *Lab) lawAcks() (*result.LawAcks, error) {
	if len(l.fairqs) == 0 {
		return nil, nil
	}
	n := &result.LawAcks{}
	for _, f := range l.fairqs {
		ports, err := f.Stats()
		if err != nil {
			return nil, err
		}
		for i := range ports {
			p := &ports[i]
			n.All += p.Rewritten + p.Smaller + p.Ungoverned + p.Free + p.Untold
			n.Rewritten, n.Told, n.Left = n.Rewritten+p.Rewritten, n.Told+p.Told, n.Left+p.Untold
		}
	}
	return n, nil
}

// troubleOfLaws says what kept FairQ from being enforced on every flow, where it is more than a thousandth
// of them, and where it did not see the queue when it should. It says no numbers, so that it reads the same
// for all runs.
func (l *Lab) troubleOfLaws() []string {
	var refused, opened, unknown, seen, late, samples uint64
	for _, f := range l.fairqs {
		ports, err := f.Stats()
		if err != nil {
			return []string{fmt.Sprintf("fairq: its counters cannot be read: %v", err)}
		}
		for i := range ports {
			p := &ports[i]
			refused, opened, unknown, seen = refused+p.TableFull, opened+p.Opened, unknown+p.Unknown, seen+p.Seen
			late, samples = late+p.SamplesByPacket, samples+p.Samples
		}
	}
	var out []string
	if refused*1000 > opened {
		out = append(out, "fairq: over 0.1 % of the connections were not entered in the flow table (no room, or an entry of their addresses was there), and not held")
	}
	if unknown*1000 > seen {
		out = append(out, "fairq: over 0.1 % of the acknowledgements were of no connection in the flow table, and not rewritten")
	}
	if late*20 > samples+late {
		out = append(out, "fairq: over 5 % of the samples of queues were taken by a packet, because the timer was late")
	}
	return out
}
