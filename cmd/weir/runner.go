package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/experiment"
	"weir/experiment/remote"
	"weir/experiment/result"
	"weir/experiment/store"
	"weir/lab"
)

// runner carries out the runs of a plan, and stores each when it finishes.
type runner struct {
	plan      *experiment.Plan
	worlds    map[string]experiment.World
	store     *store.Dir                         // nil: nothing is stored
	resume    resuming                           // selects the stored runs to keep
	code      func(world string) (string, error) // codeOf
	codes     map[string]string                  // results of code, by world
	labValues bool                               // some of the simulator's runs take what the lab measured
	progress  *progress

	processors places
	begun      func() // if set, called when the last of the simulator's runs has begun

	remote *remote.Client // runs are carried out by workers; nil: here
	asked  remote.Packed  // with remote: the experiment
}

// places limits the runs in progress; experiments may share it.
type places interface {
	Take() // waits for a place
	Give()
}

// processors is one place per processor, for the simulator's runs on this machine.
type processors chan struct{}

func newProcessors() processors { return make(processors, runtime.GOMAXPROCS(0)) }

func (p processors) Take() { p <- struct{}{} }
func (p processors) Give() { <-p }

// openStore opens the directory of the results, and removes the lab of a run that was killed there.
func openStore(dir string, asked *store.Asked, stderr io.Writer) (*store.Dir, error) {
	d, killed, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	if killed != 0 {
		cleanAfter(killed, stderr)
	}
	if err := d.Ask(asked); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// cleanAfter removes the lab of a killed process. A failure is only reported: labs share nothing.
func cleanAfter(pid int, stderr io.Writer) {
	labs, err := lab.List()
	for _, l := range labs {
		if err != nil || l.Pid != pid || !l.Owned || l.Alive {
			continue
		}
		if _, err = lab.Clean(l.Name); err == nil {
			fmt.Fprintf(stderr, "removed lab %s, which a killed run left behind\n", l.Name)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "cannot remove the lab of a killed run (see 'weir lab list'): %v\n", err)
	}
}

// task is one run of the plan with its result. The result of a lab run is only in the store, because the garbage
// collector would delay later runs if it were in memory.
type task struct {
	run       *experiment.Run
	key       string
	stored    bool
	rtt       time.Duration                                // of the idle network, after the run
	ended     time.Time                                    // when the run ended
	starts    map[experiment.FlowName]experiment.FlowStart // of the lab's run, if the simulator's runs use the same start times
	labValues *experiment.Run                              // the run with the lab's measurements; nil: run is used unchanged
	unmet     []result.Unmet                               // in addition to what its world reports
	out       *result.Run
}

// run returns the results in the order of the plan. On error it also returns those of the finished runs.
func (r *runner) run(ctx context.Context) ([]*result.Run, error) {
	defer r.progress.close()
	tasks, err := r.tasks()
	if err != nil {
		return nil, err
	}
	runErr := r.runAll(ctx, tasks)
	out, err := r.results(tasks)
	return out, errors.Join(runErr, err)
}

// runAll carries out the missing runs: first the lab's, one after the other because they share the machine's clock,
// then the simulator's, one per processor.
func (r *runner) runAll(ctx context.Context, tasks []*task) error {
	count := 0
	for _, t := range tasks {
		if t.stored && !t.run.LabRTT {
			continue
		}
		if r.remote == nil || t.run.World == experiment.WorldSim { // a worker checks its own lab
			if err := r.worlds[t.run.World].Check(t.run); err != nil {
				return err
			}
		}
		if !t.stored {
			count++
		}
	}
	r.progress.begins(count)
	// One round of all schemes per seed, so that the runs of a stopped experiment can be compared.
	tasks = slices.SortedStableFunc(slices.Values(tasks), func(a, b *task) int { return seedPlace(r.plan, a.run.Seed) - seedPlace(r.plan, b.run.Seed) })
	for _, t := range tasks {
		if t.stored || r.parallel(t) {
			continue
		}
		if err := r.one(ctx, t); err != nil {
			return err
		}
	}
	if err := r.useLabValues(tasks); err != nil {
		return err
	}
	return r.simulate(ctx, tasks)
}

// parallel reports whether the run may be carried out at the same time as others.
func (r *runner) parallel(t *task) bool {
	return t.run.World == experiment.WorldSim || r.remote != nil
}

// simulate carries out the simulator's runs, or those of workers. After a failure or a stop it begins no other run.
func (r *runner) simulate(ctx context.Context, tasks []*task) error {
	group, within := errgroup.WithContext(ctx)
	for _, t := range tasks {
		if t.stored || !r.parallel(t) {
			continue
		}
		r.processors.Take()
		group.Go(func() error {
			defer r.processors.Give()
			if within.Err() != nil {
				return fmt.Errorf("stopped before run %s%s", describe(t.run), r.resumeHint())
			}
			return r.one(within, t)
		})
	}
	if r.begun != nil {
		r.begun()
	}
	return group.Wait()
}

// seedPlace returns the position of a seed in the plan.
func seedPlace(plan *experiment.Plan, seed int64) int {
	return slices.IndexFunc(plan.Runs, func(r *experiment.Run) bool { return r.Seed == seed })
}

// tasks lists the runs, and finds those in the store.
func (r *runner) tasks() ([]*task, error) {
	r.labValues = slices.ContainsFunc(r.plan.Runs, func(run *experiment.Run) bool { return run.LabRTT })
	var out []*task
	others, version := 0, ""
	r.codes = map[string]string{}
	for _, run := range r.plan.Runs {
		if r.codes[run.World] == "" {
			code, err := r.code(run.World)
			if err != nil {
				return nil, err
			}
			r.codes[run.World] = code
		}
		key, err := store.Key(run)
		if err != nil {
			return nil, err
		}
		t := &task{run: run, key: key}
		out = append(out, t)
		if r.resume == resumeNothing {
			continue
		}
		entry, err := r.store.Load(key)
		switch {
		case err == nil:
			if entry.Code != r.codes[run.World] {
				others++
				version = entry.Weir
				if r.resume != resumeAny {
					continue
				}
			}
			t.stored = true
			r.note(t, entry)
			r.progress.kept(run, entry.Took)
		case !errors.Is(err, fs.ErrNotExist):
			r.progress.say(fmt.Sprintf("%s is repeated: %v", describe(run), err))
		}
	}
	if others > 0 {
		r.progress.say(otherCode(others, len(out), version, r.resume))
	}
	return out, nil
}

// one carries out one run.
func (r *runner) one(ctx context.Context, t *task) error {
	run := cmp.Or(t.labValues, t.run)
	var e *store.Entry
	var err error
	if r.remote != nil {
		e, err = r.byWorker(ctx, t)
	} else {
		r.progress.begin(t.run, "")
		e, err = carryOutRun(ctx, r.worlds[run.World], r.codes[run.World], run, r.progress.of(t.run))
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", describe(t.run), err)
	}
	if e != nil {
		e.Raw.Unmet = append(e.Raw.Unmet, t.unmet...)
		r.note(t, e)
		if r.store != nil && !e.Raw.Partial {
			if err := r.store.Save(t.key, e); err != nil {
				return err
			}
			t.stored = true
		}
		if !t.stored || t.run.World == experiment.WorldSim {
			t.out = built(t.run, e)
		}
		r.progress.finished(t.run, e.Took)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped during run %s; its measurements are marked partial%s", describe(t.run), r.resumeHint())
	}
	return nil
}

// carryOutRun carries out a run on this machine. It returns nil if the run was stopped before anything was measured.
func carryOutRun(ctx context.Context, w experiment.World, code string, run *experiment.Run, p experiment.Progress) (*store.Entry, error) {
	began := time.Now()
	raw, err := w.Run(ctx, run, p)
	if err != nil || raw == nil {
		return nil, err
	}
	return &store.Entry{
		Code: code, Weir: weirVersion(), Kernel: kernelRelease(), Ended: time.Now().Round(time.Second), Took: time.Since(began), Raw: raw,
	}, nil
}

// note keeps the values of a finished run that other runs need.
func (r *runner) note(t *task, e *store.Entry) {
	t.rtt, t.ended = e.Raw.RTT, e.Ended
	if r.labValues && t.run.World == experiment.WorldLab {
		t.starts = startsOf(e.Raw)
	}
}

func (r *runner) resumeHint() string {
	if r.store == nil {
		return ""
	}
	return "; --resume continues with it"
}

// built calculates the statistics of a run.
func built(run *experiment.Run, e *store.Entry) *result.Run {
	out := result.Build(run.Info(), e.Raw)
	out.By = &result.Maker{Weir: e.Weir, Kernel: e.Kernel, Ended: e.Ended, TookS: e.Took.Seconds()}
	return out
}

// results returns all results. It reads those that are only in the store, one run per processor.
func (r *runner) results(tasks []*task) ([]*result.Run, error) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, t := range tasks {
		if t.out != nil || !t.stored {
			continue
		}
		group.Go(func() error {
			entry, err := r.store.Load(t.key)
			if err != nil {
				return err
			}
			t.out = built(t.run, entry)
			return nil
		})
	}
	err := group.Wait()
	var out []*result.Run
	for _, t := range tasks {
		if t.out != nil {
			out = append(out, t.out)
		}
	}
	return out, err
}
