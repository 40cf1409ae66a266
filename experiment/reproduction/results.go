package reproduction

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"weir/experiment"
	"weir/experiment/report"
	"weir/experiment/result"
)

// section is an experiment and its committed results.
type section struct {
	file    *experiment.File
	link    string // to its file, from docs
	part    string
	columns []column
	labPage string // the page with tables of the lab, as a link from docs
}

// column has the results of one world in one summary.
type column struct {
	beside  bool // both worlds were run together, at the lab's scale
	ovs     bool // the lab's switches were Open vSwitches
	world   string
	doc     *result.Document // of this world alone
	command string           // the command that repeats it
	figures []figure
	stale   string // a note on runs that are not of today's file
}

type figure struct{ name, link string }

// kept are the directories of summaries, in the order of their columns.
var kept = []string{"sim", "lab-sim", "lab", "lab-ovs"}

func newSection(root string, laws *experiment.Laws, e *experiment.Found) (*section, error) {
	rel, err := filepath.Rel(root, e.Path)
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", e.Path, err)
	}
	s := &section{file: e.File, link: "../" + filepath.ToSlash(rel), part: laws.PartOf(e.Path)}
	if s.labPage, err = labTables(root, e.File.ID); err != nil {
		return nil, err
	}
	for _, dir := range kept {
		doc, err := readSummary(filepath.Join(root, resultsDir, dir, e.File.ID+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		doc.Laws = laws.Specs()
		stale, err := bringUp(doc, e.File)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Path, err)
		}
		figures, err := figuresOf(root, dir, e.File)
		if err != nil {
			return nil, err
		}
		for _, world := range slices.Sorted(maps.Keys(byWorld(doc))) {
			c := column{beside: dir == "lab-sim", ovs: dir == "lab-ovs", world: world, doc: byWorld(doc)[world], command: report.Command(doc), figures: figures, stale: stale}
			s.columns = append(s.columns, c)
			figures = nil // one picture shows both worlds
		}
	}
	return s, nil
}

// bringUp gives a document today's file, with the changes of its runs (--set). It returns a note where the runs are not of
// that file.
func bringUp(doc *result.Document, file *experiment.File) (string, error) {
	same, changed := "", file
	if len(doc.Set) > 0 {
		var err error
		if changed, err = file.With(doc.Set); err != nil { // the file no longer has those keys
			same, changed = toBeRunAgain, file
		}
	}
	now, err := json.Marshal(changed)
	if err != nil {
		return "", fmt.Errorf("write the file: %w", err)
	}
	if same == "" {
		if !report.AsksFor(now, doc) {
			same = toBeRunAgain
		}
	}
	doc.File = now // its axes are needed for claims
	return same, nil
}

func readSummary(path string) (*result.Document, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read a summary: %w", err)
	}
	defer file.Close()
	doc, err := result.ReadJSON(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return doc, nil
}

// byWorld splits a document into one for each world.
func byWorld(doc *result.Document) map[string]*result.Document {
	out := map[string]*result.Document{}
	for _, r := range doc.Runs {
		if out[r.World] == nil {
			one := *doc
			one.Runs = nil
			out[r.World] = &one
		}
		out[r.World].Runs = append(out[r.World].Runs, r)
	}
	return out
}

// figuresOf lists the figures next to a summary, in the order of the file.
func figuresOf(root, dir string, file *experiment.File) ([]figure, error) {
	paths, err := filepath.Glob(filepath.Join(root, resultsDir, dir, file.ID, "*.svg"))
	if err != nil {
		return nil, fmt.Errorf("look for figures: %w", err)
	}
	var out []figure
	for _, asked := range file.Figures {
		for _, p := range paths {
			name := strings.TrimSuffix(filepath.Base(p), ".svg")
			if name == asked.Name || len(asked.Rates) > 0 && strings.HasPrefix(name, asked.Name+"-") {
				out = append(out, figure{name, path.Join("..", resultsDir, dir, file.ID, name+".svg")})
			}
		}
	}
	return out, nil
}

const toBeRunAgain = "the file has changed since: run it again"
