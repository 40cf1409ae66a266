package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/spf13/pflag"

	"weir/bus"
	"weir/bus/pki"
	"weir/experiment"
	"weir/experiment/remote"
	"weir/experiment/store"
)

// onFlags select workers instead of this machine.
type onFlags struct {
	urls []string // none: this machine
	keys string
}

func (o *onFlags) add(flags *pflag.FlagSet, of string) {
	flags.StringSliceVar(&o.urls, "on", nil, of+"workers carry out the runs: `URL` of the message bus, tls://ADDRESS:PORT; repeat it for more servers")
	addKeys(flags, &o.keys, of+"with --on: ")
}

// addKeys adds --keys to a command.
func addKeys(flags *pflag.FlagSet, keys *string, of string) {
	flags.StringVar(keys, "keys", busDir, of+"`DIRECTORY` with certificate and key, from 'weir bus enrol'")
}

// check returns an error for options that workers cannot fulfil.
func (o *onFlags) check(f *runFlags) error {
	switch {
	case len(o.urls) == 0:
		return nil
	case f.pcap != "" || f.trace || f.record || f.withoutMeasuring:
		return errors.New("--on excludes --pcap, --trace, --record and --without-measuring, whose files or effects stay on the worker: run it without --on")
	case len(f.options.Worlds) > 1:
		return errOneWorld
	}
	return nil
}

var errOneWorld = errors.New("--on takes one world: next to the lab, the simulator needs what the same machine's lab measured; use --world sim or --world lab")

// clientOf returns the configuration of a connection.
func clientOf(urls []string, keys string, log *slog.Logger) (bus.ClientConfig, error) {
	files, err := pki.Find(keys)
	if err != nil {
		return bus.ClientConfig{}, usageError(fmt.Errorf("--keys: %w", err))
	}
	return bus.ClientConfig{URLs: urls, Files: files, Log: log}, nil
}

// dial connects to the bus. Without --on it returns nil.
func (o *onFlags) dial(ctx context.Context, stderr io.Writer) (*remote.Client, error) {
	if len(o.urls) == 0 {
		return nil, nil
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg, err := clientOf(o.urls, o.keys, log)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	return remote.Dial(ctx, remote.ClientConfig{Client: cfg, Weir: weirVersion(), Say: func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(clearing(stderr), line)
	}})
}

// closeClient ends the job, and says who did the work.
func closeClient(c *remote.Client, stderr io.Writer) {
	if c == nil {
		return
	}
	c.Close()
	if did := c.Did(); did != "" {
		fmt.Fprintf(stderr, "runs by worker: %s\n", did)
	}
	refused := c.Refused()
	for _, reason := range slices.Sorted(maps.Keys(refused)) {
		fmt.Fprintf(stderr, "refused: %d (%s)\n", refused[reason], reason)
	}
}

// on makes the runner pass its runs to workers, unless the client is nil.
func (r *runner) on(c *remote.Client) {
	if c == nil {
		return
	}
	r.remote, r.processors = c, c
	r.progress.estimate.slots = c.Slots
}

// remotely prepares an experiment for workers.
func remotely(asked *store.Asked, plan *experiment.Plan) (remote.Packed, error) {
	if slices.ContainsFunc(plan.Runs, func(r *experiment.Run) bool { return r.LabRTT }) {
		return nil, errOneWorld
	}
	return remote.Pack(asked)
}

// byWorker has a worker carry out a run.
func (r *runner) byWorker(ctx context.Context, t *task) (*store.Entry, error) {
	w := &watcher{Progress: r.progress.of(t.run), progress: r.progress, run: t.run}
	e, err := r.remote.Run(ctx, r.asked, t.run, r.codes[t.run.World], w)
	w.end(err == nil)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil, fmt.Errorf("stopped%s", r.resumeHint())
	}
	return e, err
}

// watcher shows the progress of a run at a worker.
type watcher struct {
	experiment.Progress
	progress *progress
	run      *experiment.Run

	mu           sync.Mutex
	begun, ended bool
}

// Began implements remote.Watcher.
func (w *watcher) Began(worker, before string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
	case !w.begun:
		w.begun = true
		w.progress.begin(w.run, worker)
	default:
		w.progress.note(fmt.Sprintf("%s begins again on %s: %s has not finished it", describe(w.run), worker, before))
	}
}

// end ends the run. A short one may end before its worker reports that it began.
func (w *watcher) end(finished bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if finished && !w.begun {
		w.progress.begin(w.run, "")
	}
}
