// Command validate holds the simulator against ns-3: the same experiment in both, with the same starts of the
// same flows, their figures side by side. It exits with 1 when one is further off than was allowed beforehand.
// Run it by `make validate`, which gets and builds the ns-3 side; docs/validation.md says what is compared.
//
//	scenario.go    an experiment's run, as the ns-3 program (validate/ns3) wants it
//	ns3.go         runs that program and reads what it measured
//	sim.go         runs `weir run --world sim` and reads what it measured
//	tolerances.go  what is compared, how far apart it may be, and why that far
//	known.go       what is further off than that, by how much, and the cause that was proved
//	compare.go     the comparison
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/report"
	"weir/experiment/result"
)

// options is what the command was asked for.
type options struct {
	weir, ns3, out string
	onlyNS3        bool
	seeds          int
	set            words
}

// words is a flag that may be given several times.
type words []string

func (w *words) String() string     { return strings.Join(*w, " ") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

func main() {
	var o options
	flag.StringVar(&o.weir, "weir", "./weir", "the weir to run")
	flag.StringVar(&o.ns3, "ns3", "out/validate/scenario", "the program built from validate/ns3")
	flag.StringVar(&o.out, "out", "out/validate", "where results go, a directory for each file")
	flag.BoolVar(&o.onlyNS3, "ns3-only", false, "run ns-3 alone and show its figures")
	flag.IntVar(&o.seeds, "seeds", 0, "seeds 1..N instead of the file's")
	flag.Var(&o.set, "set", "KEY=VALUE: change one value of the files, in both (repeatable)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := validate(ctx, o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "validate: "+err.Error())
		os.Exit(1) //nolint:gocritic // the deferred stop only restores signals
	}
}

// validate compares all files; what is out is an error.
func validate(ctx context.Context, o options, files []string, w io.Writer) error {
	if len(files) == 0 {
		return errors.New("no files: give experiments that tolerances.go knows, such as validate/long.yaml")
	}
	out, rows, differ := 0, 0, 0
	for _, path := range files {
		all, err := validateFile(ctx, o, path, w)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, r := range all {
			rows++
			switch {
			case r.known != nil:
				differ++
			case !r.ok() && !o.onlyNS3:
				out++
			}
		}
	}
	if !o.onlyNS3 {
		fmt.Fprintf(w, "\n%d figures: %d within their tolerances, %d differ as is known and explained, %d further off\n", rows, rows-differ-out, differ, out)
	}
	if out > 0 {
		return fmt.Errorf("%d of %d figures are further off than was allowed", out, rows)
	}
	return nil
}

// validateFile runs one experiment in both and compares.
func validateFile(ctx context.Context, o options, path string, w io.Writer) ([]row, error) {
	f, err := laws.All().Load(path)
	if err != nil {
		return nil, err
	}
	checks := tolerances[f.ID]
	if checks == nil {
		return nil, fmt.Errorf("no tolerances for experiment %s: write them down in validate/tolerances.go before the first run", f.ID)
	}
	plan, err := f.Plan(experiment.Options{
		Worlds: []string{experiment.WorldSim}, AssumeAll: true, SeedCount: o.seeds, Set: o.set,
	})
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.out, f.ID)
	theirs, err := runNS3(ctx, o.ns3, filepath.Join(dir, "ns3"), plan.Runs)
	if err != nil {
		return nil, err
	}
	var ours []*result.Run
	if !o.onlyNS3 {
		if ours, err = runSim(ctx, o, path, filepath.Join(dir, "sim"), plan.Runs); err != nil {
			return nil, err
		}
	}
	rows := compare(checks, theirs, ours)
	if o.seeds == 0 && len(o.set) == 0 { // known figures are of the file as it stands
		for i := range rows {
			if !rows[i].ok() {
				rows[i].known = asKnown(f.ID, &rows[i])
			}
		}
	}
	show(w, f.ID, rows, o.onlyNS3)
	return rows, write(filepath.Join(dir, "both"), plan.File, append(theirs, ours...))
}

// write makes a report of both worlds together, with their distributions in the same figures.
func write(dir string, f *experiment.File, runs []*result.Run) error {
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("write the experiment file into the results: %w", err)
	}
	doc := &result.Document{Experiment: f.ID, Weir: "validate", File: text, Runs: runs}
	if _, err := report.Write(dir, doc); err != nil {
		return err
	}
	return nil
}
