package docs_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// untested are the items of the specification that no test needs, with the reason.
var untested = map[string]string{
	"FQ-19": "slips in a table, and a unit in the text",
	"GC-7":  "slip in a listing: we send other messages",
	"GO-5":  "names that drift in the listings",
	"RS-7":  "a remark: SED's window is the smaller one anyway",
	"SE-10": "deadlines of an experiment, of which both readings are run",
	"SE-11": "a claim of the paper: results are reported as measured",
	"SE-12": "says where deadlines come from: applications",
	"SE-13": "thresholds of a comparison, as printed",
	"SI-11": "slips in the descriptions of experiments",
	"SI-12": "the runs of an experiment",
}

var (
	specItem   = regexp.MustCompile(`(?m)^\*\*([A-Z]{2}-\d+)\*\*`)
	namedItem  = regexp.MustCompile(`\b[A-Z]{2}-\d+\b`)
	testOfItem = regexp.MustCompile(`(?m)^func Test\w+`)
	itemInTest = regexp.MustCompile(`(?:Test|_)([A-Z]{2})(\d+)`)
)

// itemsOf returns the items that a test file or a script of one names: XX-n in its text, XXn in the name of a test.
func itemsOf(text string) (items []string) {
	items = namedItem.FindAllString(text, -1)
	for _, f := range testOfItem.FindAllString(text, -1) {
		for _, m := range itemInTest.FindAllStringSubmatch(f, -1) {
			items = append(items, m[1]+"-"+m[2])
		}
	}
	return items
}

// Each item of the specification is named by a test or its script, or by the list above with a reason. (keys_laws_test.go has the texts of
// parameters, and they prove nothing.)
func TestSpec_EachItemHasATest(t *testing.T) {
	tested := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		script := strings.Contains(path, "/testdata/") && slices.Contains([]string{".script", ".txt", ".vec"}, filepath.Ext(name))
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "out"):
			return fs.SkipDir
		case d.IsDir() || name == "spec_test.go" || name == "keys_laws_test.go" || !script && !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, item := range itemsOf(string(text)) {
			tested[item] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	items := map[string]bool{}
	for page, text := range pages(t) {
		if filepath.Dir(page) != "spec" {
			continue
		}
		for _, m := range specItem.FindAllStringSubmatch(text, -1) {
			items[m[1]] = true
		}
	}
	for _, item := range slices.Sorted(maps.Keys(items)) {
		if reason := untested[item]; tested[item] == (reason != "") {
			t.Errorf("%s: tested: %v, reason for no test: %q", item, tested[item], reason)
		}
	}
	for item := range untested {
		if !items[item] {
			t.Errorf("%s is no item of docs/spec", item)
		}
	}
	if len(items) < 88 {
		t.Errorf("only %d items", len(items))
	}
}

// The names of tests and the text count, and longer numbers are other items.
func TestItemsOf(t *testing.T) {
	got := itemsOf("// FQ-12: text\nfunc TestRS1_RS22_Both(t *testing.T) {\nfunc TestGCC_None(t *testing.T) {")
	if want := []string{"FQ-12", "RS-1", "RS-22"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
