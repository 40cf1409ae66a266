package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"weir/experiment/result"
)

var update = flag.Bool("update", false, "write testdata anew")

func table(t *testing.T, doc *result.Document) string {
	t.Helper()
	var b bytes.Buffer
	if err := Table(&b, doc); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTable_Golden(t *testing.T) {
	for name, doc := range map[string]*result.Document{"incast": syntheticDocument(), "sweep": sweepDocument()} {
		t.Run(name, func(t *testing.T) {
			got := table(t, doc)
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got (go test -update writes it anew):\n%s", diff)
			}
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > Width {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			if strings.ContainsAny(got, "\x1b\t\r") {
				t.Error("there are control characters in the table")
			}
		})
	}
}

func run(scheme string, seed int64, axes map[string]string, g *result.Group) *result.Run {
	return &result.Run{
		World: "lab", Scheme: scheme, Seed: seed, Scale: 1, Axes: axes,
		Groups: map[string]*result.Group{"g": g}, Ports: map[string]*result.PortResult{result.AllPorts: {}},
	}
}

// The median over seeds is shown with its range; an absent value is a dash, not a 0.
func TestTable_MedianAndAbsence(t *testing.T) {
	doc := &result.Document{Experiment: "x", Runs: []*result.Run{
		run("a", 1, nil, &result.Group{Flows: 4, Timeouts: new(int64(10)), Drops: new(int64(0)), FCT: &result.Distribution{N: 4, P50: 1.234}}),
		run("a", 2, nil, &result.Group{Flows: 4, Timeouts: new(int64(30)), Drops: new(int64(0)), FCT: &result.Distribution{N: 4, P50: 1.236}}),
		run("a", 3, nil, &result.Group{Flows: 4, Timeouts: new(int64(11)), Drops: new(int64(0)), FCT: &result.Distribution{N: 4, P50: 9876.5}}),
		run("b", 1, nil, &result.Group{Flows: 4, Unfinished: 4}),
	}}
	want := []string{
		"g  unfinished  FCT mean  FCT SD          FCT p50  FCT p99  FCT max   timeouts  drops",
		"                     ms      ms               ms       ms       ms",
		"a           0         0       0  1.24 1.23..9876        0        0  11 10..30      0",
		"b           4         -       -     -                   -        -   -             -",
		"  every row: flows 4",
	}
	got := table(t, doc)
	for _, line := range want {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("there is no line %q in\n%s", line, got)
		}
	}
}

func TestTable_SaysWhatWentWrong(t *testing.T) {
	doc := &result.Document{Experiment: "x", Runs: []*result.Run{
		run("a", 1, nil, &result.Group{}), run("a", 2, nil, &result.Group{}),
	}, Skipped: []result.Skip{{Scheme: "fairq", World: "lab", Reason: "not in this build"}}}
	doc.Runs[0].Unmet = unmetOf("guests.cc: no dctcp here", "guests.cc: no dctcp here")
	doc.Runs[1].Unmet = unmetOf("guests.cc: no dctcp here", "network.rtt: no delay")
	doc.Runs[1].Partial = true
	got := table(t, doc)
	for _, line := range []string{
		"guests.cc: no dctcp here (2 of 2 runs)", "network.rtt: no delay (1 of 2 runs)",
		"the run was cut short: its values cover the part that ran (1 of 2 runs)", "fairq in lab: not in this build",
	} {
		if !strings.Contains(got, "\n  "+line+"\n") {
			t.Errorf("there is no line %q in\n%s", line, got)
		}
	}
}

func TestTable_NothingRan(t *testing.T) {
	if got := table(t, &result.Document{Experiment: "x", Weir: "v1", Host: result.Host{Kernel: "6", CPUs: 1}}); got != "x: 0 runs, weir v1 on Linux 6, 1 CPU\n" {
		t.Errorf("got %q", got)
	}
}

// A scheme that does not use an axis is shown with the others at each of its values.
func TestBlocks(t *testing.T) {
	on := func(v string) map[string]string { return map[string]string{"cc": v} }
	doc := &result.Document{Runs: []*result.Run{
		run("plain", 2, nil, nil), run("plain", 1, nil, nil), run("tuned", 1, on("reno"), nil), run("tuned", 1, on("cubic"), nil),
	}}
	var got []string
	for _, b := range blocks(doc) {
		for _, c := range b.cells {
			for _, r := range c.runs {
				got = append(got, strings.TrimSpace(b.title+" "+c.scheme+" "+string(rune('0'+r.Seed))))
			}
		}
	}
	want := []string{"cc=reno plain 1", "cc=reno plain 2", "cc=reno tuned 1", "cc=cubic plain 1", "cc=cubic plain 2", "cc=cubic tuned 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", -2: "-2", 12345: "12345", 12345.6: "12346", 99.96: "100", 99.94: "99.9", 9.996: "10.0", 9.994: "9.99",
		1.2345: "1.23", 0.98765: "0.988", 0.9996: "1.00", 0.00012345: "0.000123", 1e-9: "1e-09", -1.25: "-1.25",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

func unmetOf(texts ...string) []result.Unmet {
	var out []result.Unmet
	for _, t := range texts {
		out = append(out, result.OldUnmet(t))
	}
	return out
}
