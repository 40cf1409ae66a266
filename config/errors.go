package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Error is one fault of a file, or of an option that changes it.
type Error struct {
	File    string
	Line    int    // 0: the whole file
	Option  string // "--set guests.cc=x": the option that the value came from; "": the file
	Key     string // traffic.mice.size
	Wrong   string // what is wrong
	Allowed string // what is allowed
}

// Error is one line: "FILE:LINE: key: what is wrong; what is allowed".
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Option != "":
		b.WriteString(e.Option + ": ")
	case e.File != "" && e.Line > 0: // a tree need not come from a file
		b.WriteString(e.File + ":" + strconv.Itoa(e.Line) + ": ")
	case e.File != "":
		b.WriteString(e.File + ": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Wrong)
	if e.Allowed != "" {
		b.WriteString("; " + e.Allowed)
	}
	return OneLine(b.String())
}

// Errors lists all faults of a file, one per line, in the order of the file.
type Errors []*Error

// MaxErrors limits the errors that are reported for one file.
const MaxErrors = 100

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// tidy sorts the errors by line and drops repetitions.
func (e Errors) tidy() Errors {
	slices.SortStableFunc(e, func(a, b *Error) int { return a.Line - b.Line })
	seen := map[string]bool{}
	var out Errors
	for _, err := range e {
		if line := err.Error(); !seen[line] && len(out) < MaxErrors {
			seen[line] = true
			out = append(out, err)
		}
	}
	return out
}

// OrNil returns nil for an empty list, and else the tidied list.
func (e Errors) OrNil() error {
	if len(e) == 0 {
		return nil
	}
	return e.tidy()
}

// Nearest returns the candidate most like word, or "" if none is near.
func Nearest(word string, candidates []string) string {
	best, at := "", 1+len(word)/3
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(word), c); d <= at && (best == "" || d < at) {
			best, at = c, d
		}
	}
	return best
}

// editDistance is the number of insertions, deletions and replacements between two words.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// OneOf describes what is allowed in place of word: a guess at the meant candidate, and the list of all.
func OneOf(word string, candidates []string) string {
	if len(candidates) == 0 {
		return "there are none"
	}
	sorted := slices.Sorted(slices.Values(candidates))
	list := strings.Join(sorted, ", ")
	if len(sorted) > 40 {
		list = strings.Join(sorted[:40], ", ") + ", ..."
	}
	if n := Nearest(word, sorted); n != "" && len(sorted) > 1 {
		return fmt.Sprintf("did you mean %s? allowed: %s", n, list)
	}
	return "allowed: " + list
}

// OneLine joins a text into one line.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Clip shortens a text of the user for a message.
func Clip(s string) string {
	s = OneLine(s)
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "..."
	}
	return s
}
