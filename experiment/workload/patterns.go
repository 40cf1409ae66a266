package workload

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"weir/experiment"
	"weir/law"
)

type expander struct {
	cfg    *experiment.Config
	seed   int64
	jitter law.Duration
	mice   map[string]int                // mice so far in each group
	total  int64                         // flows and requests so far
	links  map[string][]*experiment.Link // of each node; nil: not calculated yet
	out    Workload
}

// plan is one item with its defaults filled in.
type plan struct {
	*experiment.Item
	index        int32
	count        int // flows or connections of a pair
	epochs       int
	stop         law.Duration // no flow starts at or after this
	distribution *Distribution
	firstMouse   int
}

func (e *expander) item(i int) error {
	it := &e.cfg.Items[i]
	p := &plan{Item: it, index: int32(i), count: max(it.Count, 1), stop: e.cfg.Duration}
	if it.Stop > 0 {
		p.stop = min(it.Stop, e.cfg.Duration)
	}
	if len(it.Pairs) == 0 {
		return errors.New("has no pair of nodes: check `from`, `to` and `pair`")
	}
	if it.Stop > 0 && it.Stop <= it.Start {
		return fmt.Errorf("stop %v is not after start %v", it.Stop, it.Start)
	}
	if it.CDF != "" {
		d, err := DistributionOf(it.CDF)
		if err != nil {
			return err
		}
		p.distribution = d
	}
	if err := p.check(); err != nil {
		return err
	}
	expand := e.flows
	switch it.Pattern {
	case "poisson":
		p.count, expand = 1, e.poisson
	case "closed_loop":
		p.count, expand = max(it.Concurrency, 1), e.loops
	}
	if it.Requests > 0 && it.Pattern == "closed_loop" {
		p.count = min(p.count, it.Requests)
	}
	p.epochs = p.repeats()
	group := Group(&it.Traffic)
	p.firstMouse = e.mice[group]
	e.mice[group] += len(it.Pairs) * p.count
	return expand(p)
}

// check returns an error if keys cannot be combined.
func (p *plan) check() error {
	sized := p.Size > 0 || p.distribution != nil
	udp, persistent := UDP(&p.Traffic), Persistent(&p.Traffic)
	switch p.Pattern {
	case "bulk", "cbr":
		if p.Every > 0 || p.Epochs > 1 {
			return fmt.Errorf("pattern %s does not repeat: leave out every and epochs, or take burst", p.Pattern)
		}
		if persistent {
			return fmt.Errorf("pattern %s has one flow a connection: leave out connection: persistent", p.Pattern)
		}
		if p.Pattern == "cbr" && p.Rate <= 0 {
			return errors.New("pattern cbr needs a rate")
		}
		return nil
	case "burst", "poisson", "closed_loop":
	default:
		return fmt.Errorf("pattern %q is not known; it is one of bulk, cbr, burst, closed_loop, poisson", p.Pattern)
	}
	switch {
	case udp:
		return fmt.Errorf("pattern %s cannot be udp: take bulk or cbr", p.Pattern)
	case !sized:
		return fmt.Errorf("pattern %s needs a size or a cdf", p.Pattern)
	case p.Epochs > 1 && p.Every <= 0:
		return errors.New("epochs needs every")
	case p.Pattern == "poisson" && p.Load <= 0:
		return errors.New("pattern poisson needs a load above 0")
	case p.Pattern == "closed_loop" && p.Count > 1:
		return errors.New("pattern closed_loop has no count: take concurrency")
	}
	return nil
}

// repeats returns how many epochs start before the item's stop; without `epochs` as many as fit.
func (p *plan) repeats() int {
	if p.Start >= p.stop {
		return 0
	}
	if p.Every <= 0 {
		return 1
	}
	fit := (p.stop-p.Start-1)/p.Every + 1
	if p.Epochs > 0 {
		fit = min(fit, law.Duration(p.Epochs))
	}
	return int(min(fit, MaxFlows+1))
}

// reserve counts flows towards the limit before they are created.
func (e *expander) reserve(n float64, lower string) error {
	if n+float64(e.total) > MaxFlows {
		return fmt.Errorf("the run has %.0f flows, more than the limit of %d: lower %s", n+float64(e.total), MaxFlows, lower)
	}
	e.total += int64(n)
	return nil
}

