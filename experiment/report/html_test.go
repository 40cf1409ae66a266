package report

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/experiment/result"
)

func html(t *testing.T, doc *result.Document, figures []Figure) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, doc, figures); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A title is shown as it is written, also with a dollar sign.
func TestInline_Title(t *testing.T) {
	got := string(inline(Figure{Title: "$1 a GB, ${0}", Height: 10, SVG: []byte(`<?xml?><svg width="1"><g/></svg>`)}))
	if !strings.Contains(got, `aria-label="$1 a GB, ${0}"`) {
		t.Error(got)
	}
}

// The page needs no other file and no network, and runs no code.
func TestHTML_StandsAlone(t *testing.T) {
	doc := syntheticDocument()
	figures, err := Figures(t.TempDir(), doc)
	if err != nil {
		t.Fatal(err)
	}
	page := html(t, doc, figures)
	if n := strings.Count(page, "<svg"); n != len(figures) {
		t.Errorf("%d of %d figures", n, len(figures))
	}
	for _, bad := range []string{"<script", "<link", "<img", "@import", "<?xml", "xlink:", "url("} {
		if strings.Contains(page, bad) {
			t.Errorf("there is %q in the page", bad)
		}
	}
	for _, ref := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if id := strings.TrimPrefix(ref[1], "#"); id == ref[1] || !strings.Contains(page, ` id="`+id+`"`) {
			t.Errorf("a reference leads to %q", ref[1])
		}
	}
	if hex := regexp.MustCompile(`#[0-9A-F]{6}`).FindString(page); hex != "" {
		t.Errorf("a figure keeps its own colour %s, which a dark page may swallow", hex)
	}
	for _, said := range []string{"fairq</b> was skipped in lab", "asked for 200us, measured 214us", "(12 of 12 runs)", "fairq was not asked for", "&#34;duration&#34;: &#34;20s&#34;"} {
		if !strings.Contains(page, said) {
			t.Errorf("the page does not say %q", said)
		}
	}
	for _, class := range []string{"confirmed", "refuted", "undecided"} {
		if !strings.Contains(page, `<td class="`+class+`">`) {
			t.Errorf("no claim is shown as %s", class)
		}
	}
	if page != html(t, doc, figures) {
		t.Error("the page is not the same a second time")
	}
}

// Names come from files of any origin.
func TestHTML_EscapesNames(t *testing.T) {
	evil := `<script>alert("x")</script>`
	r := run(evil, 1, map[string]string{evil: evil}, &result.Group{Flows: 1, FCT: &result.Distribution{N: 1}})
	r.Groups[evil], r.Unmet, r.Params = r.Groups["g"], result.UnmetTexts(evil, result.Note, evil), map[string]any{evil: evil}
	doc := &result.Document{
		Experiment: evil, Weir: evil, Runs: []*result.Run{r}, File: []byte(`{"paper":"<script>","notes":["<script>"]}`),
		Claims: []result.Claim{{Claim: evil, World: evil, Why: evil}}, Skipped: []result.Skip{{Scheme: evil, World: evil, Reason: evil}},
	}
	figure := Figure{Name: evil, Title: evil, Caption: evil, Of: evil, SVG: []byte(`<svg><text>x</text></svg>`)}
	if page := html(t, doc, []Figure{figure}); strings.Contains(page, "<script") {
		t.Error("a name became part of the page")
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "out")
	doc := syntheticDocument()
	doc.Runs = doc.Runs[:1]
	for range 2 { // the second time it replaces its own files
		path, err := Write(dir, doc)
		if err != nil {
			t.Fatal(err)
		}
		if path != filepath.Join(dir, "report.html") {
			t.Errorf("the report is at %s", path)
		}
	}
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"figures", "flows.parquet", "report.html", "results.json", "runs.parquet", "series.parquet"}; !slices.Equal(names, want) {
		t.Errorf("wrote %q, want %q", names, want)
	}
	stored, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	if back, err := result.ReadJSON(bytes.NewReader(stored)); err != nil || len(back.Runs) != 1 {
		t.Errorf("results.json: %v", err)
	}
}

// Figures of the previous report that are not in this one are removed; files that no report showed are kept.
func TestWrite_RemovesOldFigures(t *testing.T) {
	dir := t.TempDir()
	write := func(figures string) {
		doc := drawn(figures)
		for _, r := range doc.Runs {
			r.Detail = nil // only the figures that the file asks for are drawn
		}
		if _, err := Write(dir, doc); err != nil {
			t.Fatal(err)
		}
	}
	write(`[{"name":"one","bars":["all.drops"]},{"name":"two","bars":["all.drops"]}]`)
	mine := filepath.Join(dir, "figures", "mine.png")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(`[{"name":"two","bars":["all.drops"]},{"name":"three","bars":["all.drops"]}]`)
	var names []string
	entries, err := os.ReadDir(filepath.Join(dir, "figures"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"mine.png", "three.png", "three.svg", "two.png", "two.svg"}; !slices.Equal(names, want) {
		t.Errorf("there are %q, want %q", names, want)
	}
}

func TestWrite_LeavesOthersFilesAlone(t *testing.T) {
	for _, name := range []string{"report.html", "flows.parquet", "results.json"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Write(dir, &result.Document{Experiment: "x"})
		if err == nil || !strings.Contains(err.Error(), "choose another directory") {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
			t.Errorf("%s is now %q, %v", name, b, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(file, &result.Document{Experiment: "x"}); err == nil {
		t.Error("a file was taken for a directory")
	}
}
