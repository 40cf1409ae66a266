//go:build cgo

package fairq_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/fairq/lawtrace"
)

// lawMutant is a fault put into the native core, and not into the kernel's.
type lawMutant struct {
	name, header, old, new string
	trace                  string // the trace that shows it
	first                  string // named first by the replay
}

var lawMutants = []lawMutant{
	{"what is beyond a period is forgotten (FQ-10)", "fairq.h", "state->elapsed_ns %= period;", "state->elapsed_ns = 0;", "", "the law"},
	{"the rest of a division is dropped", "fairq.h", "state->rest = (weir_u32)(sum % divisor);", "state->rest = 0;", "", "the law"},
	{"the field is rounded down (FQ-13)", "window.h", "((weir_u64)bytes + (1u << shift) - 1) >> shift", "(weir_u64)bytes >> shift", "", "what its window is limited to"},
	{"the floor is the MSS and no byte more (FQ-12)", "window.h", "WINDOW_MSS_DEFAULT) + 1;", "WINDOW_MSS_DEFAULT);", "", "grant_floor("},
	{"a slot counts for an epoch less", "switch.h", "#define FLOWS_LIVE 4 ", "#define FLOWS_LIVE 3 ", "", ""},
	{"a slot that is left still counts", "slots.h", "WEIR_ADD(&port->wheel[slot & (FLOWS_WHEEL - 1)], -1);", ";", "", "what counts"},
	{"a direction that stays counts as a new flow", "slots.h", "!(counted && slot_port(old) == slot_port(new))", "1", "", "slot_is_new("},
	{"an open handshake leaves another epoch's count", "slots.h", "[(registration - 1) & (FLOWS_WHEEL - 1)]", "[registration & (FLOWS_WHEEL - 1)]", "opening", "what counts"},
	{"open handshakes take no share of a SYN-ACK's window", "fairq.h", "flows = state->flows + opening;", "flows = state->flows;", "opening", "what its window is limited to"},
	{"an entry of the register is left twice (FQ-9)", "slots.h", "if (registration == port->generation && port->registered)", "port->registered--;\n\tif (registration == port->generation && port->registered)", "register", "register_goes("},
	{"released windows grow half as fast", "lease.h", "#define RELEASE_NS 32000000ull ", "#define RELEASE_NS 64000000ull ", "", "what is granted"},
	{"the equilibrium window ignores the BDP", "release.h", "((weir_u64)config->pipe_bytes + fairq_target(&config->law))", "((weir_u64)fairq_target(&config->law))", "part", "what is granted"},
	{"another mode raises the grant at once", "release.h", "port->easing = 1;", "port->easing = 0;", "part", "what is granted"},
	{"the other group is limited", "groups.h", "return bucket >= port->spared;", "return bucket < port->spared;", "part", "whether it is limited"},
	{"an unlimited flow's window is unknown", "groups.h", "granted->would_q8 = port->equilibrium_q8;", "granted->would_q8 = 0;", "part", "what its window is limited to"},
	{"a window that moved by an eighth is not advertised at once", "edge.h", "(weir_u64)advertised * config->change >> 8", "(weir_u64)advertised * config->change >> 6", "edge", ""},
	{"what was rounded up is kept as advertised", "edge.h", "e->edge_advertised = advertised > grant ? grant : advertised;", "e->edge_advertised = advertised;", "edge", "what is kept of what was advertised"},
	{"the interval counts from the first advertisement", "edge.h", "e->edge_advertised_at = a->now;", "if (!e->edge_advertised_at) e->edge_advertised_at = a->now;", "edge", "what is kept of what was advertised"},
}

// lawTraces are the traces in which mutants show, by name.
func lawTraces(t *testing.T) map[string]*lawtrace.Trace {
	t.Helper()
	return map[string]*lawtrace.Trace{
		"":         traced(t, tracedLaw(), fairq.Config{}, 3000),
		"opening":  traced(t, tracedLaw(), fairq.Config{Count: fairq.CountOpening}, 2000),
		"register": traced(t, tracedLaw(), fairq.Config{Count: fairq.CountHandshake}, 1000),
		"part":     tracedThrough(t, tracedLaw(), fairq.Config{}, 2000, through(tracedLaw())),
		"credits":  tracedCredits(t, fairq.CreditPaces, 4),
		"edge":     traced(t, tracedLaw(), fairq.Config{Edge: fairq.EdgeMode{Interval: fairq.EdgeInterval}}, 2000),
	}
}

