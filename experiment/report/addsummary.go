package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"weir/experiment/result"
	"weir/internal/replace"
)

// AddToSummary adds the runs of a document to the summary that WriteSummary wrote of others: the runs of its schemes replace
// theirs, and those of all other schemes stay. Figures of bars and lines are drawn anew from both. The others stay as they
// are, because a summary does not have all that they show.
func AddToSummary(root string, doc *result.Document) (string, error) {
	path := filepath.Join(root, Place(doc))
	old, err := readLines(path)
	if err != nil {
		return "", fmt.Errorf("add to a summary: %w", err)
	}
	at := looked(doc)
	at.Table = old.IsTable()
	small, err := doc.Summary(at)
	if err != nil {
		return "", err
	}
	if err := added(old, small); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if err := writeDocument(path, small); err != nil {
		return "", err
	}
	small.Laws = doc.Laws
	return path, drawAgain(strings.TrimSuffix(path, ".json"), small)
}

func readLines(path string) (*result.Document, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	defer file.Close()
	return result.ReadJSON(file)
}

// added puts the runs of other schemes in old before those of a document. They must be of the same experiment and seeds.
func added(old, doc *result.Document) error {
	in := func(runs []*result.Run, scheme string) bool {
		return slices.ContainsFunc(runs, func(r *result.Run) bool { return r.Scheme == scheme })
	}
	kept := *old
	kept.Runs = slices.DeleteFunc(slices.Clone(old.Runs), func(r *result.Run) bool { return in(doc.Runs, r.Scheme) })
	if len(kept.Runs) == 0 {
		return nil
	}
	if !AsksFor(doc.File, &kept) || !slices.Equal(old.Set, doc.Set) {
		return errors.New("its runs are of another file or other --set: run all schemes again, and use --summary without --add")
	}
	if a, b := seedsOf(kept.Runs), seedsOf(doc.Runs); !slices.Equal(a, b) {
		return fmt.Errorf("its runs have the seeds %v, and those to add %v: a claim needs the same", a, b)
	}
	doc.Runs = append(kept.Runs, doc.Runs...)
	doc.Skipped = slices.DeleteFunc(slices.Concat(doc.Skipped, old.Skipped), func(s result.Skip) bool {
		return slices.ContainsFunc(doc.Runs, func(r *result.Run) bool { return r.Scheme == s.Scheme && r.World == s.World })
	})
	order := func(a, b result.Skip) int { return strings.Compare(a.World+" "+a.Scheme, b.World+" "+b.Scheme) }
	slices.SortStableFunc(doc.Skipped, order)
	doc.Skipped = slices.CompactFunc(doc.Skipped, func(a, b result.Skip) bool { return order(a, b) == 0 })
	return nil
}

func seedsOf(runs []*result.Run) []int64 {
	var out []int64
	for _, r := range runs {
		out = append(out, r.Seed)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// drawAgain draws the bars and lines of a summary.
func drawAgain(dir string, doc *result.Document) error {
	var names []string
	for _, a := range askedFigures(doc) {
		if len(a.Bars) > 0 || len(a.Line) > 0 {
			names = append(names, fileName(a.Name))
		}
	}
	for _, p := range askedPictures(doc, styles(doc)) {
		if !slices.Contains(names, p.name) {
			continue
		}
		svg, err := p.svg()
		if err != nil {
			return fmt.Errorf("draw %s: %w", p.name, err)
		}
		if err := replace.Bytes(filepath.Join(dir, p.name+".svg"), 0o644, svg); err != nil {
			return err
		}
	}
	return nil
}

// AsksFor reports whether a file asks for the runs of a document, as the document's own file did. Claims, figures, and the
// schemes and windows that the runs do not have do not count.
func AsksFor(file json.RawMessage, doc *result.Document) bool {
	before, errBefore := askedOf(doc.File, doc)
	now, errNow := askedOf(file, doc)
	return errBefore == nil && errNow == nil && reflect.DeepEqual(before, now)
}

// askedOf returns the part of a file that determines the runs of a document.
func askedOf(file json.RawMessage, doc *result.Document) (map[string]any, error) {
	var f map[string]any
	if err := json.Unmarshal(file, &f); err != nil {
		return nil, fmt.Errorf("read the file of %s as it was run: %w", doc.Experiment, err)
	}
	in := func(is func(*result.Run) bool) bool { return slices.ContainsFunc(doc.Runs, is) }
	for _, key := range []string{"claims", "figures", "notes", "paper", "ids", "worlds", "seeds"} {
		delete(f, key)
	}
	if lab, ok := f["lab"].(map[string]any); ok {
		delete(lab, "seeds")
	}
	if !in(func(r *result.Run) bool { return r.World == "lab" }) {
		delete(f, "lab")
	}
	if measure, ok := f["measure"].(map[string]any); ok {
		windows, _ := measure["windows"].(map[string]any)
		maps.DeleteFunc(windows, func(label string, _ any) bool {
			return !in(func(r *result.Run) bool { return hasWindow(r, label) })
		})
		if len(windows) == 0 {
			delete(measure, "windows")
		}
	}
	schemes, _ := f["schemes"].([]any)
	var ran []any
	for _, s := range schemes {
		scheme, _ := s.(map[string]any)
		delete(scheme, "worlds")
		if in(func(r *result.Run) bool { return r.Scheme == scheme["name"] }) {
			ran = append(ran, scheme)
		}
	}
	f["schemes"] = ran
	return f, nil
}

// hasWindow reports whether a run, or a run of a table, has metrics in a window.
func hasWindow(r *result.Run, label string) bool {
	if _, ok := r.Windows[label]; ok {
		return true
	}
	for path := range r.Figures {
		if strings.HasPrefix(path, label+".") {
			return true
		}
	}
	return false
}
