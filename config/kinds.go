package config

import "fmt"

// readBy names the command that reads each kind of file. A file without `kind` that has the keys of an experiment is one.
var readBy = map[string]string{
	"Switch":     "weir switch -f",
	"Controller": "weir controller -f",
	Experiment:   "weir run",
}

// Experiment is the one kind of file that does not begin with `kind`.
const Experiment = "experiment"

// OtherKind gives an error when a tree is a whole file of another known kind than wanted, and the command that reads
// that kind. It gives nil otherwise.
func OtherKind(name string, t *Tree, wanted string) *Error {
	kind := kindOf(t)
	command, known := readBy[kind]
	if !known || kind == wanted {
		return nil
	}
	article := "a"
	if kind == Experiment {
		article = "an"
	}
	return &Error{File: name, Wrong: fmt.Sprintf("this is %s %s file: use %s %s", article, kind, command, name)}
}

// kindOf gives what a file says that it is; "": it does not say.
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
