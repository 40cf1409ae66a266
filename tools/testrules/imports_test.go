package testrules

import (
	"io/fs"
	"os"
	pathpkg "path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// free are the rooms that may import everything.
var free = []string{"cmd/weir", "tools"}

// TestImports_EveryRoomHasARule: each folder of production code has a rule of depguard in .golangci.yml. Without a
// rule, depguard allows a new folder to import everything.
func TestImports_EveryRoomHasARule(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules []string // patterns of files
	for _, m := range regexp.MustCompile(`"\*\*/([^"]+/\*\.go)"`).FindAllStringSubmatch(string(config), -1) {
		rules = append(rules, m[1])
	}
	rooms := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		room, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if room = filepath.ToSlash(room); room != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "out" || d.Name() == "testdata") || slices.Contains(free, room) {
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil {
			return err
		}
		if slices.IndexFunc(files, func(f string) bool { return !strings.HasSuffix(f, "_test.go") }) < 0 {
			return nil
		}
		rooms++
		if !slices.ContainsFunc(rules, func(rule string) bool { ok, _ := pathpkg.Match(rule, room+"/x.go"); return ok }) {
			t.Errorf("%s has no rule for its imports: add one to .golangci.yml under depguard, and a line to docs/tables/rooms.md", room)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if rooms < 40 {
		t.Errorf("found %d folders with production code: there are more", rooms)
	}
}
