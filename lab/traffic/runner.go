package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weir/deadline"
	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/workload"
	"weir/law"
)

// runner is one run of the traffic.
type runner struct {
	net     Net
	cfg     *experiment.Config
	work    *workload.Workload
	options Options
	drain   time.Duration
	bin     int64 // bin width of delivered bytes, ns
	zeros   []byte
	clock   clock
	t0      int64
	unmet   []string
	fail    func(error) // ends the run with an error

	dialers   map[place]opener
	listeners map[place]*listener
	order     []place // of dialers and listeners: the order in which they were needed
	udp       *udpEngine

	// Everything the run starts is in tasks; release waits for it.
	tasks     sync.WaitGroup
	attempted atomic.Int64 // connections
	met       atomic.Int64 // connections that reached the server
	reopened  atomic.Int64 // connections opened again after a reset
	ended     atomic.Int64 // flows
	left      atomic.Int64 // open-loop flows and loops that the run waits for
	allEnded  chan struct{}

	mu           sync.Mutex
	over         bool // nothing may start any more
	conns        map[*conn]struct{}
	quiet        chan struct{} // closed when over is set and no connection is left
	flows        []*flow
	firstRefusal error
	errs         map[string]int // causes of failed flows, and how many
}

func newRunner(net Net, cfg *experiment.Config, work *workload.Workload, o Options) *runner {
	r := &runner{
		net: net, cfg: cfg, work: work, options: o,
		drain: o.Drain, bin: int64(cfg.Series), zeros: make([]byte, 256<<10), clock: newClock(),
		dialers: map[place]opener{}, listeners: map[place]*listener{},
		allEnded: make(chan struct{}), conns: map[*conn]struct{}{}, quiet: make(chan struct{}),
		errs: map[string]int{},
	}
	if r.drain <= 0 {
		r.drain = time.Second
	}
	if r.bin <= 0 {
		r.bin = int64(10 * time.Millisecond)
	}
	return r
}

// spawn runs f as a task of the run. It may be called before the run begins, and from tasks.
func (r *runner) spawn(f func()) {
	r.tasks.Add(1)
	go func() {
		defer r.tasks.Done()
		f()
	}()
}

// add registers a connection; false when the run is over.
func (r *runner) add(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *runner) remove(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.conns[c]; !ok {
		return
	}
	delete(r.conns, c)
	if r.over && len(r.conns) == 0 {
		close(r.quiet)
	}
}

func (r *runner) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// newFlow returns the record of a flow that is about to start.
func (r *runner) newFlow(item, pair, mouse, epoch int, size int64) *flow {
	it := &r.cfg.Items[item]
	p := it.Pairs[pair]
	f := &flow{r: r, size: size, give: int64(it.GiveUp), item: int32(item)}
	f.res = result.Flow{
		Group: workload.Group(&it.Traffic), Item: it.Name, Src: p.Src, Dst: p.Dst, Mouse: mouse, Epoch: epoch,
		Endless: size == 0, Size: size, Deadline: it.Deadline.Std(),
		Start: time.Duration(r.clock.now() - r.t0), Timeouts: -1,
	}
	if !workload.UDP(&it.Traffic) {
		f.res.Opening = result.NeverOpened // until it opens
	}
	return f
}

// admit registers a flow; false when the run is over.
func (r *runner) admit(f *flow) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false
	}
	r.flows = append(r.flows, f)
	return true
}

// flowFailed ends a flow because its connection failed. It has no effect on a flow that has ended: then the flow's
// end broke the connection.
func (r *runner) flowFailed(f *flow, err error) {
	if !f.end(false, r.clock.now()) || errors.Is(err, errOver) {
		return
	}
	text := err.Error()
	var errno syscall.Errno
	if errors.As(err, &errno) {
		text = errno.Error() // without the addresses, so that equal causes count together
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[text]++
}

func (r *runner) flowEnded(f *flow) {
	r.ended.Add(1)
	if f.counted {
		r.oneLess()
	}
}

// oneLess records that one thing that the run waits for has ended.
func (r *runner) oneLess() {
	if r.left.Add(-1) == 0 {
		close(r.allEnded)
	}
}

// finish ends everything that still runs: at Duration and on cancellation at once, otherwise after the connections
// have closed by themselves.
func (r *runner) finish(ctx context.Context) {
	now := r.clock.now()
	end := r.t0 + int64(r.cfg.Duration)
	r.mu.Lock()
	r.over = true
	flows := r.flows
	if len(r.conns) == 0 {
		close(r.quiet)
	}
	r.mu.Unlock()
	complete := r.left.Load() == 0
	planned := ctx.Err() == nil
	for _, f := range flows {
		f.finish(planned, min(now, end))
	}
	if complete && planned {
		patience := time.NewTimer(r.drain)
		defer patience.Stop()
		select {
		case <-r.quiet:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
}

// release ends all tasks and closes all sockets.
func (r *runner) release() {
	r.mu.Lock()
	r.over = true
	conns := make([]*conn, 0, len(r.conns))
	for c := range r.conns {
		conns = append(conns, c)
	}
	r.mu.Unlock()
	for _, c := range conns {
		c.abort()
	}
	for _, p := range r.order {
		if l := r.listeners[p]; l != nil {
			l.close()
		}
		if d := r.dialers[p]; d != nil {
			d.close()
		}
	}
	r.tasks.Wait()
	if r.udp != nil {
		r.udp.close()
	}
}

// addressOf is Net.Addr with a check.
func addressOf(net Net, p place) (netip.Addr, error) {
	a := net.Addr(p.node, p.profile)
	if !a.Is4() {
		return a, fmt.Errorf("node %s has no IPv4 address for profile %d", p.node, p.profile)
	}
	return a, nil
}

// note records a setting that could not be made, once.
func (r *runner) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.unmet, text) {
		r.unmet = append(r.unmet, text)
	}
}

func (r *runner) unmetTexts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unmet
}

// declare declares a flow to the agent of the host that sends its data. source and destination are the ends of the data.
func (r *runner) declare(node string, f *flow, source, destination netip.AddrPort) {
	if r.options.Declare == nil || f.res.Deadline == 0 || f.size == 0 {
		return
	}
	left := f.res.Deadline - (time.Duration(r.clock.now()-r.t0) - f.res.Start)
	if left <= 0 {
		return
	}
	err := r.options.Declare(node, deadline.Declaration{Source: source, Destination: destination, Within: left, Bytes: uint64(f.size)})
	if err != nil {
		r.note(fmt.Sprintf("deadlines: %s: a flow could not be declared: %v", node, err))
	}
}

// think waits until the program that was asked for a flow answers.
func (r *runner) think(f *flow) {
	asked := law.Duration(r.clock.now() - r.t0)
	if at := r.work.Answers(f.item, int32(f.res.Mouse), int32(f.res.Epoch), asked); at > asked {
		time.Sleep(time.Duration(at - asked))
	}
}
