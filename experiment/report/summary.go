package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"weir/experiment/claim"
	"weir/experiment/result"
	"weir/internal/replace"
)

// Place returns the path of a document's summary below a root: WORLD/ID.json, lab-sim for both worlds together,
// lab-ovs for a lab of Open vSwitches.
func Place(doc *result.Document) string {
	worlds := worldNames(doc)
	slices.Sort(worlds)
	var file struct{ Topology struct{ Switch string } }
	if json.Unmarshal(doc.File, &file) == nil && file.Topology.Switch == "ovs" && slices.Contains(worlds, "lab") {
		worlds = append(worlds, "ovs")
	}
	return filepath.Join(strings.Join(worlds, "-"), doc.Experiment+".json")
}

// WriteSummary writes the parts of an experiment's results that a repository stores: ROOT/WORLD/ID.json, and in
// ROOT/WORLD/ID the figures that its file asks for, as SVG. It returns the path of the first.
func WriteSummary(root string, doc *result.Document) (string, error) {
	path := filepath.Join(root, Place(doc))
	small, err := doc.Summary(looked(doc))
	if err != nil {
		return "", err
	}
	if err := writeDocument(path, small); err != nil {
		return "", err
	}
	return path, writeAsked(strings.TrimSuffix(path, ".json"), doc)
}

// writeDocument writes a summary, and makes the directory of its figures.
func writeDocument(path string, small *result.Document) error {
	var b bytes.Buffer
	if err := small.WriteLines(&b); err != nil {
		return err
	}
	if err := os.MkdirAll(strings.TrimSuffix(path, ".json"), 0o755); err != nil {
		return fmt.Errorf("make a directory for the summary: %w", err)
	}
	return replace.Bytes(path, 0o644, b.Bytes())
}

// writeAsked draws the figures that a file asks for into a directory without other files.
func writeAsked(dir string, doc *result.Document) error {
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	for _, name := range old {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return fmt.Errorf("remove the figures of an earlier summary: %w", err)
	}
	all := askedPictures(doc, styles(doc))
	for _, p := range all {
		svg, err := p.svg()
		if err != nil {
			return fmt.Errorf("draw %s: %w", p.name, err)
		}
		if err := replace.Bytes(filepath.Join(dir, p.name+".svg"), 0o644, svg); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the figures of an earlier summary: %w", err)
		}
	}
	return nil
}

// looked returns the parts of a document that its claims and figures use.
func looked(doc *result.Document) result.Looked {
	var at result.Looked
	see := func(names []string) {
		if len(names) > 1 {
			at.Windows = append(at.Windows, names[0]+"."+names[1]) // if it is a window; other names match no window
		}
	}
	for i := range doc.Claims {
		c, err := claim.Parse(doc.Claims[i].Claim)
		if err != nil {
			continue // it was never decided
		}
		for _, p := range c.Paths() {
			see(p.Names)
			path := strings.Join(p.Names, ".")
			if p.Distribution && !slices.Contains(at.Distributions, path) {
				at.Distributions = append(at.Distributions, path)
			}
			at.Metrics = append(at.Metrics, path)
		}
	}
	for _, a := range askedFigures(doc) {
		for _, path := range slices.Concat(a.Bars, a.Line, []string{a.CDF}) {
			see(strings.Split(path, "."))
			at.Metrics = append(at.Metrics, path)
		}
	}
	return at
}
