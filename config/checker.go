package config

import (
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

// Checker collects what is wrong with one file.
type Checker struct {
	File  string
	Whole string // what the whole file is: "the keys of an experiment: ..."
	Root  *Tree  // nil when there is no file
	Errs  Errors
	// Warning says of a file of an earlier version what is to be written instead; "": it is of the newest.
	Warning string

	version Version
	older   bool            // the file is of the version before
	meant   map[string]bool // paths that unknown keys may have meant
}

// Fail notes an error at path, a list of keys and indices from the top of the file.
func (c *Checker) Fail(path []string, wrong, allowed string) {
	if strings.HasSuffix(wrong, "?") { // it says already what was meant
		allowed = ""
	}
	e := &Error{File: c.File, Line: 1, Key: strings.Join(path, "."), Wrong: wrong, Allowed: allowed}
	if c.Root != nil {
		at := c.Root.Locate(path)
		e.Line, e.Option, e.Key = max(at.Line, 1), at.Option, c.Root.Show(path)
	}
	c.Errs = append(c.Errs, e)
}

// Given tells whether the file itself says something of a key.
func (c *Checker) Given(path ...string) bool {
	return c.Root != nil && c.Root.Find(path...) != nil
}

// Meant tells whether an unknown key was perhaps meant to be the one at path: that it is missing, or
// nothing, needs not be said then.
func (c *Checker) Meant(path []string) bool { return c.meant[strings.Join(path, ".")] }

// Validate checks the tree against a schema and explains every violation in our words. prefix is
// where the tree stands in the file's own tree.
func (c *Checker) Validate(s *validator.Schema, t *Tree, prefix ...string) {
	err := s.Validate(t.Plain())
	if err == nil {
		c.quantities(s, t, prefix)
		return
	}
	c.explainAll(s, t, err, prefix)
}
