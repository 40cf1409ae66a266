// Package toylaw shows that a law can be added without a change elsewhere: toy-law.patch has a law of a switch's
// port and a law of a controller. The test applies it to a copy of this tree, builds and tests it, and runs it in
// both worlds.
package toylaw

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/lockfile"
	"weir/internal/testroot"
)

const (
	root  = "../.."
	patch = "toy-law.patch"
	list  = "cmd/weir/laws/laws.go"
)

// names are the laws of the patch.
var names = []string{"everynth", "fixedtable"}

// TestPatch_TouchesOnlyItsOwn: the patch adds files and changes only the list of laws, by an import or two and a
// line for each law. A file belongs to a law if its path has the law's name; sim and lab have one such file each,
// in addition to tests.
func TestPatch_TouchesOnlyItsOwn(t *testing.T) {
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	perWorld, experiments := map[string]int{}, 0
	for _, f := range changed(text) {
		law := slices.IndexFunc(names, func(n string) bool {
			return regexp.MustCompile(`(^|[/_.-])` + n + `([/_.-]|$)`).MatchString(f.path)
		})
		switch {
		case f.path == list:
			checkList(t, f)
		case !f.isNew:
			t.Errorf("%s: a file that is there already is changed", f.path)
		case strings.HasPrefix(f.path, "experiments/"):
			experiments++
		case law < 0:
			t.Errorf("%s: this is no file of its own of %v", f.path, names)
		case strings.HasSuffix(f.path, "_test.go"):
		case strings.HasPrefix(f.path, "sim/"):
			perWorld["sim "+names[law]]++
		case strings.HasPrefix(f.path, "lab/"):
			perWorld["lab "+names[law]]++
		case !strings.HasPrefix(f.path, "law/") && !strings.HasPrefix(f.path, "datapath/"):
			t.Errorf("%s: a law's own files stand in law, datapath, sim and lab", f.path)
		}
	}
	for _, law := range names {
		if perWorld["sim "+law] != 1 || perWorld["lab "+law] != 1 {
			t.Errorf("law %s has %d files in sim and %d in lab, want 1 and 1", law, perWorld["sim "+law], perWorld["lab "+law])
		}
	}
	if experiments != 1 {
		t.Errorf("%d files in experiments, want 1", experiments)
	}
}

// file is a patch's change of a file.
type file struct {
	path           string
	isNew          bool
	added, removed []string
}

// changed parses a patch in git's format.
func changed(patch []byte) (files []file) {
	lines := bufio.NewScanner(bytes.NewReader(patch))
	for lines.Scan() {
		line := lines.Text()
		if to, ok := strings.CutPrefix(line, "diff --git a/"); ok {
			path, _, _ := strings.Cut(to, " ")
			files = append(files, file{path: path})
			continue
		}
		f := &files[len(files)-1]
		switch {
		case strings.HasPrefix(line, "new file "):
			f.isNew = true
		case strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---"):
		case strings.HasPrefix(line, "+"):
			f.added = append(f.added, line[1:])
		case strings.HasPrefix(line, "-"):
			f.removed = append(f.removed, line[1:])
		}
	}
	return files
}

// checkList checks the patch's change of the list of laws: an import and an entry for each law.
func checkList(t *testing.T, f file) {
	t.Helper()
	want := map[string]*regexp.Regexp{}
	for _, law := range names {
		want["import of "+law] = regexp.MustCompile(`^\t"weir/law/` + law + `"$`)
		want["entry of "+law] = regexp.MustCompile(`^\t\t\{` + law + `\.Spec\(\), simlaws\.\w+, lab\.\w+\},$`)
	}
	for _, line := range f.added {
		found := ""
		for what, r := range want {
			if r.MatchString(line) {
				found = what
			}
		}
		if found == "" {
			t.Errorf("%s: %q is neither the import nor the one line of a law", list, line)
		}
		delete(want, found)
	}
	for what := range want {
		t.Errorf("%s: no %s", list, what)
	}
	if len(f.removed) > 0 {
		t.Errorf("%s: lines are taken away: %q", list, f.removed)
	}
}

