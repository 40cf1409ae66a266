package remote

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"weir/experiment"
	"weir/experiment/store"
)

// maxPlans is the number of experiments that a worker remembers: 'weir figures' runs at most two at a time.
const maxPlans = 2

// errForeign reports a task that does not name a run of its experiment.
var errForeign = errors.New("the task names no run of its experiment")

// plans finds the runs of tasks. It remembers the latest experiments, because planning one takes time.
type plans struct {
	laws *experiment.Laws

	mu     sync.Mutex
	latest []planned // the newest first
}

type planned struct {
	asked [sha256.Size]byte
	runs  map[string]*experiment.Run // by key
}

// find plans the task's experiment again and returns the run with the task's key.
func (p *plans) find(t *Task) (*experiment.Run, error) {
	p.mu.Lock() // also while it plans: other tasks are mostly of the same experiment
	defer p.mu.Unlock()
	runs, err := p.of(t.Asked)
	if err != nil {
		return nil, err
	}
	run := runs[t.Key]
	if run == nil || run.World != t.World || run.Scheme != t.Scheme || run.Seed != t.Seed {
		return nil, errForeign
	}
	return run, nil
}

func (p *plans) of(text []byte) (map[string]*experiment.Run, error) {
	sum := sha256.Sum256(text)
	for _, known := range p.latest {
		if known.asked == sum {
			return known.runs, nil
		}
	}
	asked, err := unpackAsked(text)
	if err != nil {
		return nil, err
	}
	plan, err := asked.Plan(p.laws)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	runs := make(map[string]*experiment.Run, len(plan.Runs))
	for _, r := range plan.Runs {
		key, err := store.Key(r)
		if err != nil {
			return nil, err
		}
		runs[key] = r
	}
	p.latest = append([]planned{{sum, runs}}, p.latest[:min(len(p.latest), maxPlans-1)]...)
	return runs, nil
}