// overlay returns the arguments with which go build compiles the native core from the mutant. The tree does not
// change.
func (m *lawMutant) overlay(t *testing.T) []string {
	t.Helper()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var headers []string
	for _, pattern := range []string{"*.h", "fairq/*.h"} {
		found, err := filepath.Glob("../core/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, found...)
	}
	dir := m.place(t, headers)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if old, err := os.ReadFile(path); err == nil && string(old) == text {
			return path // another run of this test may be reading it
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, path := range headers {
		text := read(path)
		if filepath.Base(path) == m.header {
			if n := strings.Count(text, m.old); n != 1 {
				t.Fatalf("%s has the text %d times, want 1:\n%s", path, n, m.old)
			}
			text = strings.Replace(text, m.old, m.new, 1)
		}
		write(strings.TrimPrefix(path, "../core/"), text)
	}
	// The native package includes core, and headers of its own that do: the copies name the mutant, and one another.
	native, err := filepath.Glob("../native/*.h")
	if err != nil {
		t.Fatal(err)
	}
	includes := []string{`"../core/`, `"` + dir + `/`, " -O2 ", " -O0 "} // most of the time is the compiler's
	for _, path := range native {
		name := filepath.Base(path)
		includes = append(includes, `#include "`+name+`"`, `#include "`+filepath.Join(dir, "native_"+name)+`"`)
	}
	redirect := strings.NewReplacer(includes...)
	for _, path := range native {
		write("native_"+filepath.Base(path), redirect.Replace(read(path)))
	}
	sources, err := filepath.Glob("../native/*.go")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for _, path := range sources {
		text := read(path)
		changed := redirect.Replace(text)
		if changed == text {
			continue
		}
		source, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		replace[source] = write(filepath.Base(path), changed)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return []string{"-overlay", write("overlay.json", string(list))}
}

// place returns a directory for a mutant's sources. Equal sources have the same one, so that the compiler's results can be used again.
// Its name depends on all sources, because go build does not look into headers of other directories. It ignores directories whose
// names begin with an underscore.
func (m *lawMutant) place(t *testing.T, headers []string) string {
	t.Helper()
	native, err := filepath.Glob("../native/*.[gh]*")
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.New()
	for _, path := range slices.Concat(headers, native) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(digest, "%s %d\n%s", path, len(text), text)
	}
	fmt.Fprintf(digest, "%s\n%s\n%s", m.header, m.old, m.new)
	dir, err := filepath.Abs(filepath.Join("../../out/_mutants", strings.ReplaceAll(m.name, " ", "_")))
	if err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(dir, hex.EncodeToString(digest.Sum(nil)[:8]))
	if _, err := os.Stat(place); errors.Is(err, fs.ErrNotExist) {
		if err := os.RemoveAll(dir); err != nil { // of other sources
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(place, "fairq"), 0o700); err != nil {
		t.Fatal(err)
	}
	return place
}

var allMutants = flag.Bool("mutants", false, "insert every fault, and not every sixteenth (make differential)")

// The replay of a real trace finds each fault in the native core, and agrees with the core without faults. So
// the agreement could fail.
func TestDifferential_FindsMutants(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for name, trace := range lawTraces(t) {
		files[name] = filepath.Join(t.TempDir(), "trace")
		f, err := os.Create(files[name])
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(trace.Write(f), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range slices.Concat([]lawMutant{{name: "as it is"}}, lawMutants, creditMutants) {
		if i%16 != 0 && !*allMutants {
			continue // each takes seconds to build
		}
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			dir := t.TempDir()
			binary, args := filepath.Join(dir, "replay"), []string(nil)
			if m.header != "" {
				args = m.overlay(t)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			args = append([]string{"build", "-ldflags=-s -w", "-o", binary}, append(args, "./lawtrace/replay")...)
			if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
				t.Fatalf("it does not build: %v\n%s", err, out)
			}
			traces := []string{files[m.trace]}
			if m.header == "" {
				traces = slices.Collect(maps.Values(files))
			}
			out, err := exec.CommandContext(ctx, binary, traces...).CombinedOutput()
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
