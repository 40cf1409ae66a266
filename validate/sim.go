package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/store"
)

// refuted is weir's exit code when a claim does not hold, which is not an error here.
const refuted = 3

// runSim runs the file in the simulator with weir, and returns the statistics of the runs in their order.
func runSim(ctx context.Context, o options, path, dir string, runs []*experiment.Run) ([]*result.Run, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("run the simulator: %w", err)
	}
	args := []string{"run", path, "--world", "sim", "--json", "--out", dir}
	if o.seeds > 0 {
		args = append(args, "--seeds", strconv.Itoa(o.seeds))
	}
	for _, s := range o.set {
		args = append(args, "--set", s)
	}
	cmd := exec.CommandContext(ctx, o.weir, args...)
	cmd.Stderr = os.Stderr // its progress
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != refuted) {
		return nil, fmt.Errorf("%s run %s --world sim: %w", o.weir, path, err)
	}
	// The printed document has no single flows; the store of its runs has.
	kept := store.Read(dir)
	var out []*result.Run
	for _, r := range runs {
		key, err := store.Key(r)
		if err != nil {
			return nil, err
		}
		e, err := kept.Load(key)
		if err != nil {
			return nil, fmt.Errorf("%s with seed %d in the simulator: %w", r.Scheme, r.Seed, err)
		}
		out = append(out, result.Build(r.Info(), e.Raw))
	}
	return out, nil
}