// TestPatch_RunsInBothWorlds applies the patch to a copy of the tree and builds the kernel object. It runs the laws'
// tests and the rules for all sources, builds weir, and runs the experiment: every claim is confirmed in both
// worlds.
func TestPatch_RunsInBothWorlds(t *testing.T) {
	testroot.Need(t, "builds a lab")
	tree := copyTree(t)
	text, err := filepath.Abs(patch)
	if err != nil {
		t.Fatal(err)
	}
	run(t, tree, "git", "apply", "-C1", text) // the lines around the change may differ: the list of laws may grow
	run(t, tree, "go", "generate", "./datapath/everynth")

	// -trimpath and the tags are those of make build, so that compiled packages are reused.
	flags := []string{"-trimpath", "-tags", "netgo,osusergo"}
	run(t, tree, "go", slices.Concat([]string{"build"}, flags, []string{"-ldflags=-w", "-o", "weir-toy", "./cmd/weir"})...)
	tests := slices.Concat([]string{"test", "-vet=off", "-ldflags=-w"}, flags)
	run(t, tree, "go", slices.Concat(tests, []string{"./law/everynth", "./law/fixedtable", "./datapath/everynth", "./tools/testrules"})...)
	run(t, tree, "go", slices.Concat(tests, []string{"-run", "EveryNth|FixedTable", "./datapath/native", "./lab"})...)

	run(t, tree, "./weir-toy", "run", "experiments/toy.yaml", "--out", "out/toy")
	checkResults(t, filepath.Join(tree, "out/toy"))
	checkControl(t, tree)
}

// checkControl runs the controller law with slow messages, as an experiment file may ask in the simulator: the first
// grants arrive near the end, so the host sends more than its grant. The lab refuses the same file with the reason.
func checkControl(t *testing.T, tree string) {
	t.Helper()
	args := []string{"run", "experiments/toy.yaml", "--scheme", "fixedtable", "--set", "network.control_delay=1500ms", "--set", "network.control_jitter=100ms", "--world"}
	c := exec.CommandContext(t.Context(), "./weir-toy", append(args, "lab", "--out", "out/slow-lab")...)
	c.Dir = tree
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "are the simulator's: in the lab messages of a controller law") {
		t.Errorf("the lab with a control delay: %v\n%s", err, out)
	}
	c = exec.CommandContext(t.Context(), "./weir-toy", append(args, "sim", "--out", "out/slow")...)
	c.Dir = tree
	out, _ := c.CombinedOutput() // its exit code is 1: a claim is refuted
	for claim, want := range map[string]bool{"fixedtable.slow.throughput_mbps <= 4": false, "fixedtable.first.law.rate_mbps.mean == 4": true} {
		if got := claims(t, filepath.Join(tree, "out/slow"))["sim "+claim]; got == nil || *got != want {
			t.Errorf("with a control delay of 1.5 s in 2 s: %s is not %t\n%s", claim, want, out)
		}
	}
}

// place returns an empty directory for a copy. It stays the same, so that compiled packages can be used again. If another run of this
// test has it, the directory is a temporary one.
func place(t *testing.T) (dir string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, "out/toylaw"))
	if err != nil {
		t.Fatal(err)
	}
	if err = os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // for sources
		t.Fatal(err)
	}
	lock, err := lockfile.TakeFile(dir + ".lock")
	if errors.Is(err, lockfile.ErrHeld) {
		return t.TempDir()
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.RemoveAll(dir), lock.Close()); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// copyTree copies the current sources of this tree, including uncommitted ones, and returns where the copy is.
func copyTree(t *testing.T) (tree string) {
	t.Helper()
	tree = place(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && slices.Contains([]string{".git", "out", "results"}, rel):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(tree, rel), 0o755) //nolint:gosec // a copy of sources
		case !d.Type().IsRegular() || rel == "weir":
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(tree, rel), data, info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// run runs a command in the copy; its output is shown if it fails.
func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	// git finds no repository around the copy, and go build no version in one.
	c.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GOFLAGS=-buildvcs=false", "CGO_ENABLED=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// claims returns the results of a run's claims, by world and claim; nil: not decided.
func claims(t *testing.T, out string) map[string]*bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Claims []struct {
			Claim, World string
			Holds        *bool
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	all := map[string]*bool{}
	for _, c := range doc.Claims {
		all[c.World+" "+c.Claim] = c.Holds
	}
	return all
}

// checkResults checks that each claim is confirmed in both worlds, and that the figures of the file exist.
func checkResults(t *testing.T, out string) {
	t.Helper()
	holds := map[string]int{}
	for claim, is := range claims(t, out) {
		world, text, _ := strings.Cut(claim, " ")
		if is == nil || !*is {
			t.Errorf("%s: not confirmed in %s", text, world)
			continue
		}
		holds[world]++
	}
	if holds["lab"] < 10 || holds["lab"] != holds["sim"] {
		t.Errorf("claims confirmed: %v; want the same in both worlds, 10 or more", holds)
	}
	for _, name := range []string{"marks", "rates"} {
		for _, ext := range []string{".svg", ".png"} {
			if f, err := os.Stat(filepath.Join(out, "figures", name+ext)); err != nil || f.Size() == 0 {
				t.Errorf("figure %s%s: %v", name, ext, err)
			}
		}
	}
}
