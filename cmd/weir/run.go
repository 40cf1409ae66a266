package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/claim"
	"weir/experiment/report"
	"weir/experiment/result"
	"weir/experiment/store"
	"weir/experiment/workload"
	"weir/lab"
	"weir/sim"
)

// runFlags are the flags of `weir run`.
type runFlags struct {
	options          experiment.Options
	seed             int64
	check, schema    bool
	json             bool
	resume           resuming
	out              string
	summary          string // directory of summaries
	add              bool   // the summary keeps the runs of other schemes
	withoutMeasuring bool
	pcap             string
	trace            bool
	record           bool
	on               onFlags
}

// seeds evaluates --seed and --seeds.
func (f *runFlags) seeds(cmd *cobra.Command) error {
	one, some := cmd.Flags().Changed("seed"), cmd.Flags().Changed("seeds")
	switch {
	case one && some:
		return usageError(errors.New("--seed and --seeds exclude each other: use one of them"))
	case some && f.options.SeedCount < 1:
		return usageError(fmt.Errorf("--seeds %d is out of range: use at least 1", f.options.SeedCount))
	case one && f.seed < 0:
		return usageError(fmt.Errorf("--seed %d is out of range: use at least 0", f.seed))
	case one:
		f.options.Seeds = []int64{f.seed}
	}
	return nil
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE... | --schema",
		Short: "Run an experiment and decide its claims",
		Long: `Run the experiment of FILE: every scheme, at every point of its axes, with every seed.
Prints a table (or JSON), decides the claims, and with --out writes rows, figures and a report.

With --out, every run is stored in DIR/runs when it finishes. After a stop or a crash, the same command
with --resume continues with the missing runs. Runs that a changed FILE affects are repeated, and so
are runs of other versions of laws, traffic, simulator or lab; --resume=any keeps those.
'weir figures DIR' makes the report again from the stored runs.

The lab is real TCP in network namespaces. It runs in real time, one run after the other. The simulator
runs as fast as it can, one run per processor. With both, --world lab,sim, the lab's runs come first, and
the simulator's network gets the round-trip time that the lab measured.

With --on, the workers of a message bus carry out the runs: see 'weir worker --help'.

Exit code: 0 done, 1 error, 2 usage, 3 done but a claim is refuted.`,
		Example: `  weir run experiments/incast.yaml --world lab --scheme droptail,ecn
  weir run experiments/incast.yaml --world sim --scheme droptail,ecn --seeds 20
  weir run experiments/incast.yaml --world lab,sim --scheme droptail,ecn
  weir run experiments/incast.yaml --world lab --scheme ecn --seed 1 --set traffic.mice.size=20KB
  weir run experiments/incast.yaml --world lab --scheme ecn --sweep schemes.ecn.params.threshold=15KB,30KB,60KB
  weir run experiments/incast.yaml --world lab --out out/incast --resume
  weir run experiments/incast.yaml --world sim --on tls://10.0.0.5:4222 --keys ann
  weir run --check experiments/*.yaml experiments/*/*.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.seeds(cmd); err != nil {
				return err
			}
			switch {
			case f.check && f.schema:
				return usageError(errors.New("--check and --schema exclude each other: use one of them"))
			case f.check && (f.json || f.out != ""):
				return usageError(errors.New("--check runs nothing, so --json and --out have no effect: leave them out"))
			case f.resume != resumeNothing && f.withoutMeasuring:
				return usageError(errors.New("--resume and --without-measuring exclude each other: runs without measurements are not stored"))
			case f.resume != resumeNothing && f.out == "":
				return usageError(errors.New("--resume needs --out DIR: the directory with the finished runs"))
			case f.resume != resumeNothing && (f.pcap != "" || f.trace):
				return usageError(errors.New("--resume excludes --pcap and --trace, which stored runs would not have: use another --out"))
			case f.trace && f.out == "":
				return usageError(errors.New("--trace needs --out DIR: it writes into DIR/trace"))
			case f.record && (f.out == "" || f.resume != resumeNothing):
				return usageError(errors.New("--record needs --out DIR, where it writes into DIR/record, and excludes --resume: stored runs have no recording"))
			case f.schema:
				_, err := cmd.OutOrStdout().Write(laws.All().Schema())
				return err
			case f.check:
				return checkFiles(cmd.OutOrStdout(), args, f.options)
			case len(args) != 1:
				return usageError(fmt.Errorf("run needs one FILE, got %d; usage: %s", len(args), cmd.UseLine()))
			}
			if err := f.on.check(&f); err != nil {
				return usageError(err)
			}
			return runFile(cmd.Context(), args[0], f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.options.Worlds, "world", nil, "worlds to run in: lab, sim, or both (default: those of FILE)")
	flags.StringSliceVar(&f.options.Schemes, "scheme", nil, "schemes to run, by their names in FILE (default all)")
	flags.BoolVar(&f.options.Available, "available", false, "skip schemes that this build does not have")
	flags.Int64Var(&f.seed, "seed", 0, "run this one seed")
	flags.IntVar(&f.options.SeedCount, "seeds", 0, "run seeds 1..N")
	flags.StringArrayVar(&f.options.Set, "set", nil, "KEY=VALUE: change one value of FILE (repeatable)")
	flags.StringArrayVar(&f.options.Sweep, "sweep", nil, "KEY=V1,V2,...: add an axis (repeatable)")
	flags.BoolVar(&f.json, "json", false, "print the results as one JSON document instead of a table")
	flags.StringVar(&f.out, "out", "", "write Parquet rows, figures (SVG, PNG) and report.html into this directory")
	addResume(flags, &f.resume, "with --out: keep finished runs, and run only the others")
	flags.BoolVar(&f.check, "check", false, "only check the files")
	flags.BoolVar(&f.schema, "schema", false, "print the JSON schema of experiment files")
	flags.StringVar(&f.pcap, "pcap", "", "sim: write the packets that leave the ports of measure.ports into this directory, as pcapng")
	flags.BoolVar(&f.trace, "trace", false, "sim, with --out DIR: write window, threshold, round-trip time and state of every connection over time into DIR/trace")
	flags.BoolVar(&f.record, "record", false, "with --out DIR: record the events and actions of laws at a controller into DIR/record, for weir replay")
	f.on.add(flags, "")
	flags.BoolVar(&f.withoutMeasuring, "without-measuring", false, "do not attach the measuring program, to see its cost")
	return cmd
}

// checkFiles checks every file as a run with these options would, without running anything.
func checkFiles(w io.Writer, paths []string, o experiment.Options) error {
	if len(paths) == 0 {
		return usageError(errors.New("--check needs at least one FILE"))
	}
	var bad []error
	for _, path := range paths {
		if err := laws.All().Plannable(path, o, scheduled); err != nil {
			bad = append(bad, err)
			continue
		}
		fmt.Fprintf(w, "%s: ok\n", path)
	}
	return usageError(errors.Join(bad...))
}

// scheduled returns an error if the traffic of a run cannot be scheduled.
func scheduled(r *experiment.Run) error {
	_, err := workload.Expand(&r.Config, r.Seed)
	return err
}

// runFile implements `weir run FILE`.
func runFile(ctx context.Context, path string, f runFlags, stdout, stderr io.Writer) error {
	text, err := experiment.ReadFile(path)
	if err != nil {
		return usageError(err)
	}
	asked := &store.Asked{Name: path, File: string(text), Options: f.options}
	plan, err := asked.Plan(laws.All())
	if err != nil {
		return usageError(err)
	}
	simulator := &sim.World{Laws: laws.Sim(), PCAP: f.pcap}
	if f.trace {
		simulator.Trace = filepath.Join(f.out, "trace")
	}
	isSim := func(r *experiment.Run) bool { return r.World == simulator.Name() }
	if (f.pcap != "" || f.trace) && !slices.ContainsFunc(plan.Runs, isSim) {
		return usageError(errors.New("--pcap and --trace need the simulator: use --world sim"))
	}
	return carryOut(ctx, asked, plan, f, simulator, stdout, stderr)
}

// carryOut runs a plan, stores the finished runs, and prints the results.
func carryOut(ctx context.Context, asked *store.Asked, plan *experiment.Plan, f runFlags, simulator *sim.World, stdout, stderr io.Writer) error {
	real := &lab.World{Laws: laws.Lab(), WithoutMeasuring: f.withoutMeasuring, Controller: labProgram("controller"), Agent: labProgram("agent", "--unpinned")}
	if err := f.recordIn(real, simulator); err != nil {
		return err
	}
	r := &runner{
		progress: newProgress(stderr, plan.Runs), processors: newProcessors(),
		worlds: map[string]experiment.World{"lab": real, "sim": simulator},
	}
	client, err := f.on.dial(ctx, stderr)
	if err != nil {
		return err
	}
	r.on(client)
	m, err := measure(ctx, asked, plan, f, r, stderr)
	closeClient(client, stderr)
	if err != nil {
		return err
	}
	return m.conclude(stdout, stderr)
}

// outcome is an experiment after its runs, complete or not.
type outcome struct {
	doc   *result.Document
	plan  *experiment.Plan
	flags runFlags
	store *store.Dir // nil: nothing is stored
	err   error      // reason for missing runs
}

// measure runs a plan, and stores the finished runs.
func measure(ctx context.Context, asked *store.Asked, plan *experiment.Plan, f runFlags, r *runner, stderr io.Writer) (*outcome, error) {
	r.plan, r.resume, r.code = plan, f.resume, codeOf
	m := &outcome{plan: plan, flags: f}
	var err error
	if r.remote != nil {
		if r.asked, err = remotely(asked, plan); err != nil {
			return nil, usageError(err)
		}
	}
	if f.out != "" {
		if err := report.CheckDir(f.out); err != nil {
			return nil, usageError(err)
		}
	}
	if m.doc, err = newDocument(plan); err != nil {
		return nil, err
	}
	if f.out != "" && !f.withoutMeasuring {
		if m.store, err = openStore(f.out, asked, stderr); err != nil {
			return nil, err
		}
		r.store = m.store
	}
	if m.doc.Runs, m.err = r.run(ctx); m.err != nil && len(m.doc.Runs) == 0 {
		m.close()
		return nil, m.err
	}
	return m, nil
}

// conclude decides the claims and prints the results.
func (m *outcome) conclude(stdout, stderr io.Writer) error {
	defer m.close()
	if m.err != nil {
		m.flags.summary = "" // it would replace that of the whole experiment
	}
	err := conclude(m.doc, m.plan, m.flags, stdout, stderr)
	if code := (*exitCode)(nil); m.err != nil && errors.As(err, &code) {
		err = nil // half an experiment cannot refute a claim
	}
	return errors.Join(m.err, err)
}

func (m *outcome) close() {
	if m.store != nil {
		_ = m.store.Close() // its content is on disk already
	}
}

// conclude decides the claims and prints the results. A refuted claim sets the exit code.
func conclude(doc *result.Document, plan *experiment.Plan, f runFlags, stdout, stderr io.Writer) error {
	doc.Claims = claim.Decide(plan.File.Claims, doc, f.options.Schemes)
	if err := show(doc, f, stdout, stderr); err != nil {
		return err
	}
	if n := refuted(doc.Claims); n > 0 {
		return &exitCode{exitRefuted, fmt.Errorf("%d of %d claims refuted", n, len(doc.Claims))}
	}
	return nil
}

// newDocument returns the header of the results: the request, the build and the machine.
func newDocument(plan *experiment.Plan) (*result.Document, error) {
	file, err := json.Marshal(plan.File)
	if err != nil {
		return nil, fmt.Errorf("write the experiment file into the results: %w", err)
	}
	doc := &result.Document{
		Experiment: plan.File.ID, Weir: weirVersion(), File: file, Set: plan.Set,
		Host: result.Host{Kernel: kernelRelease(), CPUs: runtime.NumCPU()}, Laws: laws.All().Specs(),
	}
	for _, s := range plan.Skipped {
		doc.Skipped = append(doc.Skipped, result.Skip{Scheme: s.Scheme, World: s.World, Reason: s.Reason})
	}
	return doc, nil
}

// kernelRelease returns the output of uname -r.
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// describe names a run for people: "ecn, guest_cc=cubic, seed 1".
func describe(r *experiment.Run) string {
	parts := []string{r.World, r.Scheme}
	for _, axis := range slices.Sorted(maps.Keys(r.Point)) {
		parts = append(parts, axis+"="+r.Point[axis])
	}
	return strings.Join(parts, " ") + fmt.Sprintf(" seed %d", r.Seed)
}

func refuted(claims []result.Claim) int {
	n := 0
	for _, c := range claims {
		if c.Holds != nil && !*c.Holds {
			n++
		}
	}
	return n
}

// show prints the document and, with --out, writes its files.
func show(doc *result.Document, f runFlags, stdout, stderr io.Writer) error {
	if f.out != "" {
		path, err := report.Write(f.out, doc)
		if err != nil {
			return err
		}
		fmt.Fprintf(stderr, "report: %s\n", path)
	}
	if f.summary != "" {
		write := report.WriteSummary
		if f.add {
			write = report.AddToSummary
		}
		path, err := write(f.summary, doc)
		if err != nil {
			return err
		}
		fmt.Fprintf(stderr, "summary: %s\n", path)
	}
	if f.json {
		return doc.WriteJSON(stdout)
	}
	return report.Table(stdout, doc)
}
