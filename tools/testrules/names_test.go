package testrules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/laws"
)

// otherNames are names that laws have beside that of their Spec, and of files and folders that hold nothing but a law's.
var otherNames = []string{"rwndq", "fairswitch"}

// words are names of laws that mean something else too: a queue discipline, a header field, a program. Nobody can tell by
// reading.
var words = []string{"red", "ecn", "static", "sed", "gcc", "droptail"}

// namesAll are the places where a law's name may stand though they are no folder or file of its own.
var namesAll = []struct{ path, why string }{
	{"cmd/weir/laws/", "the list of laws"},
	{"docs/", "docs"},
	{"experiments/", "experiments"},
	{"deploy/", "packages, and boards for the metrics of a law"},
	{"Makefile", "commands, some of them of one law"},
	{"scripts/bench-sim", "experiment files, whose folders are named after papers"},
	{"datapath/internal/", "programs that only tests load"},
	{"tools/testrules/", "this test"},
}

// TestNames_OfLawsStandWithTheLaws: what is no law's own knows no law. A file is a law's own where its path has the law's
// name between / _ - and dots. Tests and generated files may name laws.
func TestNames_OfLawsStandWithTheLaws(t *testing.T) {
	var distinct []string
	for _, name := range append(laws.All().Specs().Names(), otherNames...) {
		if !slices.Contains(words, name) {
			distinct = append(distinct, name)
		}
	}
	own := regexp.MustCompile(`(^|[/_.-])(` + strings.Join(slices.Concat(distinct, words), "|") + `)([/_.-]|$)`)
	// rsed ends "parsed": names of four letters count as whole words.
	var parts []string
	for _, name := range distinct {
		if len(name) < 5 {
			name = `\b` + name + `\b`
		}
		parts = append(parts, name)
	}
	named := regexp.MustCompile(`(?i)` + strings.Join(parts, "|"))
	looked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"out", "testdata", "results"}, rel) || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !isCode(rel) || own.MatchString(rel):
			return nil
		}
		for _, e := range namesAll {
			if strings.HasPrefix(rel, e.path) {
				return nil
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		looked++
		for n, line := range strings.Split(string(text), "\n") {
			if name := named.FindString(line); name != "" {
				t.Errorf("%s:%d names the law %s: it is no file of that law; read what it needs from the law's Spec", rel, n+1, name)
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 400 {
		t.Errorf("looked at %d files: there are more", looked)
	}
	for _, e := range namesAll {
		t.Logf("may name laws: %s (%s)", e.path, e.why)
	}
}

// isCode tells production code and scripts from tests, generated files and pages.
func isCode(rel string) bool {
	name := filepath.Base(rel)
	switch {
	case strings.HasSuffix(name, "_test.go") || strings.Contains(name, "_bpfel."):
		return false
	case strings.HasPrefix(rel, "scripts/"), name == "Makefile":
		return true
	}
	return slices.Contains([]string{".go", ".c", ".h", ".sh"}, filepath.Ext(name))
}
