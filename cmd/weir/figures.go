package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/report"
	"weir/experiment/result"
	"weir/experiment/store"
	"weir/internal/replace"
)

func figuresCommand() *cobra.Command {
	var f runFlags
	var into, tree string
	cmd := &cobra.Command{
		Use:   "figures [ID...] | DIR [FILE]",
		Short: "Draw the papers' figures: run experiments, or report finished runs again",
		Long: `With IDs, run these experiments of the tree, without IDs all of them, in the
simulator with every scheme that this build has, one run per processor. OUT/ID has the figures
as the paper draws them (all seeds as a band), Weir's own figures and a report. OUT/index.html
shows all experiments with the results of their claims. After a stop or a crash, the same command with
--resume continues. With --on, workers carry out the runs: see 'weir worker --help'.

With DIR, make the report and figures of DIR again from the runs that 'weir run --out DIR' has finished,
also while it still runs. Nothing is run. FILE replaces the experiment file of DIR, to change
claims, windows, figures or notes. Runs whose settings differ from FILE count as
missing.

With --summary RESULTS, write the input of docs/REPRODUCTION.md to RESULTS/WORLD/ID.json, with the
figures as the paper draws them next to it. An experiment with missing runs has no summary. With --add,
runs of other schemes in that summary stay: so a new scheme needs no runs of the others.

Exit code: 0 done, 1 error, 2 usage, 3 done but a claim is refuted.`,
		Example: `  weir figures --seeds 1
  weir figures F1 F2 --resume --summary results
  weir figures --on tls://10.0.0.5:4222 --keys ann
  weir figures out/F1
  weir figures out/F1 --summary results --add
  weir figures out/incast experiments/incast.yaml
  weir figures out/incast --into docs/incast.md`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.seeds(cmd); err != nil {
				return err
			}
			if f.add && f.summary == "" {
				return usageError(errors.New("--add needs --summary"))
			}
			all, err := ofTree(tree, args)
			if err != nil {
				return err
			}
			if all != nil && f.json {
				return usageError(errors.New("--json needs DIR: 'weir figures OUT/ID --json' prints the results of one experiment"))
			}
			if err := f.on.check(&f); err != nil {
				return usageError(err)
			}
			if all != nil {
				return figuresOfTree(cmd.Context(), all, into, f, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			if !isDir(args[0]) {
				return usageError(fmt.Errorf("%s is neither an experiment in %s nor a directory with finished runs", args[0], tree))
			}
			for _, name := range []string{"experiments", "on", "out", "resume", "seed", "seeds", "set", "world"} {
				if cmd.Flags().Changed(name) {
					return usageError(fmt.Errorf("--%s has no effect on the finished runs of DIR: leave it out, or give an ID", name))
				}
			}
			if err := usageArgs(cobra.RangeArgs(1, 2))(cmd, args); err != nil {
				return err
			}
			f.out = args[0]
			file := ""
			if len(args) > 1 {
				file = args[1]
			}
			return figures(cmd.Context(), file, into, f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.json, "json", false, "DIR: print the results as one JSON document instead of a table")
	flags.StringVar(&into, "into", "", "write the tables into this Markdown page, between its marks for the experiment")
	flags.StringVar(&f.summary, "summary", "", "write summaries to this directory, as RESULTS/WORLD/ID.json")
	flags.BoolVar(&f.add, "add", false, "with --summary: keep the runs of other schemes in the summary")
	flags.StringVar(&tree, "experiments", "experiments", "ID: directory of the experiment files")
	flags.StringVar(&f.out, "out", "out/figures", "ID: directory for figures and reports")
	addResume(flags, &f.resume, "ID: keep finished runs, and run only the others")
	flags.StringSliceVar(&f.options.Worlds, "world", []string{experiment.WorldSim}, "ID: worlds to run in: lab, sim, or both")
	flags.StringArrayVar(&f.options.Set, "set", nil, "ID: KEY=VALUE: change one value of the files (repeatable)")
	f.on.add(flags, "ID: ")
	flags.Int64Var(&f.seed, "seed", 0, "ID: run this one seed")
	flags.IntVar(&f.options.SeedCount, "seeds", 0, "ID: run seeds 1..N")
	return cmd
}

// figures implements `weir figures DIR [FILE]`.
func figures(ctx context.Context, file, into string, f runFlags, stdout, stderr io.Writer) error {
	dir := store.Read(f.out)
	asked, err := dir.Asked()
	if err != nil {
		return usageError(err)
	}
	if file != "" {
		text, err := experiment.ReadFile(file)
		if err != nil {
			return usageError(err)
		}
		asked.Name, asked.File = file, string(text)
	}
	plan, err := asked.Plan(laws.All())
	if err != nil {
		return usageError(err)
	}
	doc, err := newDocument(plan)
	if err != nil {
		return err
	}
	missing := 0
	for _, r := range plan.Runs {
		out, err := stored(dir, r)
		if errors.Is(err, fs.ErrNotExist) {
			missing++
			continue
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		doc.Runs = append(doc.Runs, out)
	}
	if len(doc.Runs) == 0 {
		return fmt.Errorf("%s has none of the %d runs of %s: run them with 'weir run FILE --out %s --resume'", f.out, missing, plan.File.ID, f.out)
	}
	if missing > 0 && f.summary != "" {
		return fmt.Errorf("%s: --summary needs all runs, and %d of %d are missing: run them with --resume, or leave out --summary", f.out, missing, len(plan.Runs))
	}
	if missing > 0 {
		fmt.Fprintf(stderr, "%d of %d runs are missing: the report shows the others\n", missing, len(plan.Runs))
	}
	f.options = asked.Options
	err = conclude(doc, plan, f, stdout, stderr)
	if code := (*exitCode)(nil); into != "" && (err == nil || errors.As(err, &code)) {
		if e := putInto(into, doc); e != nil {
			return e
		}
	}
	return err
}

// putInto writes the tables of a document into a page.
func putInto(path string, doc *result.Document) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	var text bytes.Buffer
	if err := report.Markdown(&text, doc); err != nil {
		return err
	}
	if page, err = report.Into(page, doc.Experiment, text.Bytes()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return replace.Bytes(path, info.Mode().Perm(), page)
}

// stored returns a finished run.
func stored(dir *store.Dir, r *experiment.Run) (*result.Run, error) {
	key, err := store.Key(r)
	if err != nil {
		return nil, err
	}
	entry, err := dir.Load(key)
	if err != nil {
		return nil, err
	}
	return built(r, entry), nil
}
