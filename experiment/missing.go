package experiment

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"weir/config"
)

// missingError reports that there is no file with this name, and which file may be meant.
type missingError struct{ path string }

func (e *missingError) Error() string {
	text := fmt.Sprintf("no file %q", config.Clip(e.path))
	if meant := meant(e.path); len(meant) > 0 {
		return text + "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return text + "; name an experiment file" + example("experiments")
}

// Unwrap returns fs.ErrNotExist.
func (e *missingError) Unwrap() error { return fs.ErrNotExist }

// meant lists up to 3 experiment files with a name like path's: in its own directory, in the current directory,
// and in ./experiments. A file of exactly that name comes before files with similar names.
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
	// A difference of one letter in two, as between F1 and F9, names another experiment; it is not a typing error.
	if near := config.Nearest(name, names); near != "" && len(name) > 2 {
		return named(near)
	}
	return nil
}

// experimentFiles lists the YAML files of directories, which may be patterns. Each file is listed once.
func experimentFiles(dirs ...string) []string {
	var out []string
	for _, dir := range dirs {
		found, _ := filepath.Glob(filepath.Join(dir, "*.yaml")) // an invalid pattern matches nothing
		for _, f := range found {
			if !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// example returns a file of the first directory that has one: ", such as experiments/incast.yaml".
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

// baseName returns the name of a file without directory and extension.
func baseName(path string) string {
	name := filepath.Base(path)
	return strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), ".yml")
}
