package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
)

// formats are files with names of stored data, which do not change.
var formats = []string{"experiment/store/old.go"}

// A name is an identifier, in the line where a file has it first.
type name struct {
	text string
	line int
}

// namesBelow gives the hits of R7 in a tree's Go and C: one for each name of a file. named are the paths to check; all if
// empty.
func (c *checker) namesBelow(root string, named []string) ([]hit, error) {
	var out []hit
	err := filesBelow(root, func(path, rel string) error {
		read := namesOf(rel)
		if read == nil || !within(rel, named) || slices.Contains(formats, rel) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, n := range read(string(text)) {
			if remedy := c.nameRemedy(n.text); remedy != "" {
				out = append(out, hit{rel, n.line, "R7", n.text, remedy})
			}
		}
		return nil
	})
	return out, err
}

// nameRemedy returns the word to use in a name; "" if the name is right.
func (c *checker) nameRemedy(name string) string {
	parts := nameParts(name)
	for _, e := range c.names {
		if len(e.uses(parts)) > 0 {
			return fmt.Sprintf("%s -> %s", strings.Join(e.pattern, " "), e.instead)
		}
	}
	return ""
}

func namesOf(rel string) func(text string) []name {
	switch {
	case strings.HasSuffix(rel, ".go"):
		return goNames
	case strings.HasSuffix(rel, ".c"), strings.HasSuffix(rel, ".h"):
		return cNames
	}
	return nil
}

func goNames(text string) []name {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), nil, 0)
	var out names
	for {
		pos, tok, word := s.Scan()
		switch tok {
		case token.EOF:
			return out.all
		case token.IDENT:
			out.add(word, file.Line(pos))
		}
	}
}

// notNames matches what has no names in C: comments, strings, characters, and lines that include a file.
var (
	notNames = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#\s*include[^\n]*`)
	cName    = regexp.MustCompile(`[A-Za-z_]\w*`)
)

func cNames(text string) []name {
	text = notNames.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) + " " })
	var out names
	for i, line := range strings.Split(text, "\n") {
		for _, word := range cName.FindAllString(line, -1) {
			out.add(word, i+1)
		}
	}
	return out.all
}

// names collects each name once.
type names struct {
	seen map[string]bool
	all  []name
}

func (n *names) add(text string, line int) {
	if n.seen[text] {
		return
	}
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	n.seen[text] = true
	n.all = append(n.all, name{text, line})
}

// namePart is a part of a name: capitals as in MSS, a word as in Slot or slot, or digits.
var namePart = regexp.MustCompile(`[A-Z]+(?:[a-z]+)?|[a-z]+|[0-9]+`)

// nameParts returns the words of a name, in lower case, such as http, slot and at for `HTTPSlot_at`.
func nameParts(name string) []string {
	var out []string
	for _, p := range namePart.FindAllString(name, -1) {
		if last := strings.LastIndexFunc(p, isCapital); last > 0 && last < len(p)-1 {
			out = append(out, strings.ToLower(p[:last])) // capitals before the capital that begins a word
			p = p[last:]
		}
		out = append(out, strings.ToLower(p))
	}
	return out
}

func isCapital(r rune) bool { return 'A' <= r && r <= 'Z' }
