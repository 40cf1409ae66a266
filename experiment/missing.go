package experiment

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"weir/config"
)

// missingError says that there is no file of this name, and which one may be meant.
type missingError struct{ path string }

func (e *missingError) Error() string {
	text := fmt.Sprintf("no file %q", config.Clip(e.path))
	if meant := meant(e.path); len(meant) > 0 {
		return text + "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return text + "; name an experiment file" + example("experiments")
}

// Unwrap makes it fs.ErrNotExist.
func (e *missingError) Unwrap() error { return fs.ErrNotExist }

// meant lists up to 3 experiment files called like path: in its own directory, here, and in the tree ./experiments. A
// file of that very name comes before those of a similar one.
func meant(path string) []string {
	files := experimentFiles(filepath.Dir(path), ".", "experiments", "experiments/*")
	name := baseName(path)
	named := func(name string) []string {
		var out []string
		for _, f := range files {
			if strings.EqualFold(baseName(f), name) {
				out = append(out, f)
			}
		}
		return out[:min(len(out), 3)]
	}
	if exact := named(name); len(exact) > 0 {
		return exact
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.ToLower(baseName(f)))
	}
	// One letter of two, as in F1 and F9, is another experiment and no slip.
	if near := config.Nearest(name, names); near != "" && len(name) > 2 {
		return named(near)
	}
	return nil
}

// experimentFiles lists the YAML files of directories, which may be patterns, each once.
func experimentFiles(dirs ...string) []string {
	var out []string
	for _, dir := range dirs {
		found, _ := filepath.Glob(filepath.Join(dir, "*.yaml")) // a name that is no pattern matches nothing
		for _, f := range found {
			if !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// example names a file of the first directory that has one: ", such as experiments/incast.yaml".
func example(dirs ...string) string {
	for _, dir := range dirs {
		files := experimentFiles(dir, filepath.Join(dir, "*"))
		if i := slices.IndexFunc(files, func(f string) bool { return baseName(f) == "incast" }); i > 0 {
			files[0] = files[i]
		}
		if len(files) > 0 {
			return ", such as " + files[0]
		}
	}
	return ""
}

// baseName gives the name of a file without directory and ending.
func baseName(path string) string {
	name := filepath.Base(path)
	return strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), ".yml")
}
