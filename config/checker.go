package config

import (
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

// Checker collects the errors of one file.
type Checker struct {
	File  string
	Whole string // describes the whole file: "the keys of an experiment: ..."
	Root  *Tree  // nil when there is no file
	Errs  Errors
	// Warning explains how to write a file of an earlier version in the newest one; "": the file has the newest version.
	Warning string

	version Version
	older   bool            // the file has the version before the newest
	meant   map[string]bool // paths that unknown keys may have meant
}

// Fail adds an error at path, a list of keys and indices from the top of the file.
func (c *Checker) Fail(path []string, wrong, allowed string) {
	if strings.HasSuffix(wrong, "?") { // it already names what was meant
		allowed = ""
	}
	e := &Error{File: c.File, Line: 1, Key: strings.Join(path, "."), Wrong: wrong, Allowed: allowed}
	if c.Root != nil {
		at := c.Root.Locate(path)
		e.Line, e.Option, e.Key = max(at.Line, 1), at.Option, c.Root.Show(path)
	}
	c.Errs = append(c.Errs, e)
}

// Given reports whether the file itself has a key.
func (c *Checker) Given(path ...string) bool {
	return c.Root != nil && c.Root.Find(path...) != nil
}

// Meant reports whether an unknown key may be a misspelling of the one at path. Then an error about a missing or empty key
// at path is not needed.
func (c *Checker) Meant(path []string) bool { return c.meant[strings.Join(path, ".")] }

// Validate checks the tree against a schema and explains every violation in Weir's own words. prefix is the path of the tree in
// the file's own tree.
func (c *Checker) Validate(s *validator.Schema, t *Tree, prefix ...string) {
	err := s.Validate(t.Plain())
	if err == nil {
		c.quantities(s, t, prefix)
		return
	}
	c.explainAll(s, t, err, prefix)
}
