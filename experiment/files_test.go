package experiment

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const filesDir = "../experiments"

// files lists every experiment file of the repository.
func files(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(filesDir, func(path string, d fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".yaml") {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryFileIsSoundInEveryWorld(t *testing.T) {
	ids := map[string]string{}
	for _, path := range files(t) {
		t.Run(path, func(t *testing.T) {
			if err := testLaws.Plannable(path, Options{}, nil); err != nil {
				t.Fatal(err)
			}
			f, err := testLaws.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Claims) == 0 {
				t.Error("the file claims nothing")
			}
			for _, id := range append(slices.Clone(f.IDs), f.ID) {
				if other, twice := ids[id]; twice {
					t.Errorf("id %s is also that of %s", id, other)
				}
				ids[id] = path
			}
			name := strings.TrimSuffix(filepath.Base(path), ".yaml")
			if f.ID != name && len(f.IDs) == 0 {
				t.Errorf("id %s in a file called %s", f.ID, name)
			}
			for _, world := range f.Worlds {
				plan, err := f.Plan(Options{Worlds: []string{world}, AssumeAll: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range f.Schemes {
					runs := slices.ContainsFunc(plan.Runs, func(r *Run) bool { return r.Scheme == s.Name })
					if asked := slices.Contains(s.Worlds, world) && (world == "sim" || f.skipReason(&s, world) == ""); runs != asked {
						t.Errorf("scheme %s has runs in world %s: %v, want %v", s.Name, world, runs, asked)
					}
				}
			}
		})
	}
	want := []string{
		"incast", "F1", "F2", "F3", "F4", "Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8",
		"S1", "S2", "S3", "S4", "S5", "SJ1", "SR1", "SR2", "G1", "G1s", "G2", "G3", "G4", "D1", "D2", "D3", "D4",
	}
	for _, id := range want {
		if ids[id] == "" {
			t.Errorf("there is no file for experiment %s", id)
		}
	}
}
