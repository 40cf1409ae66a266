package config

import "fmt"

// readBy maps each kind of file to the command that reads it. A file without `kind` that has the keys of an experiment is one.
var readBy = map[string]string{
	"Switch":     "weir switch -f",
	"Controller": "weir controller -f",
	"Agent":      "weir agent -f",
	"Policy":     "weir policy apply",
	Experiment:   "weir run",
}

// Experiment is the one kind of file that does not begin with `kind`.
const Experiment = "experiment"

// OtherKind returns an error with the right command if a tree is a file of another known kind than wanted, and nil otherwise.
func OtherKind(name string, t *Tree, wanted string) *Error {
	kind := kindOf(t)
	command, known := readBy[kind]
	if !known || kind == wanted {
		return nil
	}
	article := "a"
	if kind == Experiment || kind == "Agent" {
		article = "an"
	}
	return &Error{File: name, Wrong: fmt.Sprintf("this is %s %s file: use %s %s", article, kind, command, name)}
}

// kindOf returns the kind of a file; "": not given.
func kindOf(t *Tree) string {
	if kind := t.Get("kind"); kind != nil {
		text, _ := kind.Value.(string)
		return text
	}
	if t.Get("topology") != nil && t.Get("traffic") != nil {
		return Experiment
	}
	return ""
}
