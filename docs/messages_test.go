package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTroubleshooting_QuotesMessagesOfTheSources checks each list item of troubleshooting.md that begins with a quoted
// message: the message stands in a string of the sources, but for "..." and for words that are filled in.
func TestTroubleshooting_QuotesMessagesOfTheSources(t *testing.T) {
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					all.WriteString(s + "\n")
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sources := regexp.MustCompile(`%[a-z]`).ReplaceAllString(all.String(), "\x00")
	page, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	filled := regexp.MustCompile(`\.\.\.|\b(?:N|M|NAME|swp9|user 0|to 0|rate|switch|controller)\b|/run/weir`)
	messages := regexp.MustCompile("(?m)^\\* `([^`]+)`").FindAllStringSubmatch(string(page), -1)
	for _, m := range messages {
		if m[1] == "operation not permitted" { // the kernel's text
			continue
		}
		for _, part := range filled.Split(m[1], -1) {
			part = strings.Trim(part, " ,:()/")
			if len(part) > 6 && !strings.Contains(sources, part) {
				t.Errorf("troubleshooting.md quotes %q: no string of the sources has %q", m[1], part)
			}
		}
	}
	if len(messages) < 10 {
		t.Errorf("only %d messages", len(messages))
	}
}
