package experiment

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// Found is an experiment file of a tree.
type Found struct {
	Path string
	Text []byte
	File *File
}

// Has tells whether the file is of the experiment with this id.
func (e *Found) Has(id string) bool { return e.File.ID == id || slices.Contains(e.File.IDs, id) }

// Tree reads the experiment files below a directory, part by part (PartOf). The first that cannot be read is an
// error.
func Tree(root string) ([]Found, error) {
	var out []Found
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		e := Found{Path: path}
		if e.Text, err = ReadFile(path); err != nil {
			return err
		}
		e.File, err = Parse(path, e.Text)
		out = append(out, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the experiments of %s: %w", root, err)
	}
	slices.SortStableFunc(out, func(a, b Found) int {
		return slices.Index(Parts(), PartOf(a.Path)) - slices.Index(Parts(), PartOf(b.Path))
	})
	return out, nil
}

// own is the part of what is of no paper.
const own = "Weir's own"

// parts tell by the directory of a file whose experiments they are.
var parts = []struct{ dir, title string }{
	{"fairq", "FairQ, FairSwitch, RWNDQ (paper 002 and the reports before it)"},
	{"sicc", "SICC (paper 003 and its longer reports)"},
	{"sdn-gcc", "SDN-GCC (paper 000)"},
	{"sed", "SED, RSED (paper 001)"},
	{"", own},
}

// Parts are the headings under which experiments are shown, in order.
func Parts() []string {
	var out []string
	for _, p := range parts {
		out = append(out, p.title)
	}
	return out
}

// PartOf gives the heading for an experiment file.
func PartOf(path string) string {
	dir := filepath.Base(filepath.Dir(path))
	for _, p := range parts {
		if p.dir == dir {
			return p.title
		}
	}
	return own
}
