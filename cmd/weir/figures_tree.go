package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/remote"
	"weir/experiment/report"
	"weir/experiment/result"
	"weir/experiment/store"
	"weir/lab"
	"weir/sim"
)

// ofTree finds the experiments that the arguments name, or all without arguments. It returns nil if the first argument
// is a directory, or a name that is not in the tree.
func ofTree(root string, args []string) ([]experiment.Found, error) {
	if len(args) > 0 {
		if isDir(args[0]) || strings.ContainsRune(args[0], filepath.Separator) {
			return nil, nil
		}
	}
	all, err := laws.All().Tree(root)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(args) > 0:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, usageError(fmt.Errorf("there is no directory %s with experiments: change to a clone of Weir, or use --experiments DIR", root))
	case err != nil:
		return nil, usageError(err)
	}
	if len(args) == 0 {
		return all, nil
	}
	called := func(e experiment.Found) bool { return slices.ContainsFunc(args, e.Has) }
	for i, id := range args {
		if !slices.ContainsFunc(all, func(e experiment.Found) bool { return e.Has(id) }) {
			if i == 0 {
				return nil, nil
			}
			return nil, usageError(fmt.Errorf("there is no experiment %s in %s", id, root))
		}
	}
	return slices.DeleteFunc(all, func(e experiment.Found) bool { return !called(e) }), nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// planned is an experiment of the tree that can be run.
type planned struct {
	experiment.Found
	asked *store.Asked
	plan  *experiment.Plan
}

// figuresOfTree implements `weir figures [ID...]`: it runs each experiment in a directory of its own, and writes the
// page that shows all results. If one fails, the others are still run.
//
// The next experiment begins when a processor has no run of the previous one left: statistics and figures of the
// previous one are made meanwhile. Messages appear in the order of the experiments.
func figuresOfTree(ctx context.Context, all []experiment.Found, into string, f runFlags, stdout, stderr io.Writer) error {
	f.options.Available = true
	todo, err := planAll(all, f.options, stderr)
	if err != nil {
		return err
	}
	if into != "" {
		if err := hasPlaces(into, todo); err != nil {
			return usageError(err)
		}
	}
	shared := &console{w: stderr}
	client, err := f.on.dial(ctx, clearing(shared))
	if err != nil {
		return err
	}
	defer closeClient(client, stderr)
	tree := &treeRun{flags: f, into: into, processors: newProcessors(), remote: client, stdout: clearing(stdout), stderr: clearing(shared), progress: shared}
	ended := make(chan struct{}) // closed when the previous experiment has ended
	close(ended)
	for i, p := range todo {
		if ctx.Err() != nil {
			break
		}
		if p.inLab() {
			<-ended // its runs need the machine's clock for themselves
		}
		fmt.Fprintf(tree.stderr, "%s (%d of %d): %s\n", p.File.ID, i+1, len(todo), p.File.Paper)
		before, begun := ended, make(chan struct{})
		ended = make(chan struct{})
		go func(done chan struct{}) {
			defer close(done)
			m, err := tree.measure(ctx, p, func() { close(begun) })
			<-before
			tree.conclude(p, m, err)
		}(ended)
		if p.inLab() {
			<-ended
		}
		select {
		case <-begun:
		case <-ended:
		}
		<-before // at most two at a time
	}
	<-ended
	page, err := writeIndex(f.out)
	if err != nil {
		return errors.Join(append(tree.failed, err)...)
	}
	fmt.Fprintf(stdout, "all results: %s\n", page)
	if len(tree.failed) == 0 && tree.refuted > 0 {
		return &exitCode{exitRefuted, fmt.Errorf("%d of %d claims refuted", tree.refuted, tree.claims)}
	}
	return errors.Join(tree.failed...)
}

// treeRun is a running `weir figures`.
type treeRun struct {
	flags          runFlags
	into           string
	processors     processors
	remote         *remote.Client // nil: runs are carried out here
	stdout, stderr io.Writer      // lines that stay on the terminal
	progress       io.Writer      // standard error, too
	// Counts of the concluded experiments.
	failed          []error
	refuted, claims int
}

