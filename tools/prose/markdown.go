package main

import (
	"regexp"
	"strings"
)

var (
	heading = regexp.MustCompile(`^#{1,6}\s+(.*)$`)
	fence   = regexp.MustCompile("^\\s*(```|~~~)")
	item    = regexp.MustCompile(`^\s*([-*+]|[0-9]+[.)])\s+`)
	link    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	dashes  = regexp.MustCompile(`^\s*\|?[\s:|-]+\|[\s:|-]*$`)
	html    = regexp.MustCompile(`<!--.*?-->|</?[a-zA-Z][^>]*>`)
)

// markdownPassages reads a page: headings, paragraphs, items of lists, and tables cell by cell. Code between fences, and
// indented by four, is no prose.
func markdownPassages(path, text string) []passage {
	var out []passage
	var open passage
	end := func() {
		if len(open.words) > 0 {
			out = append(out, open)
		}
		open = passage{path: path}
	}
	end()
	fenced := ""
	inTable, wasTable, listsWords := false, false, false
	for i, line := range strings.Split(text, "\n") {
		n := i + 1
		inTable, wasTable = wasTable, false
		if m := fence.FindStringSubmatch(line); m != nil {
			switch fenced {
			case "":
				fenced = m[1]
			case m[1]:
				fenced = ""
			}
			end()
			continue
		}
		if fenced != "" {
			continue
		}
		line = html.ReplaceAllString(unlinked(line), "")
		switch {
		case strings.TrimSpace(line) == "":
			end()
		case strings.HasPrefix(line, "    ") && len(open.words) == 0:
			// code
		case heading.MatchString(line):
			end()
			open.title = true
			open.addLine(heading.FindStringSubmatch(line)[1], n)
			end()
		case strings.HasPrefix(strings.TrimSpace(line), "|"):
			end()
			if wasTable = true; dashes.MatchString(line) {
				continue
			}
			row := cells(line)
			if !inTable {
				last := strings.TrimSpace(row[len(row)-1])
				listsWords = last == avoided || last == avoidedInNames
			}
			if listsWords {
				row = row[:len(row)-1]
			}
			for _, cell := range row {
				open.addLine(cell, n)
				end()
			}
		default:
			if m := item.FindString(line); m != "" {
				end()
				line = line[len(m):]
			}
			open.addLine(strings.TrimLeft(line, "> "), n)
		}
	}
	end()
	return out
}

// unlinked leaves of a link its text.
func unlinked(line string) string { return link.ReplaceAllString(line, "$1") }

// cells gives the cells of a row of a table. A | in a code span, or behind a backslash, is no border.
func cells(row string) []string {
	row = strings.Trim(strings.TrimSpace(row), "|")
	var out []string
	from, code := 0, false
	for i := 0; i < len(row); i++ {
		switch {
		case row[i] == '`':
			code = !code
		case row[i] == '|' && !code && (i == 0 || row[i-1] != '\\'):
			out = append(out, row[from:i])
			from = i + 1
		}
	}
	return append(out, row[from:])
}
