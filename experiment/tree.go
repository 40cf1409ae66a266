package experiment

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// Found is an experiment file found in a directory tree.
type Found struct {
	Path string
	Text []byte
	File *File
}

// Has reports whether the file has the experiment with this id.
func (e *Found) Has(id string) bool { return e.File.ID == id || slices.Contains(e.File.IDs, id) }

// Tree reads the experiment files below a directory, ordered by part (PartOf). The first file that cannot be read
// is an error.
func (ls *Laws) Tree(root string) ([]Found, error) {
	var out []Found
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		e := Found{Path: path}
		if e.Text, err = ReadFile(path); err != nil {
			return err
		}
		e.File, err = ls.Parse(path, e.Text)
		out = append(out, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the experiments of %s: %w", root, err)
	}
	parts := ls.Parts()
	slices.SortStableFunc(out, func(a, b Found) int {
		return slices.Index(parts, ls.PartOf(a.Path)) - slices.Index(parts, ls.PartOf(b.Path))
	})
	return out, nil
}

// own is the part of the experiments that come from no paper.
const own = "Weir's own"

// Parts returns the headings under which experiments are shown, in the order of the laws.
func (ls *Laws) Parts() []string {
	var out []string
	for _, l := range ls.list {
		if l.Title != "" && !slices.Contains(out, l.Title) {
			out = append(out, l.Title)
		}
	}
	return append(out, own)
}

// PartOf returns the heading for an experiment file, from its directory.
func (ls *Laws) PartOf(path string) string {
	dir := filepath.Base(filepath.Dir(path))
	for _, l := range ls.list {
		if l.Title != "" && l.Folder == dir {
			return l.Title
		}
	}
	return own
}
