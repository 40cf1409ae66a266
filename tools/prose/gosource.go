package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// goPassages reads the comments of a Go file, and, outside tests, its texts: string literals of three words or more, which
// are errors, help, logs and what is printed.
func goPassages(path, text string) ([]passage, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	documented, cgo := docNames(file), preamble(file)
	var out []passage
	for _, group := range file.Comments {
		if group == cgo {
			from := files.Position(group.Pos()).Line
			var text strings.Builder
			for _, c := range group.List {
				text.WriteString(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), "/*"), "*/") + "\n")
			}
			for _, p := range slashComments(path, text.String()) {
				for i := range p.words {
					p.words[i].line += from - 1
				}
				out = append(out, p)
			}
			continue
		}
		var lines []comment
		for _, c := range group.List {
			at := files.Position(c.Pos())
			body := strings.TrimPrefix(c.Text, "//")
			if strings.HasPrefix(c.Text, "/*") {
				body = strings.TrimSuffix(c.Text[2:], "*/")
			}
			for n, part := range strings.Split(body, "\n") {
				lines = append(lines, comment{part, at.Line + n, 0, true})
			}
		}
		passages := passagesOf(path, lines)
		if name := documented[group]; name != "" && len(passages) > 0 {
			passages[0].name = name
		}
		out = append(out, passages...)
	}
	if strings.HasSuffix(path, "_test.go") {
		return out, nil
	}
	imports := map[*ast.BasicLit]bool{}
	for _, i := range file.Imports {
		imports[i.Path] = true
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if n.Tag != nil {
				out = append(out, tagPassages(path, n.Tag.Value, files.Position(n.Tag.Pos()).Line)...)
				imports[n.Tag] = true
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && !imports[n] {
				out = append(out, literalPassages(path, n.Value, files.Position(n.Pos()).Line)...)
			}
		}
		return true
	})
	return out, nil
}

// preamble gives the C that stands before import "C", or nil.
func preamble(file *ast.File) *ast.CommentGroup {
	for _, d := range file.Decls {
		if g, is := d.(*ast.GenDecl); is && g.Tok == token.IMPORT && len(g.Specs) == 1 {
			if s, is := g.Specs[0].(*ast.ImportSpec); is && s.Path.Value == `"C"` {
				if s.Doc != nil {
					return s.Doc
				}
				return g.Doc
			}
		}
	}
	return nil
}

// docNames gives the name that each docstring documents.
func docNames(file *ast.File) map[*ast.CommentGroup]string {
	out := map[*ast.CommentGroup]string{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			out[d.Doc] = d.Name.Name
		case *ast.GenDecl:
			for _, s := range d.Specs {
				var doc *ast.CommentGroup
				var name string
				switch s := s.(type) {
				case *ast.TypeSpec:
					doc, name = s.Doc, s.Name.Name
				case *ast.ValueSpec:
					doc, name = s.Doc, s.Names[0].Name
				}
				if doc == nil && len(d.Specs) == 1 {
					doc = d.Doc
				}
				out[doc] = name
			}
		}
	}
	delete(out, nil)
	return out
}

// described are the tags whose value is help: the description of a key in a JSON schema.
var described = []string{"jsonschema_description", "description", "help"}

func tagPassages(path, literal string, line int) []passage {
	value, err := strconv.Unquote(literal)
	if err != nil {
		return nil
	}
	var out []passage
	for _, key := range described {
		if help := reflect.StructTag(value).Get(key); help != "" {
			p := passage{path: path}
			p.addLine(help, line)
			out = append(out, p)
		}
	}
	return out
}

var (
	verb  = regexp.MustCompile(`%[-+#0]*[0-9.*]*\[?[0-9]*\]?[a-zA-Z%]`)
	three = regexp.MustCompile(`[A-Za-z]{2,}[,;:]? [a-zA-Z]+[,;:]? [a-zA-Z]{2,}`)
)

// literalPassages reads a string literal: paragraphs end at blank lines; an indented line, as of an example, is by itself,
// and of a command only its comment is read.
func literalPassages(path, literal string, line int) []passage {
	value, err := strconv.Unquote(literal)
	if err != nil || !three.MatchString(value) {
		return nil
	}
	raw := literal[0] == '`'
	var out []passage
	var open passage
	end := func() {
		if len(open.words) > 0 {
			out = append(out, open)
		}
		open = passage{path: path}
	}
	end()
	for n, text := range strings.Split(value, "\n") {
		at := line
		if raw {
			at += n
		}
		text = verb.ReplaceAllString(text, "%")
		indented := strings.HasPrefix(text, "  ") || strings.HasPrefix(text, "\t")
		switch {
		case strings.TrimSpace(text) == "":
			end()
		case indented:
			end()
			if i := strings.Index(text, "  # "); i > 0 {
				text = text[i+4:]
			}
			for _, cell := range gap.Split(strings.TrimSpace(text), -1) {
				open.addLine(cell, at)
				end()
			}
		default:
			if item := bullet.FindString(text); item != "" {
				end()
				text = text[len(item):]
			}
			open.addLine(text, at)
			if !raw {
				end() // a \n that somebody wrote ends a line of output
			}
		}
	}
	end()
	return out
}
