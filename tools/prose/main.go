// Command prose checks that comments, errors, help, logs and pages are plain English. It knows a few rules (prose -rules);
// their words are in docs/tables/avoided-words.md. No comment switches it off.
//
// It reads comments of Go, C, SystemVerilog, YAML, make and scripts; string literals of three words or more in Go outside
// tests, and descriptions in struct tags. It reads Markdown outside code, and tables cell by cell. Of Go and C
// it reads the names, too.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	hits, err := run(os.Args[1:], os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	case hits > 0:
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) (int, error) {
	flags := flag.NewFlagSet("prose", flag.ContinueOnError)
	root := flags.String("C", ".", "check the tree in this `directory`")
	glossary := flags.String("glossary", "", "read the words from this `page` (default: docs/tables/avoided-words.md of the tree)")
	count := flags.Bool("count", false, "print a table of counts by rule and folder")
	asJSON := flags.Bool("json", false, "print the hits in JSON")
	explain := flags.Bool("rules", false, "explain the rules")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	if *explain {
		for _, r := range rules {
			fmt.Fprintf(out, "%s  %s\n    %s\n", r.id, r.text, r.example)
		}
		return 0, nil
	}
	if *glossary == "" {
		*glossary = filepath.Join(*root, "docs", "tables", "avoided-words.md")
	}
	entries, err := readGlossary(*glossary)
	if err != nil {
		return 0, err
	}
	passages, err := passagesBelow(*root)
	if err != nil {
		return 0, err
	}
	c := newChecker(entries)
	hits, err := c.namesBelow(*root, flags.Args())
	if err != nil {
		return 0, err
	}
	for i := range passages {
		if within(passages[i].path, flags.Args()) {
			hits = append(hits, c.check(&passages[i])...)
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), strings.Compare(a.Rule, b.Rule))
	})
	switch {
	case *asJSON:
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return len(hits), e.Encode(hits)
	case *count:
		return len(hits), printCounts(out, hits)
	}
	for _, h := range hits {
		if _, err := fmt.Fprintf(out, "%s:%d: %s: %s -> %s\n", h.Path, h.Line, h.Rule, cut(h.Sentence), h.Remedy); err != nil {
			return len(hits), err
		}
	}
	return len(hits), nil
}

// within reports whether a path is one of those that were named, or below one; all are where none was named.
func within(path string, named []string) bool {
	return len(named) == 0 || slices.ContainsFunc(named, func(n string) bool {
		n = strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(n), "./"), "/")
		return path == n || strings.HasPrefix(path, n+"/")
	})
}

// cut shortens a sentence to the width of a line.
func cut(sentence string) string {
	const most = 120
	if r := []rune(sentence); len(r) > most {
		return string(r[:most]) + "..."
	}
	return sentence
}

// printCounts prints how often each rule is broken in each folder.
func printCounts(out io.Writer, hits []hit) error {
	counts := map[string]map[string]int{}
	var rooms []string
	for _, h := range hits {
		for _, r := range []string{room(h.Path), "all"} {
			if counts[r] == nil {
				counts[r] = map[string]int{}
				rooms = append(rooms, r)
			}
			counts[r][h.Rule]++
			counts[r]["all"]++
		}
	}
	slices.Sort(rooms)
	if i := slices.Index(rooms, "all"); i >= 0 {
		rooms = append(slices.Delete(rooms, i, i+1), "all") // the sum stands last
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "folder\t")
	for _, r := range rules {
		fmt.Fprint(w, r.id, "\t")
	}
	fmt.Fprintln(w, "all\t")
	for _, room := range rooms {
		fmt.Fprint(w, room, "\t")
		for _, r := range rules {
			fmt.Fprint(w, counts[room][r.id], "\t")
		}
		fmt.Fprint(w, counts[room]["all"], "\t\n")
	}
	return w.Flush()
}
