package agentd

import (
	"errors"
	"iter"
	"log/slog"
	"slices"
	"time"

	"weir/bus/weirv1"
	"weir/datapath/attach"
	"weir/datapath/flows"
	"weir/law"
)

// progress reports how far the flows of a switch's ports have come. All methods accept nil: no law asks for it.
type progress struct {
	*flows.Flows
	why     error // why it counts nothing
	changes []flows.Change
	batch   []*weirv1.FlowReport
}

// openProgress makes the table of flows, if the file asks for it.
func (r *switchRole) openProgress(signals []law.Signal) *progress {
	if !slices.Contains(signals, law.Progress) {
		return nil
	}
	f, err := flows.New()
	if err != nil {
		r.log.Warn("no progress of flows", "reason", remedy(err))
	}
	return &progress{Flows: f, why: err}
}

func (p *progress) add(port attach.PortRef, n uint32) error {
	if p == nil {
		return nil
	}
	if p.Flows == nil {
		return p.why
	}
	return p.Add(flows.Port{PortRef: port, N: n})
}

func (p *progress) remove(n uint32) error {
	if p == nil || p.Flows == nil {
		return nil
	}
	return p.Remove(n)
}

func (p *progress) close(log *slog.Logger) {
	if p == nil || p.Flows == nil {
		return
	}
	if err := p.Close(); err != nil {
		log.Warn("cannot detach from the flows of ports", "error", err)
	}
}

// messages reads what the flows did, and yields the messages about it.
func (p *progress) messages(at uint64, failed func(error)) iter.Seq[*weirv1.Events] {
	return func(yield func(*weirv1.Events) bool) {
		if p == nil || p.Flows == nil {
			return
		}
		var err error
		if p.changes, err = p.Read(time.Duration(attach.MonotonicNs()), p.changes[:0]); err != nil {
			failed(errors.Join(errors.New("progress of flows"), err))
		}
		for part := range slices.Chunk(p.changes, weirv1.MaxFlows) {
			p.batch = p.batch[:0]
			for _, c := range part {
				if c.Usable() {
					p.batch = append(p.batch, &weirv1.FlowReport{Port: c.Port, Flow: weirv1.NewFlow(c.Flow), SentBytes: c.Sent, Began: c.Began, Ended: c.Ended})
				}
			}
			if len(p.batch) > 0 && !yield(&weirv1.Events{Switch: at, Flows: p.batch}) {
				return
			}
		}
	}
}