// starts draws the start times of the n units of each epoch, epoch by epoch.
func (e *expander) starts(p *plan, n int) func(epoch int) []law.Duration {
	jitter := newRandom(e.seed, p.Name, "jitter")
	order := newRandom(e.seed, p.Name, "order")
	gap := newRandom(e.seed, p.Name, "gap")
	return func(epoch int) []law.Duration {
		at := p.Start + law.Duration(epoch)*p.Every
		starts := make([]law.Duration, n)
		if p.Gap <= 0 {
			for i := range starts {
				starts[i] = at + jitter.duration(e.jitter)
			}
			return starts
		}
		at += jitter.duration(e.jitter)
		for _, i := range order.shuffled(n) {
			starts[i] = at
			at = min(at+gap.exponential(float64(p.Gap)), never)
		}
		return starts
	}
}

// flows schedules bulk, cbr and burst: in each epoch `count` flows of each pair.
func (e *expander) flows(p *plan) error {
	units := len(p.Pairs) * p.count
	if err := e.reserve(float64(units)*float64(p.epochs), "count or epochs"); err != nil {
		return err
	}
	cut := law.Duration(0)
	if p.Pattern != "burst" && p.Stop > 0 {
		cut = p.Stop
	}
	size := newRandom(e.seed, p.Name, "size")
	starts := e.starts(p, units)
	for epoch := range p.epochs {
		for unit, start := range starts(epoch) {
			f := Flow{
				Item: p.index, Pair: int32(unit / p.count), Mouse: int32(p.firstMouse + unit),
				Epoch: int32(epoch), Start: start, Stop: cut, Size: p.draw(size),
			}
			rate, err := e.pace(p, int(f.Pair))
			if err != nil {
				return err
			}
			f.Rate = rate
			if start < p.stop {
				e.out.Flows = append(e.out.Flows, f)
			}
		}
	}
	return nil
}

// draw returns the size of the next flow.
func (p *plan) draw(r random) law.Bytes {
	if p.distribution == nil {
		return p.Size
	}
	return p.distribution.Quantile(r.unit())
}

// pace returns the rate that the sender keeps to. UDP has no rate of its own: without `rate` it fills the source's
// link.
func (e *expander) pace(p *plan, pair int) (law.Rate, error) {
	if p.Rate > 0 || !UDP(&p.Traffic) {
		return p.Rate, nil
	}
	link, err := e.uplink(p.Pairs[pair].Src)
	return link.rate, err
}

// loops schedules closed loops: one for each pair in each epoch.
func (e *expander) loops(p *plan) error {
	requests := max(p.Requests, p.count)
	if err := e.reserve(float64(len(p.Pairs))*float64(p.epochs)*float64(requests), "requests or epochs"); err != nil {
		return err
	}
	starts := e.starts(p, len(p.Pairs)*p.count)
	for epoch := range p.epochs {
		at := starts(epoch)
		for pair := range p.Pairs {
			first := pair * p.count
			_, key := seedOf(e.seed, p.Name, "size "+strconv.Itoa(pair)+" "+strconv.Itoa(epoch))
			e.out.Loops = append(e.out.Loops, Loop{
				Item: p.index, Pair: int32(pair), Mouse: int32(p.firstMouse + first),
				Epoch: int32(epoch * p.Requests), Starts: at[first : first+p.count : first+p.count],
				Stop: p.stop, Requests: int32(p.Requests),
				size: p.Size, distribution: p.distribution, key: key,
			})
		}
	}
	return nil
}

// poisson schedules arrivals on each link of the from side until the item's stop.
func (e *expander) poisson(p *plan) error {
	mean := float64(p.Size)
	if p.distribution != nil {
		mean = p.distribution.Mean()
	}
	links, err := e.sources(p)
	if err != nil {
		return err
	}
	expected := 0.0
	for _, l := range links {
		expected += float64(p.stop-p.Start) / l.gapNs(p.Load, mean)
	}
	// Four standard deviations above the mean: the limit holds for the drawn number, too.
	if err := e.reserve(max(0, math.Ceil(expected+4*math.Sqrt(max(expected, 0)))), "load or duration"); err != nil {
		return err
	}
	serial := make([]int32, len(p.Pairs))
	for _, l := range links {
		arrival := newRandom(e.seed, p.Name, "arrival "+l.name)
		pick := newRandom(e.seed, p.Name, "pick "+l.name)
		size := newRandom(e.seed, p.Name, "size "+l.name)
		gap := l.gapNs(p.Load, mean)
		for at := p.Start + arrival.exponential(gap); at < p.stop; at += arrival.exponential(gap) {
			pair := l.pairs[pick.below(len(l.pairs))]
			e.out.Flows = append(e.out.Flows, Flow{
				Item: p.index, Pair: int32(pair), Mouse: int32(p.firstMouse + pair),
				Epoch: serial[pair], Start: at, Size: p.draw(size),
			})
			serial[pair]++
		}
	}
	return nil
}
