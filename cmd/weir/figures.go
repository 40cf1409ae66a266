package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"weir/experiment"
	"weir/experiment/report"
	"weir/experiment/result"
	"weir/experiment/store"
)

func figuresCommand() *cobra.Command {
	var f runFlags
	var into string
	cmd := &cobra.Command{
		Use:   "figures DIR [FILE]",
		Short: "Make report and figures again from finished runs",
		Long: `Make the report and figures of DIR again from the runs that 'weir run --out DIR' finished there, also
while it still runs. Nothing is run.

With FILE the experiment is taken from it instead of from what DIR holds: other claims, windows, figures
or notes. A run that FILE asks for otherwise than it was run is not there.

Exit code: 0 done, 1 error, 2 usage, 3 done but a claim is refuted.`,
		Example: `  weir figures out/F1
  weir figures out/F1 experiments/fairq/F1.yaml
  weir figures out/F1 --into docs/fairq-experiments.md`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.out = args[0]
			file := ""
			if len(args) > 1 {
				file = args[1]
			}
			return figures(cmd.Context(), file, into, f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print the results as one JSON document instead of a table")
	cmd.Flags().StringVar(&into, "into", "", "put the tables into this Markdown page, between its marks for this experiment")
	return cmd
}

// figures is `weir figures DIR [FILE]`.
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
	plan, err := asked.Plan()
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
		return fmt.Errorf("%s holds none of the %d runs of %s: 'weir run FILE --out %s --resume' runs them", f.out, missing, plan.File.ID, f.out)
	}
	if missing > 0 {
		fmt.Fprintf(stderr, "%d of %d runs are not there: the report is of the others\n", missing, len(plan.Runs))
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

// putInto puts the tables of a document into a page.
func putInto(path string, doc *result.Document) error {
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
	if err := os.WriteFile(path, page, 0o644); err != nil { //nolint:gosec // a page for everybody
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// stored gives a finished run.
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
