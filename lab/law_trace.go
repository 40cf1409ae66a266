package lab

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weir/datapath/fairq"
	"weir/experiment"
	"weir/experiment/result"
)

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
		tick := time.NewTicker(result.LawEvery)
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

func (t *lawTrace) read(f *fairq.Attachment, ports []string) error {
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

// fairQTally is what FairQ did so far; false: there is none.
func (l *Lab) fairQTally() (t experiment.FairQTally, has bool, err error) {
	for _, f := range l.fairqs {
		ports, err := f.Stats()
		if err != nil {
			return t, true, err
		}
		for i := range ports {
			p := &ports[i]
			t.Acks.All += p.Rewritten + p.Smaller + p.Ungoverned + p.Free + p.Untold
			t.Acks.Rewritten, t.Acks.Told, t.Acks.Left = t.Acks.Rewritten+p.Rewritten, t.Acks.Told+p.Told, t.Acks.Left+p.Untold
			t.Refused, t.Opened, t.Unknown, t.Seen = t.Refused+p.TableFull, t.Opened+p.Opened, t.Unknown+p.Unknown, t.Seen+p.Seen
			t.Late, t.Samples = t.Late+p.SamplesByPacket, t.Samples+p.Samples
		}
	}
	return t, len(l.fairqs) > 0, nil
}

// lawAcks counts what FairQ did with acknowledgements so far; nil where there is none.
func (l *Lab) lawAcks() (*result.LawAcks, error) {
	t, has, err := l.fairQTally()
	if !has || err != nil {
		return nil, err
	}
	return &t.Acks, nil
}

// troubleOfLaws says what kept FairQ from being enforced.
func (l *Lab) troubleOfLaws() []string {
	t, _, err := l.fairQTally()
	if err != nil {
		return []string{fmt.Sprintf("fairq: its counters cannot be read: %v", err)}
	}
	return t.Trouble()
}
