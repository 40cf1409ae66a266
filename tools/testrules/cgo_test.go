package testrules

import (
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestImports_LoadersHaveNoCgo: packages that load the kernel programs of a switch have no C code of ours, so that
// they build without a C compiler. The simulator's laws and the differential run use cgo.
func TestImports_LoadersHaveNoCgo(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", `{{if .CgoFiles}}{{.ImportPath}}{{end}}`,
		"./datapath/attach", "./datapath/fairq", "./datapath/fairq/edge", "./datapath/fairq/shim", "./datapath/mark", "./datapath/rto", "./agent/...")
	list.Dir = root
	list.Env = append(list.Environ(), "CGO_ENABLED=1")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.Lines(string(out)) {
		if strings.HasPrefix(pkg, "weir/") {
			t.Errorf("%s is cgo, and a loader links it", strings.TrimSpace(pkg))
		}
	}
}

// TestBuild_WithoutC: without a C compiler Weir builds, without the laws that are C. So files that are always built use no name that only
// files with cgo declare.
func TestBuild_WithoutC(t *testing.T) {
	without := build.Default
	without.CgoEnabled = false
	checked := 0
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); dir != root && (strings.HasPrefix(name, ".") || name == "out" || name == "testdata") {
			return filepath.SkipDir
		}
		p, err := without.ImportDir(dir, 0)
		if errors.As(err, new(*build.NoGoError)) {
			return nil
		}
		if err != nil || len(p.IgnoredGoFiles) == 0 {
			return err
		}
		checked++
		set := token.NewFileSet()
		always, err := parse(set, dir, p.GoFiles)
		if err != nil {
			return err
		}
		others, err := parse(set, dir, p.IgnoredGoFiles)
		if err != nil {
			return err
		}
		declared := map[string]bool{}
		for _, f := range others {
			for name := range f.Scope.Objects {
				declared["undefined: "+name] = true
			}
		}
		check := types.Config{Importer: noImports{}, Error: func(err error) {
			if e := (types.Error{}); errors.As(err, &e) && declared[e.Msg] {
				t.Errorf("%s: %s without cgo", set.Position(e.Pos), e.Msg)
			}
		}}
		_, _ = check.Check(dir, set, always, nil)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 5 {
		t.Errorf("checked %d packages with files that need cgo: there are more", checked)
	}
}

func parse(set *token.FileSet, dir string, names []string) (files []*ast.File, err error) {
	for _, name := range names {
		f, err := parser.ParseFile(set, filepath.Join(dir, name), nil, 0)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// noImports imports nothing: what other packages declare is then not checked.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }
