//go:build cgo

package fairq_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/datapath/fairq"
)

// lawMutant is a fault put into the native law, and not into the kernel's.
type lawMutant struct {
	name, header, goFile, old, new string
	first                          string // what the replay names
}

var lawMutants = []lawMutant{
	{"what is beyond a period is forgotten (FQ-10)", "fairq.h", "fairq.go", "state->elapsed_ns %= period;", "state->elapsed_ns = 0;", "fairq_sample("},
	{"the rest of a division is dropped", "fairq.h", "fairq.go", "state->rest = (weir_u32)(sum % divisor);", "state->rest = 0;", "fairq_sample("},
	{"the field is rounded down (FQ-13)", "window.h", "window.go", "((weir_u64)bytes + (1u << shift) - 1) >> shift", "(weir_u64)bytes >> shift", "window_rewrite"},
	{"the floor is the MSS and no byte more (FQ-12)", "window.h", "window.go", "WINDOW_MSS_DEFAULT) + 1;", "WINDOW_MSS_DEFAULT);", "window_floor("},
}

// overlay gives the arguments with which go build compiles the native law from the mutant. The tree stays as it is.
func (m *lawMutant) overlay(t *testing.T, dir string) []string {
	t.Helper()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace := func(path, old, new string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), old); n != 1 {
			t.Fatalf("%s has the text %d times, want 1:\n%s", path, n, old)
		}
		return strings.Replace(string(text), old, new, 1)
	}
	types, err := os.ReadFile("../core/types.h")
	if err != nil {
		t.Fatal(err)
	}
	write("types.h", string(types))
	header := write(m.header, replace("../core/"+m.header, m.old, m.new))
	source, err := filepath.Abs("../native/" + m.goFile)
	if err != nil {
		t.Fatal(err)
	}
	mutant := write("mutant.go", replace(source, `"../core/`+m.header+`"`, `"`+header+`"`))
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{source: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	return []string{"-overlay", write("overlay.json", string(list))}
}

// Each fault in the native law is found by the replay of a real trace, which the law as it is agrees with: that
// the two agree is therefore something that could be otherwise.
func TestDifferential_FindsMutants(t *testing.T) {
	t.Parallel()
	trace := traced(t, tracedLaw(), fairq.Config{}, 3000)
	file := filepath.Join(t.TempDir(), "trace")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(trace.Write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, m := range append([]lawMutant{{name: "as it is"}}, lawMutants...) {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			dir := t.TempDir()
			binary, args := filepath.Join(dir, "replay"), []string(nil)
			if m.header != "" {
				args = m.overlay(t, dir)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			args = append([]string{"build", "-o", binary}, append(args, "./lawtrace/replay")...)
			if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
				t.Fatalf("it does not build: %v\n%s", err, out)
			}
			out, err := exec.CommandContext(ctx, binary, file).CombinedOutput()
			var exit *exec.ExitError
			if found := errors.As(err, &exit); err != nil && !found {
				t.Fatal(err)
			} else if want := m.header != ""; found != want || want && !strings.Contains(string(out), m.first) {
				t.Errorf("found %t, want %t with %q:\n%s", found, want, m.first, out)
			} else if found {
				t.Logf("%s", out[strings.Index(string(out), "answers compared"):])
			}
		})
	}
}
