package main

import (
	"bytes"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"weir/experiment"
)

// Runs of other sources are repeated, except with --resume=any. So are those of a build that stored no digest.
func TestResume_OtherSources(t *testing.T) {
	other := func(string) (string, error) { return "d", nil }
	all := []string{"droptail 1", "fairq 1", "droptail 2", "fairq 2", "droptail 3", "fairq 3"}
	for _, tt := range []struct {
		name   string
		resume resuming
		code   func(string) (string, error)
		ran    []string
		said   string
	}{
		{"the same", resumeSame, oneCode, nil, "6 of 6 runs are finished already\n"},
		{"others", resumeSame, other, all, "6 of 6 runs are of another version of law, traffic or simulator (weir " + weirVersion() + "): they are repeated; --resume=any keeps them\n"},
		{"others, any", resumeAny, other, nil, "): they are kept, and the report compares them with the others\n6 of 6 runs are finished already\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := runThree(t, dir, &fakeWorld{}, resumeNothing, threeRuns); err != nil {
				t.Fatal(err)
			}
			w, said := &fakeWorld{}, &bytes.Buffer{}
			runs, err := runThreeWith(t, dir, w, tt.resume, threeRuns, tt.code, said)
			if err != nil || len(runs) != 6 || !slices.Equal(w.ran, tt.ran) {
				t.Errorf("it ran %q of %d (%v), want %q", w.ran, len(runs), err, tt.ran)
			}
			if !strings.Contains(said.String(), tt.said) {
				t.Errorf("it said %q, not %q", said, tt.said)
			}
		})
	}
	t.Run("a store without digests", func(t *testing.T) {
		dir := t.TempDir()
		none := func(string) (string, error) { return "", nil }
		if _, err := runThreeWith(t, dir, &fakeWorld{}, resumeNothing, threeRuns, none, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
		w := &fakeWorld{}
		if _, err := runThree(t, dir, w, resumeSame, threeRuns); err != nil || len(w.ran) != 6 {
			t.Errorf("it ran %q (%v), want all", w.ran, err)
		}
	})
}

// The digest changes with a source, and with nothing else.
func TestDigestOf(t *testing.T) {
	files := func(changes map[string]string) []sources {
		tree := fstest.MapFS{"fairq.h": {Data: []byte("law")}, "tcp/a.go": {Data: []byte("a")}, "tcp/a_test.go": {Data: []byte("t")}}
		for name, text := range changes {
			tree[name] = &fstest.MapFile{Data: []byte(text)}
		}
		return []sources{{"core", tree}}
	}
	before, err := digestOf(files(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		changes map[string]string
		same    bool
	}{
		{"nothing", nil, true},
		{"a test", map[string]string{"tcp/a_test.go": "other"}, true},
		{"the law", map[string]string{"fairq.h": "law2"}, false},
		{"a file more", map[string]string{"tcp/b.go": ""}, false},
		{"the same text in another place", map[string]string{"fairq.h": "la", "tcp/a.go": "wa"}, false},
	} {
		after, err := digestOf(files(tt.changes))
		if err != nil || (after == before) != tt.same {
			t.Errorf("%s: the same digest: %v, want %v (%v)", tt.name, after == before, tt.same, err)
		}
	}
	if more, _ := digestOf(files(nil), "gvisor v2"); more == before {
		t.Error("another version of a guest's TCP has the same digest")
	}
}

// Builds of one source with and without cgo have other laws in the simulator. The lab has the same.
func TestCodeOf_Cgo(t *testing.T) {
	for world, same := range map[string]bool{experiment.WorldSim: false, experiment.WorldLab: true} {
		with, err := codeOfBuild(world, true)
		if err != nil {
			t.Fatal(err)
		}
		without, err := codeOfBuild(world, false)
		if err != nil || (with == without) != same {
			t.Errorf("%s: %s with cgo, %s without (%v)", world, with, without, err)
		}
	}
}

// A world's digest covers every source of each package of Weir that the world imports. Left out are packages that only
// read files or sum up results, and in the lab the encoding of OpenFlow, the pages and metrics for people,
// policies, recordings, and sFlow, which no lab has.
func TestCodeOf_CoversTheWorlds(t *testing.T) {
	without := []string{
		"law", "config", "experiment", "experiment/claim", "experiment/result", "internal/", "agent/", "openflow", "policy", "policy/", "controller/record", "controller/sflow", "datapath/fairq/lawtrace", "datapath/internal/",
	}
	for world, pkg := range map[string]string{experiment.WorldSim: "weir/sim", experiment.WorldLab: "weir/lab"} {
		if code, err := codeOf(world); err != nil || len(code) != 32 {
			t.Fatalf("%q, %v", code, err)
		}
		list, err := exec.Command("go", "list", "-deps", "-f", `{{if not .Standard}}{{.ImportPath}} {{join .GoFiles " "}} {{join .CgoFiles " "}} {{join .HFiles " "}}{{end}}`, pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(list)) {
			fields := strings.Fields(line)
			dir, own := strings.CutPrefix(fields[0], "weir/")
			if !own || slices.ContainsFunc(without, func(w string) bool {
				return dir == w || strings.HasSuffix(w, "/") && strings.HasPrefix(dir, w) || w == "openflow" && strings.HasPrefix(dir, w+"/")
			}) {
				continue
			}
			for _, file := range fields[1:] {
				if dir == "datapath/core" {
					file = strings.Replace(file, "core.go", "mark.h", 1)
				}
				if !covers(world, dir+"/"+file) {
					t.Errorf("%s: %s/%s is not in the digest: add it to dependsOn, or here if runs do not depend on it", world, dir, file)
				}
			}
		}
		for _, file := range []string{"datapath/core/fairq/fairq.h", "datapath/core/mark.h", "law/fairq/params.go", "experiment/workload/patterns.go"} {
			if !covers(world, file) {
				t.Errorf("%s: %s is not in the digest", world, file)
			}
		}
		for _, file := range []string{"docs/results.md", "README.md", "experiment/report/html.go", "cmd/weir/run.go"} {
			if covers(world, file) {
				t.Errorf("%s: %s is in the digest", world, file)
			}
		}
	}
	if !covers(experiment.WorldLab, "datapath/bpf/fairq/fairq.bpf.c") || covers(experiment.WorldSim, "datapath/bpf/fairq/fairq.bpf.c") {
		t.Error("the kernel program is not the lab's alone")
	}
}

// covers reports whether the digest of a world includes a file of the repository.
func covers(world, file string) bool {
	for _, s := range dependsOn[world] {
		if inside, ok := strings.CutPrefix(file, s.name+"/"); ok {
			if _, err := fs.Stat(s.files, inside); err == nil {
				return true
			}
		}
	}
	return false
}
