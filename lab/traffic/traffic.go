// Package traffic generates the traffic of a run on real TCP and measures its times. Client and server of every
// flow run in this one process; their sockets are opened in the nodes' network namespaces.
//
//	traffic.go   Run: from the schedule to the finished flows
//	runner.go    what the parts of a run share
//	dispatch.go  starts everything at its time
//	loop.go      closed loops and persistent connections
//	flow.go      one flow: its bytes, its end
//	conn.go      one TCP connection, both ends
//	end.go       what a flow needs of any TCP
//	dial.go      the kernel's: sockets opened in advance;  listen.go  servers;  socket.go  one end
//	foreign.go   netstack's
//	udp.go       UDP at a constant rate
//	clock.go     CLOCK_MONOTONIC and exact waiting
//	prepare.go   settings of the nodes' namespaces
//	probe.go     round-trip times, idle (RTT) and under load (Probe)
//
// On the line, a push is exactly `size` bytes from the connecting side; a pull is a request of 64 B and exactly
// `size` bytes back. A push on a persistent connection is answered with 64 B.
//
// A flow starts just before connect(), on a persistent connection just before its first byte is written. It is
// complete when the receiving program has its last byte.
package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weir/deadline"
	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/workload"
	"weir/lab/netstack"
	"weir/law"
)

// Net is the network that the traffic crosses.
type Net interface {
	// Addr returns the IPv4 address of a node for one profile of guests' TCP.
	Addr(node string, profile int) netip.Addr
	// Enter runs f on a thread in the node's network namespace.
	Enter(node string, f func() error) error
	// Guest returns the foreign TCP of a node for one profile; nil if it is the kernel's.
	Guest(node string, profile int) *netstack.Guest
}

// Options of Run.
type Options struct {
	// Progress, if set, receives the progress of the run from time to time.
	Progress func(now law.Duration, flowsDone int)
	// Declare declares a flow with a deadline, as its program does: on the node that sends the data, before its first byte. The flow waits
	// for it. nil: nobody wants to know. An error is one of the run's Unmet.
	Declare func(node string, d deadline.Declaration) error
	// Drain is how long a connection may take to end after its last flow, before it is reset; 0: 1 s.
	Drain time.Duration
}

// Outcome is the result of a run of the traffic.
type Outcome struct {
	T0      int64         // CLOCK_MONOTONIC of t = 0, ns
	Flows   []result.Flow // ordered by Start
	Ended   time.Duration // when the last flow ended, from t = 0
	Partial bool          // the context was cancelled before the end
	Unmet   []string      // settings that the nodes refused
	// Failures counts, by cause, the flows that are unfinished because their connection failed (not those that
	// were given up or cut).
	Failures map[string]int
	// Reopened counts connections that were reset before any data arrived and were opened again within their flow;
	// this is a defect of some kernels.
	Reopened int
}

// Run generates the traffic of cfg. It ends when every flow has, at latest at cfg.Duration: endless flows are then
// done, others unfinished. Requests that a closed loop had not begun by then are not reported. When ctx is
// cancelled all flows are cut and the outcome is Partial. A flow that fails by itself is unfinished. Run returns
// an error if no connection at all opens, or if sockets cannot be opened.
func Run(ctx context.Context, net Net, cfg *experiment.Config, seed int64, o Options) (*Outcome, error) {
	work, err := workload.Expand(cfg, seed)
	if err != nil {
		return nil, err
	}
	r := newRunner(net, cfg, work, o)
	defer r.release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.fail = func(err error) { cancel(&failure{err}) }
	if err := r.prepare(); err != nil {
		return nil, err
	}
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	r.await(ctx)
	r.finish(ctx)
	cause := context.Cause(ctx)
	cancel(nil)
	r.release()

	var broken *failure
	if errors.As(cause, &broken) {
		return nil, broken.error
	}
	if r.attempted.Load() > 0 && r.met.Load() == 0 && cause == nil {
		return nil, fmt.Errorf("none of %d connections opened: check the lab's addresses and routes: %w",
			r.attempted.Load(), cmp.Or(r.firstRefusal, errNoAnswer))
	}
	return r.outcome(cause != nil), nil
}

// failure is an error of the traffic itself, not of a single flow.
type failure struct{ error }

var (
	errOver     = errors.New("the run is over")
	errNoAnswer = errors.New("no answer to any SYN")
)

// await returns when every flow has ended, at Duration, or when ctx is done.
func (r *runner) await(ctx context.Context) {
	end := time.NewTimer(r.clock.until(r.t0 + int64(r.cfg.Duration)))
	defer end.Stop()
	var tick <-chan time.Time
	if r.options.Progress != nil {
		ticker := time.NewTicker(progressStep)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-r.allEnded:
			return
		case <-end.C:
			return
		case <-ctx.Done():
			return
		case <-tick:
			r.options.Progress(law.Duration(max(0, r.clock.now()-r.t0)), int(r.ended.Load()))
		}
	}
}

const progressStep = 200 * time.Millisecond

// outcome collects the flows. Nothing of the run is active any more.
func (r *runner) outcome(partial bool) *Outcome {
	out := &Outcome{T0: r.t0, Partial: partial, Unmet: r.unmetTexts(), Failures: r.errs, Reopened: int(r.reopened.Load())}
	out.Flows = make([]result.Flow, 0, len(r.flows))
	for _, f := range r.flows {
		out.Flows = append(out.Flows, f.res)
		out.Ended = max(out.Ended, f.res.End)
	}
	slices.SortStableFunc(out.Flows, func(a, b result.Flow) int { return cmp.Compare(a.Start, b.Start) })
	return out
}
