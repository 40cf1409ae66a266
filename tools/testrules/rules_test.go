// Package testrules checks the sources of all tests against rules that prevent errors which are hard to find.
package testrules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// elsewhere are the functions and methods that run their argument on another goroutine, mostly that of a
// namespace.
var elsewhere = []string{"Enter", "Must", "In", "Go", "within"}

// ends are the methods of *testing.T that end the calling goroutine. On any goroutine but the test's own, the test
// continues, or waits for ever.
var ends = []string{"Fatal", "Fatalf", "FailNow", "Skip", "Skipf", "SkipNow"}

// draws are the functions of math/rand/v2 that only make a source.
var draws = []string{"New", "NewPCG", "NewChaCha8", "NewZipf"}

func TestRules(t *testing.T) {
	files, found := 0, []string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "out" || d.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "/testnet/") || filepath.Ext(path) != ".go":
			return nil
		}
		files++
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		found = append(found, broken(set, f)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 200 {
		t.Errorf("read %d files: there are more", files)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// broken lists the rules that a file breaks.
func broken(set *token.FileSet, f *ast.File) (found []string) {
	say := func(at ast.Node, format string, a ...any) {
		p := set.Position(at.Pos())
		found = append(found, fmt.Sprintf("%s:%d: %s", strings.TrimPrefix(p.Filename, root+"/"), p.Line, fmt.Sprintf(format, a...)))
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if body, ok := n.Call.Fun.(*ast.FuncLit); ok {
				endsIn(body, say)
			}
		case *ast.CallExpr:
			if slices.Contains(elsewhere, nameOf(n.Fun)) {
				for _, a := range n.Args {
					if body, ok := a.(*ast.FuncLit); ok {
						endsIn(body, say)
					}
				}
			}
			of, name := methodOf(n)
			if of == "os" && (name == "Geteuid" || name == "Getuid") {
				say(n, "a test that needs root says so with testroot.Need, which make check counts")
			}
			if of == "rand" && imports(f, "math/rand/v2") && !slices.Contains(draws, name) {
				say(n, "rand.%s draws numbers that nobody can draw again: use testseed.New", name)
			}
			if of == "rand" && slices.Contains(draws, name) && calls(n, "UnixNano") {
				say(n, "a seed from the clock that no output shows: use testseed.New")
			}
		case *ast.AssignStmt:
			if id, ok := n.Lhs[0].(*ast.Ident); ok && strings.Contains(strings.ToLower(id.Name), "seed") && calls(n.Rhs[0], "UnixNano") {
				say(n, "a seed from the clock: use testseed.Seed, which prints it")
			}
		}
		return true
	})
	return found
}

// endsIn reports each call in body that would end its goroutine. It skips functions that a subtest runs.
func endsIn(body *ast.FuncLit, say func(ast.Node, string, ...any)) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		of, name := methodOf(call)
		if name == "Run" {
			return false
		}
		if slices.Contains([]string{"t", "tb", "b", "f"}, of) && slices.Contains(ends, name) {
			say(call, "%s.%s on another goroutine than the test's ends that one alone: return an error", of, name)
		}
		return true
	})
}

// nameOf returns the name of a function or method that is called.
func nameOf(f ast.Expr) string {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// methodOf splits a call x.name(...). For another call both are empty.
func methodOf(call *ast.CallExpr) (x, name string) {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		if id, ok := s.X.(*ast.Ident); ok {
			return id.Name, s.Sel.Name
		}
	}
	return "", ""
}

func calls(in ast.Node, name string) (does bool) {
	ast.Inspect(in, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && nameOf(call.Fun) == name {
			does = true
		}
		return !does
	})
	return does
}

func imports(f *ast.File, path string) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"`+path+`"` })
}

// Each rule finds code that breaks it.
func TestRules_Find(t *testing.T) {
	const source = `package x
import "math/rand/v2"
func Test(t *testing.T) {
	p.Must(t, func() error { t.Skip("x"); return nil })
	go func() { t.Fatal("x") }()
	l.Enter("a", func() error { return nil })
	rand.IntN(3)
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	t.Run("x", func(t *testing.T) { t.Fatal("x") })
	if os.Geteuid() != 0 {}
}`
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "x_test.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, b := range broken(set, f) {
		lines = append(lines, strings.Split(b, ":")[1])
	}
	if want := []string{"4", "5", "7", "8", "9", "9", "11"}; !slices.Equal(lines, want) {
		t.Errorf("found lines %v, want %v", lines, want)
	}
}
