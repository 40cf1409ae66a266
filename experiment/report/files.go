package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"weir/experiment/result"
	"weir/internal/replace"
)

// Names of the files that Write writes to its directory.
const (
	DocumentFile = "results.json"
	FlowsFile    = "flows.parquet"
	runsFile     = "runs.parquet"
	seriesFile   = "series.parquet"
	reportFile   = "report.html"
	figuresDir   = "figures"
)

// Write writes everything to dir, which it creates if it does not exist: results.json, flows.parquet,
// runs.parquet, series.parquet, figures/ and report.html. Each file is complete or absent. Write does not touch a
// directory with files of these names that Weir did not write: it returns an error. It returns the path of the
// report.
func Write(dir string, doc *result.Document) (string, error) {
	if err := CheckDir(dir); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := doc.WriteJSON(&b); err != nil {
		return "", err
	}
	if err := replace.Bytes(filepath.Join(dir, DocumentFile), 0o644, b.Bytes()); err != nil {
		return "", err
	}
	if err := writeWith(filepath.Join(dir, FlowsFile), doc.WriteFlows); err != nil {
		return "", err
	}
	if err := writeWith(filepath.Join(dir, runsFile), doc.WriteRuns); err != nil {
		return "", err
	}
	if err := writeWith(filepath.Join(dir, seriesFile), doc.WriteSeries); err != nil {
		return "", err
	}
	figures, err := Figures(filepath.Join(dir, figuresDir), doc)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, reportFile)
	if err := removeOld(dir, figures); err != nil {
		return "", err
	}
	return path, writeWith(path, func(w io.Writer) error { return HTML(w, doc, figures) })
}

// figureID matches the figures of a report that Weir wrote.
var figureID = regexp.MustCompile(`<figure id="([A-Za-z0-9.=_-]+)">`)

// removeOld removes the figures that the report to be replaced shows and the new one does not: of another point on
// an axis, or with another name.
func removeOld(dir string, figures []Figure) error {
	page, err := os.ReadFile(filepath.Join(dir, reportFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for an earlier report: %w", err)
	}
	for _, m := range figureID.FindAllSubmatch(page, -1) {
		name := string(m[1])
		if slices.ContainsFunc(figures, func(f Figure) bool { return f.Name == name }) {
			continue
		}
		for _, ext := range []string{".svg", ".png"} {
			if err := os.Remove(filepath.Join(dir, figuresDir, name+ext)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove a figure of an earlier report: %w", err)
			}
		}
	}
	return nil
}

// CheckDir makes dir and reports whether Write may use it, before an experiment runs: if the directory has files
// of Weir's names, they must be results that Weir wrote.
func CheckDir(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, figuresDir), 0o755); err != nil {
		return fmt.Errorf("make a directory for the results: %w", err)
	}
	stored, err := os.ReadFile(filepath.Join(dir, DocumentFile))
	if err == nil {
		if _, err := result.ReadJSON(bytes.NewReader(stored)); err != nil {
			return fmt.Errorf("%s in %s was not written by weir; choose another directory for the results", DocumentFile, dir)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for earlier results: %w", err)
	}
	for _, name := range []string{FlowsFile, runsFile, seriesFile, reportFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s has a %s that was not written by weir; choose another directory for the results", dir, name)
		}
	}
	return nil
}

func writeWith(path string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	return replace.Bytes(path, 0o644, b.Bytes())
}