func (t *treeRun) of(p planned) runFlags {
	f := t.flags
	f.out = filepath.Join(f.out, p.File.ID)
	return f
}

// measure runs an experiment.
func (t *treeRun) measure(ctx context.Context, p planned, begun func()) (*outcome, error) {
	r := &runner{
		progress: newProgress(t.progress, p.plan.Runs), processors: t.processors, begun: begun,
		worlds: map[string]experiment.World{"lab": &lab.World{Laws: laws.Lab(), Controller: labProgram("controller"), Agent: labProgram("agent", "--unpinned")}, "sim": &sim.World{Laws: laws.Sim()}},
	}
	r.on(t.remote)
	return measure(ctx, p.asked, p.plan, t.of(p), r, t.stderr)
}

// conclude writes the report of an experiment, and counts its claims.
func (t *treeRun) conclude(p planned, m *outcome, err error) {
	if err == nil {
		err = m.conclude(io.Discard, t.stderr)
	}
	fail := func(err error) { t.failed = append(t.failed, fmt.Errorf("%s: %w", p.File.ID, err)) }
	if code := (*exitCode)(nil); err != nil && (!errors.As(err, &code) || code.code != exitRefuted) {
		fail(err)
		return
	}
	out := t.of(p).out
	doc, err := readDocument(out)
	if err == nil && t.into != "" {
		err = putInto(t.into, doc)
	}
	if err != nil {
		fail(err)
		return
	}
	fmt.Fprintf(t.stdout, "%s: %s: %s\n", p.File.ID, report.Counts(doc), out)
	t.refuted, t.claims = t.refuted+refuted(doc.Claims), t.claims+len(doc.Claims)
}

// inLab reports whether some of the runs are in the lab.
func (p *planned) inLab() bool {
	return slices.ContainsFunc(p.plan.Runs, func(r *experiment.Run) bool { return r.World != experiment.WorldSim })
}

// hasPlaces returns an error if the page has no marks for one of the experiments.
func hasPlaces(path string, todo []planned) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	var missing []error
	for _, p := range todo {
		if _, err := report.Into(page, p.File.ID, nil); err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(missing...)
}

// planAll plans the experiments, and reports those that cannot be run here. If only one was given, that is an error.
func planAll(all []experiment.Found, o experiment.Options, stderr io.Writer) ([]planned, error) {
	var out []planned
	for _, e := range all {
		p := planned{Found: e, asked: &store.Asked{Name: e.Path, File: string(e.Text), Options: o}}
		var err error
		if p.plan, err = e.File.Plan(o); err == nil {
			out = append(out, p)
			continue
		}
		if len(all) == 1 {
			return nil, usageError(err)
		}
		fmt.Fprintf(stderr, "%s is skipped: %v\n", e.File.ID, err)
	}
	if len(out) == 0 {
		return nil, usageError(errors.New("none of these experiments can be run"))
	}
	return out, nil
}

// writeIndex writes the page of all experiments with results in a directory, those of earlier runs included.
func writeIndex(dir string) (string, error) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("find results: %w", err)
	}
	var entries []report.Entry
	for _, d := range found {
		if !d.IsDir() {
			continue
		}
		at := filepath.Join(dir, d.Name())
		doc, err := readDocument(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue // stopped before its first run had finished
		}
		if err != nil {
			return "", err
		}
		asked, err := store.Read(at).Asked()
		if err != nil {
			return "", err
		}
		entries = append(entries, report.Entry{Dir: d.Name(), Part: laws.All().PartOf(asked.Name), Doc: doc})
	}
	return report.WriteIndex(dir, laws.All().Parts(), entries)
}

// readDocument reads the results of a directory.
func readDocument(dir string) (*result.Document, error) {
	doc, err := report.ReadDocument(dir)
	if err == nil {
		doc.Laws = laws.All().Specs()
	}
	return doc, err
}
