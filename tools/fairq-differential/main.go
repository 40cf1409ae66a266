// Command differential runs an experiment's FairQ in the lab, on real TCP. It records every decision of core in
// the kernel, and compares it with that of the native core (docs/differential.md). It runs the file's runs, as
// they are, in edge mode, and with credits, until there are enough acknowledgements and answers of each kind. It prints how often
// each function was called and how many answers differ. It exits with 1 and the first call that differs.
//
// Run it with `make differential`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/laws"
	"weir/datapath/fairq/lawtrace"
	"weir/experiment"
	"weir/lab"
	"weir/law/fairq"
)

// The files that run without one on the command line. In the second the port paces: one segment of each flow exceeds its
// capacity.
const (
	defaultFile = "experiments/incast.yaml"
	creditFile  = "experiments/fairq/burst.yaml"
)

// asked has the options of the command line.
type asked struct {
	file string // empty: a file of each mode
	acks uint64
	keep string // directory for the traces; empty: they are not kept
	set  []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var a asked
	flag.Uint64Var(&a.acks, "acks", 100_000, "minimum number of acknowledgements, and of answers of each kind")
	flag.StringVar(&a.keep, "keep", "", "write the traces into this directory, for datapath/fairq/lawtrace/replay")
	flag.Func("set", "KEY=VALUE: change one value of FILE (repeatable)", func(s string) error {
		a.set = append(a.set, s)
		return nil
	})
	flag.Parse()
	if flag.NArg() > 0 {
		a.file = flag.Arg(0)
	}
	if err := differential(ctx, &a); err != nil {
		fmt.Fprintln(os.Stderr, "differential: "+err.Error())
		os.Exit(1) //nolint:gocritic // the deferred stop only restores signals
	}
}

// differential runs the runs of FairQ until enough was recorded: as in the file, and then in edge mode.
func differential(ctx context.Context, a *asked) error {
	var all lawtrace.Report
	for _, mode := range []struct {
		file  string // without a file on the command line
		set   []string
		kinds []lawtrace.Kind
	}{
		{defaultFile, nil, []lawtrace.Kind{lawtrace.KindLaw, lawtrace.KindCounting, lawtrace.KindRelease, lawtrace.KindWindow}},
		{defaultFile, []string{"schemes.fairq.params.edge=true"}, []lawtrace.Kind{lawtrace.KindEdge}},
		{creditFile, []string{"schemes.fairq.params.credits=true"}, []lawtrace.Kind{lawtrace.KindCredit}},
	} {
		if a.file != "" {
			mode.file = a.file
		}
		if err := enough(ctx, a, mode.file, mode.set, mode.kinds, &all); err != nil {
			return err
		}
	}
	if err := all.Print(os.Stdout); err != nil {
		return err
	}
	if all.Differences > 0 {
		return fmt.Errorf("%d answers of the native core differ from the kernel's", all.Differences)
	}
	for k, n := range all.Kinds {
		if n < a.acks {
			return fmt.Errorf("all runs gave %d answers about %s, but %d are needed: use a longer experiment or a smaller -acks", n, lawtrace.Kind(k), a.acks)
		}
	}
	return nil
}

// enough runs the runs of a file, with these values changed, until there are enough answers of each of the
// kinds, and enough ACKs.
func enough(ctx context.Context, a *asked, file string, set []string, kinds []lawtrace.Kind, all *lawtrace.Report) error {
	f, err := laws.All().Load(file)
	if err != nil {
		return err
	}
	plan, err := f.Plan(experiment.Options{Worlds: []string{"lab"}, Set: append(slices.Clone(a.set), set...)})
	if err != nil {
		return err
	}
	for _, run := range plan.Runs {
		few := func(k lawtrace.Kind) bool { return all.Kinds[k] < a.acks }
		if all.Acks >= a.acks && !slices.ContainsFunc(kinds, few) || !slices.Contains(run.Laws, fairq.Name) {
			continue
		}
		if err := one(ctx, a, run, all); err != nil {
			return err
		}
	}
	return nil
}

// one records and replays one run, and adds the result to all.
func one(ctx context.Context, a *asked, run *experiment.Run, all *lawtrace.Report) error {
	recorders := map[string]*lawtrace.Recorder{}
	of := laws.Lab()
	of[fairq.Name] = lab.RecordedFairQ(func(node string) (*lawtrace.Recorder, error) {
		r, err := lawtrace.New()
		if err == nil {
			recorders[node] = r
		}
		return r, err
	})
	w := &lab.World{WithoutMeasuring: true, Laws: of}
	if err := w.Check(run); err != nil {
		return err
	}
	raw, err := w.Run(ctx, run, experiment.Silent{})
	if err == nil && raw.Partial {
		err = errors.New("the run was cut short")
	}
	traces := map[string]*lawtrace.Trace{}
	for node, r := range recorders { // also after an error: they keep maps open
		t, stopErr := r.Stop()
		traces[node], err = t, errors.Join(err, stopErr)
	}
	if err != nil {
		return err
	}
	for node, t := range traces {
		began := time.Now()
		r, err := t.Replay()
		if err != nil {
			return err
		}
		fmt.Printf("%s: asked for %d acknowledgements, %d answers compared in %.1f s, %d differences\n",
			nameOf(run, node), r.Acks, r.Compared, time.Since(began).Seconds(), r.Differences)
		all.Add(r)
		if err := keep(a.keep, run, node, t); err != nil {
			return err
		}
	}
	return nil
}

// nameOf returns the name of a switch in a run: scheme, values of the axes, seed, node.
func nameOf(run *experiment.Run, node string) string {
	parts := []string{run.Scheme}
	for _, key := range slices.Sorted(maps.Keys(run.Point)) {
		parts = append(parts, run.Point[key])
	}
	return strings.Join(append(parts, fmt.Sprint(run.Seed), node), "-")
}

// keep writes a trace, if the option is set.
func keep(dir string, run *experiment.Run, node string, t *lawtrace.Trace) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, nameOf(run, node)+".law"))
	if err != nil {
		return err
	}
	return errors.Join(t.Write(f), f.Close())
}
