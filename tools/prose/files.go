package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// readers are the kinds of files that are read, by how their names end. A new language is one line.
var readers = []struct {
	ends []string
	read func(path, text string) ([]passage, error)
}{
	{[]string{".go"}, goPassages},
	{[]string{".c", ".h", ".cc", ".sv", ".v"}, plainly(slashComments)},
	{[]string{".yaml", ".yml"}, plainly(yamlPassages)},
	{[]string{".py", ".service", "Makefile", "Dockerfile", "postinst", "prerm", "postrm", ".tcl", ".sdc"}, plainly(hashComments)},
	{[]string{".md"}, plainly(markdownPassages)},
}

func plainly(read func(path, text string) []passage) func(string, string) ([]passage, error) {
	return func(path, text string) ([]passage, error) { return read(path, text), nil }
}

// skipped are folders without prose of ours: built, recorded, or copied for tests.
var skipped = []string{"out", "testdata", "LICENSES", "node_modules"}

// passagesBelow reads all files of a tree.
func passagesBelow(root string) ([]passage, error) {
	var out []passage
	err := filesBelow(root, func(path, rel string) error {
		passages, err := passagesOfFile(path, rel)
		out = append(out, passages...)
		return err
	})
	return out, err
}

// filesBelow calls visit with each file of a tree: its path, and its path below root.
func filesBelow(root string, visit func(path, rel string) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".ci" || slices.Contains(skipped, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return visit(path, filepath.ToSlash(rel))
	})
}

func passagesOfFile(path, rel string) ([]passage, error) {
	if readerOf(rel) == nil && !holdsScripts(rel) {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return readText(rel, string(text))
}

// readText reads one file by its kind. A file without a known ending is read if it is a script.
func readText(rel, text string) ([]passage, error) {
	if read := readerOf(rel); read != nil {
		return read(rel, text)
	}
	if holdsScripts(rel) && strings.HasPrefix(text, "#!") {
		return hashComments(rel, text), nil
	}
	return nil, nil
}

func readerOf(rel string) func(path, text string) ([]passage, error) {
	for _, r := range readers {
		if slices.ContainsFunc(r.ends, func(end string) bool { return strings.HasSuffix(rel, end) }) {
			return r.read
		}
	}
	return nil
}

// holdsScripts reports whether a file's folder has scripts, whose names do not end in a kind.
func holdsScripts(rel string) bool {
	return strings.HasPrefix(rel, "scripts/") || strings.HasPrefix(rel, ".ci/") || strings.HasPrefix(rel, "deploy/deb/")
}

// room gives the folder that a file's hits are counted under: the first one of its path; of large rooms the second too.
func room(path string) string {
	parts := strings.Split(path, "/")
	switch {
	case len(parts) == 1:
		return "."
	case len(parts) > 2 && slices.Contains([]string{"agent", "datapath", "experiment"}, parts[0]):
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}
