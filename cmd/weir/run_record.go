package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"weir/controller/record"
	"weir/experiment"
	"weir/lab"
	"weir/law"
	"weir/sim"
)

// recordIn has the laws of controllers recorded, each run in files of its own.
func (f *runFlags) recordIn(real *lab.World, simulator *sim.World) error {
	if !f.record {
		return nil
	}
	dir, err := filepath.Abs(filepath.Join(f.out, "record"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	path := func(r *experiment.Run) string { return filepath.Join(dir, r.World+"-"+sim.FileName(r)) }
	real.Record = path
	simulator.Record = func(r *experiment.Run) (tap func(law.Law, string) law.Law, end func() error, err error) {
		return recordSim(path(r), r)
	}
	return nil
}

// recordSim begins the recording of a run of the simulator. Its times are of the simulated clock.
func recordSim(path string, r *experiment.Run) (tap func(law.Law, string) law.Law, end func() error, err error) {
	w, err := record.New(record.Config{Path: path, Controller: "sim", Weir: version})
	if err != nil {
		return nil, nil, fmt.Errorf("--record: %w", err)
	}
	owner := law.Owner(0)
	tap = func(l law.Law, name string) law.Law {
		params, err := json.Marshal(r.Params[name])
		if err != nil {
			panic(fmt.Sprintf("parameters of law %s: %v", name, err)) // they were read from a file
		}
		owner++
		return w.Tap(l, name, owner, params)
	}
	end = func() error {
		if err := w.Close(); err != nil {
			return fmt.Errorf("--record: %w", err)
		}
		return nil
	}
	return tap, end, nil
}
