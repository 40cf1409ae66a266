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

// otherNames are other names of laws, and names of files and folders with only a law's code.
var otherNames = []string{"rwndq", "fairswitch"}

// words are names of laws with a second meaning: a queue discipline, a header field, a program. A search cannot
// distinguish the meanings.
var words = []string{"red", "ecn", "static", "sed", "gcc", "droptail"}

// namesAll are other places where a law's name is allowed.
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

// TestNames_OfLawsStandWithTheLaws: code that does not belong to a law names no law. A file belongs to a law if
// its path has the law's name between / _ - and dots. Tests and generated files may name laws.
func TestNames_OfLawsStandWithTheLaws(t *testing.T) {
	var distinct []string
	for _, name := range append(laws.All().Specs().Names(), otherNames...) {
		if !slices.Contains(words, name) {
			distinct = append(distinct, name)
		}
	}
	own := regexp.MustCompile(`(^|[/_.-])(` + strings.Join(slices.Concat(distinct, words), "|") + `)([/_.-]|$)`)
	// "parsed" ends with rsed: names of four letters count only as whole words.
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

// isCode reports whether a file is production code or a script, not a test, generated file or page.
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
