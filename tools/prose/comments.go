package main

import (
	"regexp"
	"strings"
)

// A comment is one line of a comment, without its mark.
type comment struct {
	text   string
	line   int
	column int
	alone  bool // nothing but blanks before it on its line
}

var (
	gap    = regexp.MustCompile(`\s{2,}|\t`)
	ruler  = regexp.MustCompile(`^[-=*# ]*$`)
	label  = regexp.MustCompile(`^-{2,}\s*(.*?)\s*-{2,}$`)
	marker = regexp.MustCompile(`^(SPDX-License-Identifier|go:|nolint|\+build|shellcheck|Code generated|yaml-language-server|clang-format|!)`)
	bullet = regexp.MustCompile(`^([-*•]|[0-9]+[.)])\s+`)
)

// passagesOf makes passages of consecutive lines of comments: paragraphs; items of lists; and the cells of lines that
// are set in columns, that is indented, or with a wide gap.
func passagesOf(path string, lines []comment) []passage {
	var out []passage
	var open *passage
	end := func() {
		if open != nil && len(open.words) > 0 {
			out = append(out, *open)
		}
		open = nil
	}
	for i, c := range lines {
		if i > 0 && !follows(lines[i-1], c) {
			end()
		}
		text := strings.TrimSpace(c.text)
		indented := len(c.text)-len(strings.TrimLeft(c.text, " \t")) > 1 || strings.HasPrefix(c.text, "\t")
		switch {
		case text == "" || ruler.MatchString(text) || marker.MatchString(text):
			end()
		case label.MatchString(text):
			end()
			p := passage{path: path, title: true}
			p.addLine(label.FindStringSubmatch(text)[1], c.line)
			out = append(out, p)
		case gap.MatchString(text):
			end()
			for _, cell := range gap.Split(text, -1) {
				p := passage{path: path}
				p.addLine(cell, c.line)
				out = append(out, p)
			}
			// The last cell may go on below it.
			if n := len(out); n > 0 {
				open = &passage{path: path, comment: true, words: out[n-1].words}
				out = out[:n-1]
			}
		default:
			item := bullet.FindString(text)
			if item != "" || indented && open == nil {
				end()
			}
			if open == nil {
				open = &passage{path: path, comment: true}
			}
			open.addLine(text[len(item):], c.line)
		}
	}
	end()
	return out
}

// follows reports whether the comment c goes on with the sentence of the one before it.
func follows(before, c comment) bool {
	if c.line != before.line+1 || !c.alone {
		return false
	}
	return before.alone || before.column == c.column
}

// hashComments reads the comments of YAML, make, shell, Python: from # to the end of the line.
func hashComments(path, text string) []passage {
	var lines []comment
	for i, line := range strings.Split(text, "\n") {
		at := hashAt(line)
		if at < 0 {
			continue
		}
		lines = append(lines, comment{strings.TrimLeft(line[at:], "#"), i + 1, at, strings.TrimSpace(line[:at]) == ""})
	}
	return passagesOf(path, lines)
}

// spoken are the keys of YAML whose values people read.
var spoken = regexp.MustCompile(`(?:^|[\s{,-])(?:summary|description|note|title|cause): "((?:[^"\\]|\\.)*)"`)

// yamlPassages reads the comments of YAML, and the values that people read.
func yamlPassages(path, text string) []passage {
	out := hashComments(path, text)
	for i, line := range strings.Split(text, "\n") {
		for _, m := range spoken.FindAllStringSubmatch(line, -1) {
			p := passage{path: path}
			p.addLine(m[1], i+1)
			out = append(out, p)
		}
	}
	return out
}

// hashAt gives the place where the comment of a line begins, or -1. A # inside quotation marks, or behind anything but a
// blank, begins none.
func hashAt(line string) int {
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		switch ch := line[i]; {
		case quote != 0:
			if ch == quote {
				quote = 0
			}
		case ch == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t'):
			if strings.HasPrefix(line[i:], "#!") && i == 0 {
				return -1
			}
			return i
		case (ch == '"' || ch == '\'') && (i == 0 || strings.IndexByte(" \t:[{(,=", line[i-1]) >= 0):
			quote = ch
		}
	}
	return -1
}

// slashComments reads the comments of C and of what is written like it: from // to the end of the line, and /* ... */.
func slashComments(path, text string) []passage {
	var lines []comment
	line, start := 1, 0 // start: of the line
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\n':
			line++
			start = i + 1
		case text[i] == '"' || text[i] == '\'':
			i = literalEnd(text, i)
		case strings.HasPrefix(text[i:], "//"):
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				end = len(text) - i
			}
			lines = append(lines, comment{text[i+2 : i+end], line, i - start, strings.TrimSpace(text[start:i]) == ""})
			i += end - 1
		case strings.HasPrefix(text[i:], "/*"):
			end := strings.Index(text[i+2:], "*/")
			if end < 0 {
				end = len(text) - i - 2
			}
			alone := strings.TrimSpace(text[start:i]) == ""
			for n, part := range strings.Split(text[i+2:i+2+end], "\n") {
				lines = append(lines, comment{strings.TrimPrefix(strings.TrimLeft(part, " \t"), "*"), line + n, i - start, alone || n > 0})
			}
			line += strings.Count(text[i:i+2+end], "\n")
			i += end + 3
		}
	}
	return passagesOf(path, lines)
}

// literalEnd gives the place of the quotation mark that ends the literal that begins at from; a literal ends with its line.
func literalEnd(text string, from int) int {
	for i := from + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[from]:
			return i
		case '\n':
			return i - 1
		}
	}
	return len(text)
}
