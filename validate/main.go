// Command validate compares the simulator with ns-3: the same experiment in both, with the same starts of the same
// flows, and their figures side by side. It exits with 1 when a figure is outside its tolerance, which was written
// before. Run it with `make validate`, which downloads and builds the ns-3 side; docs/validation.md describes the
// comparison.
//
//	scenario.go    an experiment's run as input of the ns-3 program (validate/ns3)
//	ns3.go         runs that program and reads its measurements
//	sim.go         runs `weir run --world sim` and reads its measurements
//	tolerances.go  the figures that are compared, their tolerances, and the reasons
//	known.go       figures outside their tolerances, with the proved cause
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

// options are the options of the command line.
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
	flag.StringVar(&o.weir, "weir", "./weir", "the weir program to run")
	flag.StringVar(&o.ns3, "ns3", "out/validate/scenario", "the program built from validate/ns3")
	flag.StringVar(&o.out, "out", "out/validate", "directory of the results, with a directory for each file")
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

// validate compares all files; figures outside their tolerances are an error.
func validate(ctx context.Context, o options, files []string, w io.Writer) error {
	if len(files) == 0 {
		return errors.New("no files: name experiment files with tolerances in tolerances.go, such as validate/long.yaml")
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
		fmt.Fprintf(w, "\n%d figures: %d within their tolerances, %d known and explained differences, %d outside\n", rows, rows-differ-out, differ, out)
	}
	if out > 0 {
		return fmt.Errorf("%d of %d figures are outside their tolerances; the table marks them", out, rows)
	}
	return nil
}

// validateFile runs one experiment in both programs and compares them.
func validateFile(ctx context.Context, o options, path string, w io.Writer) ([]row, error) {
	f, err := laws.All().Load(path)
	if err != nil {
		return nil, err
	}
	checks := tolerances[f.ID]
	if checks == nil {
		return nil, fmt.Errorf("no tolerances for experiment %s: write them in validate/tolerances.go before the first run", f.ID)
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
	if o.seeds == 0 && len(o.set) == 0 { // known figures are those of the unchanged file
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
