package promtest

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Row is a metric in a table for people.
type Row struct {
	Name, Kind, Label, Help string // Label: in addition to those of all rows; "": none
}

// Kind returns the kind of a metric with one value.
func Kind(counter bool) string {
	if counter {
		return "counter"
	}
	return "gauge"
}

var metricName = regexp.MustCompile(`^weir_[a-z_]+$`)

// Table compares a page of docs/tables with the metrics of the code, and writes it if update is set. intro is the text above it.
func Table(t *testing.T, path, title, intro string, rows []Row, update bool) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- made by make doc-tables; do not edit -->\n\n# %s\n\n%s\n\n| metric | type | further label | meaning |\n|---|---|---|---|\n", title, intro)
	for _, r := range rows {
		if (r.Kind == "counter") != strings.HasSuffix(r.Name, "_total") || !metricName.MatchString(r.Name) || !strings.HasSuffix(r.Help, ".") {
			t.Errorf("%+v", r)
		}
		if r.Label != "" {
			r.Label = "`" + r.Label + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Name, r.Kind, r.Label, r.Help)
	}
	if update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a page for everybody
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != b.String() {
		t.Errorf("%s differs from the code (%v): run make doc-tables", path, err)
	}
}
