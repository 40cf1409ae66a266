package lab

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/experiment"
)

// Every experiment file that the lab can run today fits into a lab: its topology, guests and ports, and FairQ's
// parameters at its time scale.
func TestExperimentFilesFitALab(t *testing.T) {
	runs, fairqs := 0, 0
	err := filepath.WalkDir("../experiments", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		f, err := testLaws.Load(path)
		if err != nil {
			return err
		}
		if !slices.Contains(f.Worlds, "lab") {
			return nil
		}
		for _, scheme := range f.Schemes {
			plan, err := f.Plan(experiment.Options{Worlds: []string{"lab"}, Schemes: []string{scheme.Name}, SeedCount: 1})
			if err != nil {
				continue // its law is not in this build: the experiment package reports that
			}
			for _, run := range plan.Runs {
				runs++
				checkFits(t, path, &run.Config)
				if slices.Contains(run.Laws, "fairq") {
					fairqs++
					if err := checkFairQ(run, "fairq"); err != nil {
						t.Errorf("%s, scheme %s: %v", path, scheme.Name, err)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if runs == 0 || fairqs == 0 {
		t.Errorf("%d runs were looked at, %d of them of FairQ", runs, fairqs)
	}
}

func checkFits(t *testing.T, path string, cfg *experiment.Config) {
	t.Helper()
	p, err := newPlan(cfg)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	if p.routed && !cfg.Graph.Multipath {
		t.Errorf("%s: its switches form a loop that its graph does not speak of", path)
	}
	names := map[string]bool{}
	for _, n := range p.nodes {
		for _, port := range n.ports {
			names[port.name] = true
			if len(port.ifname) > 15 || len(port.name) > 127 {
				t.Errorf("%s: port %s: name too long for the kernel", path, port.name)
			}
		}
	}
	for label, name := range cfg.Ports {
		if !names[name] {
			t.Errorf("%s: measure.ports.%s: no port %q in the lab", path, label, name)
		}
	}
	for _, g := range p.guests() {
		for _, other := range p.guests() {
			if p.hops[g][other.index] < 0 {
				t.Fatalf("%s: no path from %s to %s", path, other.name, g.name)
			}
		}
	}
}
