package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"weir/cmd/weir/laws"
	"weir/config"
	"weir/experiment/compare"
	"weir/experiment/report"
	"weir/experiment/result"
)

// compareFlags are the flags of `weir compare`.
type compareFlags struct {
	schemes, worlds, at, metrics []string
	confidence                   float64
	failOver                     string
	json, all                    bool
}

func compareCommand() *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare A [B]",
		Short: "Compare two results, with confidence intervals of the differences",
		Long: `Compare the results B with A: each metric of each scheme at each point of the axes, with a confidence
interval from the seeds where there are two or more. A and B are results.json of 'weir run --out DIR', or
those directories. Versions, worlds and schemes may differ.

If A and B have the same seeds, the interval is that of the differences seed by seed. Otherwise the two sides
count as independent. --scheme, --world and --at select what is compared, also within one result.

Exit code: 0 done, 1 error, or with --fail-over a difference beyond it, no interval, or something of A that B
lacks, 2 usage.`,
		Example: `  weir compare out/before out/after
  weir compare out/before out/after --metric mice.fct_ms.p99,bottleneck.drops --fail-over 5%
  weir compare out/incast --scheme droptail,ecn
  weir compare out/incast --world lab,sim
  weir compare out/incast --scheme ecn --at threshold=15KB,60KB`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return compareResults(args, f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.schemes, "scheme", nil, "X: this scheme alone; X,Y: A's X against B's Y")
	flags.StringSliceVar(&f.worlds, "world", nil, "X: this world alone; X,Y: A's X against B's Y")
	flags.StringArrayVar(&f.at, "at", nil, "AXIS=V: this value alone; AXIS=V,W: A's V against B's W (repeatable)")
	flags.StringSliceVar(&f.metrics, "metric", nil, "metrics by their paths, as mice.fct_ms.p99 (default: the main ones)")
	flags.Float64Var(&f.confidence, "confidence", 95, "confidence of the intervals, in per cent")
	flags.StringVar(&f.failOver, "fail-over", "", "N%: exit with 1 if a metric differs by more than this and its interval excludes 0, or if there is no interval, or if B lacks a cell or a metric of A")
	flags.BoolVar(&f.all, "all", false, "show every metric, not only the ten of each pair with the largest differences")
	flags.BoolVar(&f.json, "json", false, "print JSON instead of a table")
	return cmd
}

// compareResults is `weir compare`.
func compareResults(args []string, f compareFlags, stdout, stderr io.Writer) error {
	o, share, err := f.options(len(args))
	if err != nil {
		return usageError(err)
	}
	var sides [2]compare.Side
	for i, path := range args {
		if sides[i], err = readSide(path, stderr); err != nil {
			return usageError(err)
		}
	}
	if len(args) == 1 {
		sides[1] = sides[0]
	}
	c, err := compare.Compare(sides[0], sides[1], o)
	if err != nil {
		return usageError(err)
	}
	if f.json {
		e := json.NewEncoder(stdout)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(c); err != nil {
			return fmt.Errorf("write the comparison: %w", err)
		}
	} else if err := report.Comparison(stdout, c, f.all || len(f.metrics) > 0); err != nil {
		return err
	}
	if f.failOver != "" && !c.HasInterval() {
		return errors.New("--fail-over needs an interval, and no compared metric has one: run two or more seeds on each side")
	}
	if f.failOver == "" {
		return nil
	}
	var faults []string
	if beyond := c.Beyond(share); len(beyond) > 0 {
		faults = append(faults, fmt.Sprintf("%d of %d metrics differ by more than %s, and their intervals exclude 0: %s", len(beyond), c.Intervals, f.failOver, firstFew(beyond)))
	}
	if missing := c.Missing(f.metrics); len(missing) > 0 {
		faults = append(faults, fmt.Sprintf("%d comparisons of --fail-over are not possible: %s", len(missing), firstFew(missing)))
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// firstFew lists up to five texts, and how many more there are.
func firstFew(list []string) string {
	text := strings.Join(list[:min(len(list), 5)], "; ")
	if len(list) > 5 {
		text += fmt.Sprintf("; and %d more", len(list)-5)
	}
	return text
}

// options reads the flags; share is the limit of --fail-over.
func (f *compareFlags) options(files int) (o compare.Options, share float64, err error) {
	o = compare.Options{LawMetrics: laws.All().Specs().Metrics(), Metrics: f.metrics, Confidence: f.confidence / 100, At: map[string][2]string{}}
	if !(f.confidence >= 50 && f.confidence < 100) {
		return o, 0, fmt.Errorf("--confidence %v is out of range: use per cent, from 50 to below 100", f.confidence)
	}
	if o.Schemes, err = two("--scheme", f.schemes); err != nil {
		return o, 0, err
	}
	if o.Worlds, err = two("--world", f.worlds); err != nil {
		return o, 0, err
	}
	differ := o.Schemes[0] != o.Schemes[1] || o.Worlds[0] != o.Worlds[1]
	for _, at := range f.at {
		axis, values, ok := strings.Cut(at, "=")
		if !ok || axis == "" {
			return o, 0, fmt.Errorf("--at %s is not valid: use AXIS=V or AXIS=V,W", config.Clip(at))
		}
		if _, twice := o.At[axis]; twice {
			return o, 0, fmt.Errorf("--at %s: the axis %s is chosen twice", config.Clip(at), axis)
		}
		if o.At[axis], err = two("--at "+axis, strings.Split(values, ",")); err != nil {
			return o, 0, err
		}
		differ = differ || o.At[axis][0] != o.At[axis][1]
	}
	if files == 1 && !differ {
		return o, 0, errors.New("only one result is given: name a second one, or compare within it with --scheme X,Y, --world X,Y or --at AXIS=V,W")
	}
	if f.failOver != "" {
		number, ok := strings.CutSuffix(f.failOver, "%")
		if share, err = strconv.ParseFloat(strings.TrimSpace(number), 64); !ok || err != nil || !(share >= 0 && share < 1e6) {
			return o, 0, fmt.Errorf("--fail-over %s is not valid: use per cent, such as 5%%", config.Clip(f.failOver))
		}
		share /= 100
	}
	return o, share, nil
}

// two parses X or X,Y.
func two(flag string, values []string) (out [2]string, err error) {
	switch len(values) {
	case 0:
	case 1:
		out = [2]string{values[0], values[0]}
	case 2:
		out = [2]string{values[0], values[1]}
	default:
		return out, fmt.Errorf("%s: got %d values; give one, or two with a comma (A's, B's)", flag, len(values))
	}
	if len(values) > 0 && (out[0] == "" || out[1] == "") {
		return out, fmt.Errorf("%s: a name is empty", flag)
	}
	return out, nil
}

// readSide reads a result and, if it has them, its flows.
func readSide(path string, stderr io.Writer) (compare.Side, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, report.DocumentFile)
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return compare.Side{}, fmt.Errorf("there is no %s: compare takes results.json of 'weir run --out DIR', or DIR", path)
	}
	if err != nil {
		return compare.Side{}, fmt.Errorf("read results: %w", err)
	}
	defer file.Close()
	doc, err := result.ReadJSON(file)
	if err != nil {
		return compare.Side{}, fmt.Errorf("%s is not a result of weir run: %w", path, err)
	}
	doc.Laws = laws.All().Specs()
	side := compare.Side{Name: path, Doc: doc}
	flows := filepath.Join(filepath.Dir(path), report.FlowsFile)
	side.Flows, err = compare.ReadFlows(flows, doc)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(stderr, "no distributions: %v\n", err)
	}
	return side, nil
}
