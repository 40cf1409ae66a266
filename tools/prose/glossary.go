package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// An entry is a word that is avoided, and the one that is used.
type entry struct {
	rule    string
	pattern pattern
	allowed []pattern // uses of it that are right
	instead string
}

// A pattern is words in lower case. "…" stands for up to three words.
type pattern []string

// avoided heads the column of the words to avoid. It is read as code, on all pages. avoidedInNames heads the column of the
// words to avoid in names of Go and C.
const avoided, avoidedInNames = "not", "not in names"

// readGlossary reads the tables of a page whose last column is "not": with private words if the first is "word" (R2), and
// with fillers otherwise (R4). A last column "not in names" has words of names (R7).
func readGlossary(path string) ([]entry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the glossary: %w", err)
	}
	var out []entry
	rule := ""
	for i, line := range strings.Split(string(text), "\n") {
		row := cells(line)
		if !strings.HasPrefix(line, "|") {
			rule = ""
			continue
		}
		first, not := strings.TrimSpace(row[0]), strings.TrimSpace(row[len(row)-1])
		switch {
		case dashes.MatchString(line) || not == "":
		case not == avoided && first == "word":
			rule = "R2"
		case not == avoided:
			rule = "R4"
		case not == avoidedInNames:
			rule = "R7"
		case rule != "":
			entries, err := readEntries(rule, first, not)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
			out = append(out, entries...)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no table whose last column is %s", path, avoided)
	}
	return out, nil
}

// readEntries reads the entries of a cell, as `lot (but a lot), lots`.
func readEntries(rule, instead, not string) ([]entry, error) {
	var out []entry
	for not != "" {
		end := strings.IndexAny(not, ",(")
		if end < 0 {
			end = len(not)
		}
		e := entry{rule: rule, pattern: newPattern(not[:end]), instead: instead}
		if not = not[end:]; strings.HasPrefix(not, "(") {
			inside, rest, closed := strings.Cut(not[1:], ")")
			uses, but := strings.CutPrefix(inside, "but ")
			if !closed || !but {
				return nil, fmt.Errorf("entry %q: want (but ..., ...) behind it, got %q", strings.Join(e.pattern, " "), not)
			}
			for use := range strings.SplitSeq(uses, ",") {
				e.allowed = append(e.allowed, newPattern(use))
			}
			not = rest
		}
		if len(e.pattern) == 0 {
			return nil, fmt.Errorf("an empty entry before %q", not)
		}
		out = append(out, e)
		not = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(not), ","))
	}
	return out, nil
}

func newPattern(text string) pattern { return strings.Fields(strings.ToLower(text)) }

// find gives the places where the pattern begins and ends in words, from `from` on; -1 where it is not.
func (p pattern) find(words []string, from int) (begin, end int) {
	for begin := from; begin < len(words); begin++ {
		if end := p.at(words, begin); end >= 0 {
			return begin, end
		}
	}
	return -1, -1
}

func (p pattern) at(words []string, i int) int {
	if i >= len(words) || words[i] == "" || words[i] != p[0] {
		return -1
	}
	for n := 1; n < len(p); n++ {
		i++
		if p[n] == "…" {
			n++
			found := -1
			for j := i; j <= min(i+3, len(words)-1); j++ {
				if words[j] == p[n] {
					found = j
					break
				}
			}
			if i = found; i < 0 {
				return -1
			}
			continue
		}
		if i >= len(words) || words[i] != p[n] {
			return -1
		}
	}
	return i + 1
}

// uses gives the places where words have the entry's word in a use that is not allowed.
func (e *entry) uses(words []string) []int {
	var out []int
	for at := 0; ; {
		begin, end := e.pattern.find(words, at)
		if begin < 0 {
			return out
		}
		if !slices.ContainsFunc(e.allowed, func(a pattern) bool { return a.covers(words, begin, end) }) {
			out = append(out, begin)
		}
		at = end
	}
}

// covers reports whether the pattern is found around the words from begin to end.
func (p pattern) covers(words []string, begin, end int) bool {
	for i := max(0, begin-len(p)); i <= begin; i++ {
		if to := p.at(words, i); to >= end {
			return true
		}
	}
	return false
}
