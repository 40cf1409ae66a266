package report

import (
	"strings"
	"testing"

	"weir/experiment/result"
)

// A summary has statistics of windows, not what they were calculated from: those of another window are not what the
// file asks for. A window that the summary does not have cannot be wrong.
func TestAsksFor_WindowsOfTheSummary(t *testing.T) {
	file := func(windows string) []byte {
		return []byte(`{"duration":"20s","measure":{"windows":{` + windows + `}},"schemes":[{"name":"fairq"}]}`)
	}
	with := run("fairq", 1, nil, &result.Group{})
	with.Windows = map[string]result.Window{"loaded": {Groups: map[string]*result.Group{"g": {}}}}
	table := run("fairq", 1, nil, &result.Group{})
	table.Groups, table.Figures = nil, map[string]float64{"g.drops": 1, "loaded.g.drops": 2}
	for name, r := range map[string]*result.Run{"runs": with, "table": table} {
		doc := &result.Document{File: file(`"loaded":["2s","19s"],"late":["10s","19s"]`), Runs: []*result.Run{r}}
		for windows, want := range map[string]bool{
			`"loaded":["2s","19s"],"late":["10s","19s"]`:  true,
			`"loaded":["2s","19s"],"early":["0s","2s"]`:   true,
			`"loaded":["2s","19s"],"late":["15s","19s"]`:  true,
			`"loaded":["5s","19s"],"late":["10s","19s"]`:  false,
			`"loaded":["2s","190s"],"late":["10s","19s"]`: false,
		} {
			if got := AsksFor(file(windows), doc); got != want {
				t.Errorf("%s, windows %s: %v, want %v", name, windows, got, want)
			}
		}
	}
}

// Runs are not put next to those of another window, and a scheme that was skipped this time is still known as skipped.
func TestAdded(t *testing.T) {
	doc := func(window, scheme, skipped string) *result.Document {
		r := run(scheme, 1, nil, &result.Group{})
		r.Windows = map[string]result.Window{"loaded": {Groups: map[string]*result.Group{"g": {}}}}
		return &result.Document{
			File: []byte(`{"measure":{"windows":{"loaded":` + window + `}},"schemes":[{"name":"droptail"},{"name":"fairq"},{"name":"sed"}]}`),
			Runs: []*result.Run{r}, Skipped: []result.Skip{{Scheme: skipped, World: "lab", Reason: "the law exists in sim only"}},
		}
	}
	old := doc(`["2s","19s"]`, "droptail", "gcc")
	if err := added(old, doc(`["5s","19s"]`, "fairq", "sed")); err == nil || !strings.Contains(err.Error(), "run all schemes again") {
		t.Errorf("another window: %v", err)
	}
	both := doc(`["2s","19s"]`, "fairq", "sed")
	if err := added(old, both); err != nil || len(both.Runs) != 2 {
		t.Fatalf("%d runs, %v", len(both.Runs), err)
	}
	if len(both.Skipped) != 2 {
		t.Errorf("skipped are %v, want gcc and sed", both.Skipped)
	}
}
