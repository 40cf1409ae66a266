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
	"weir/experiment/result"
	"weir/experiment/store"
	"weir/lab"
)

// runner carries out the runs of a plan, and keeps each as soon as it is finished.
type runner struct {
	plan     *experiment.Plan
	worlds   map[string]experiment.World
	store    *store.Dir                         // nil: nothing is kept
	resume   resuming                           // what is kept already is not run again
	code     func(world string) (string, error) // codeOf
	codes    map[string]string                  // by world: what code gave
	beside   bool                               // some of the simulator's runs take what the lab measured
	progress *progress

	processors processors
	begun      func() // if set, is told when the last of the simulator's runs has begun
}

// processors are lent to the simulator's runs, one to each; experiments may share them.
type processors chan struct{}

func newProcessors() processors { return make(processors, runtime.GOMAXPROCS(0)) }

// openStore takes the directory of the results, and removes the lab that a run which was killed there
// left behind.
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

// cleanAfter removes what the run of a killed process left. That it could not be is said and no more:
// labs do not share anything.
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
		fmt.Fprintf(stderr, "what a killed run left behind may still be there (see 'weir lab list'): %v\n", err)
	}
}

// task is one run of the plan. Once it is done its result is here, or only in the store if it is of the lab: what is in
// memory while others run there would make them wait for the garbage collector.
type task struct {
	run    *experiment.Run
	key    string
	stored bool
	rtt    time.Duration                                // of the idle network, once it is done
	ended  time.Time                                    // when it was done
	starts map[experiment.FlowName]experiment.FlowStart // of the lab's, if the simulator's are to begin as it did
	beside *experiment.Run                              // nil: run is carried out as it was asked; else with what the lab measured
	unmet  []result.Unmet                               // said of it besides what its world says
	out    *result.Run
}

// run gives the results in the order of the plan. On error those that are done are given too.
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

// runAll carries out the runs that are not there: first the lab's, one after the other, for they share the
// machine's clock, then the simulator's, as many at a time as there are processors.
func (r *runner) runAll(ctx context.Context, tasks []*task) error {
	count := 0
	for _, t := range tasks {
		if t.stored && !t.run.LabRTT {
			continue
		}
		if err := r.worlds[t.run.World].Check(t.run); err != nil {
			return err
		}
		if !t.stored {
			count++
		}
	}
	r.progress.begins(count)
	// A round of all schemes for each seed: what was run when it is stopped compares.
	tasks = slices.SortedStableFunc(slices.Values(tasks), func(a, b *task) int { return seedPlace(r.plan, a.run.Seed) - seedPlace(r.plan, b.run.Seed) })
	for _, t := range tasks {
		if t.stored || t.run.World == experiment.WorldSim {
			continue
		}
		if err := r.one(ctx, t); err != nil {
			return err
		}
	}
	if err := r.putBeside(tasks); err != nil {
		return err
	}
	return r.simulate(ctx, tasks)
}

// simulate carries out the simulator's runs. Once one failed, or all are to stop, no other is begun: it would come
// back with nothing measured.
func (r *runner) simulate(ctx context.Context, tasks []*task) error {
	group, within := errgroup.WithContext(ctx)
	for _, t := range tasks {
		if t.stored || t.run.World != experiment.WorldSim {
			continue
		}
		r.processors <- struct{}{}
		group.Go(func() error {
			defer func() { <-r.processors }()
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

// seedPlace is when a seed comes in the plan.
func seedPlace(plan *experiment.Plan, seed int64) int {
	return slices.IndexFunc(plan.Runs, func(r *experiment.Run) bool { return r.Seed == seed })
}

// tasks lists the runs, and finds those that are in the store.
func (r *runner) tasks() ([]*task, error) {
	r.beside = slices.ContainsFunc(r.plan.Runs, func(run *experiment.Run) bool { return run.LabRTT })
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
			r.progress.say(fmt.Sprintf("%s is run again: %v", describe(run), err))
		}
	}
	if others > 0 {
		r.progress.say(otherCode(others, len(out), version, r.resume))
	}
	return out, nil
}

// one carries out one run.
func (r *runner) one(ctx context.Context, t *task) error {
	run := cmp.Or(t.beside, t.run)
	r.progress.begin(t.run)
	began := time.Now()
	raw, err := r.worlds[run.World].Run(ctx, run, r.progress.of(t.run))
	if err != nil {
		return fmt.Errorf("run %s: %w", describe(t.run), err)
	}
	if raw != nil {
		raw.Unmet = append(raw.Unmet, t.unmet...)
		e := &store.Entry{
			Code: r.codes[run.World], Weir: weirVersion(), Kernel: kernelRelease(), Ended: time.Now().Round(time.Second), Took: time.Since(began), Raw: raw,
		}
		r.note(t, e)
		if r.store != nil && !raw.Partial {
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
		return fmt.Errorf("stopped during run %s; what was measured is marked partial%s", describe(t.run), r.resumeHint())
	}
	return nil
}

// note keeps what other runs want to know of one that is done.
func (r *runner) note(t *task, e *store.Entry) {
	t.rtt, t.ended = e.Raw.RTT, e.Ended
	if r.beside && t.run.World == experiment.WorldLab {
		t.starts = startsOf(e.Raw)
	}
}

func (r *runner) resumeHint() string {
	if r.store == nil {
		return ""
	}
	return "; --resume goes on with it"
}

// built makes the statistics of a run.
func built(run *experiment.Run, e *store.Entry) *result.Run {
	out := result.Build(run.Info(), e.Raw)
	out.By = &result.Maker{Weir: e.Weir, Kernel: e.Kernel, Ended: e.Ended, TookS: e.Took.Seconds()}
	return out
}

// results gives what there is, and reads from the store what is nowhere else, a run on each processor.
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
