package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"weir/internal/promtest"
)

// tableRow is a metric of a table in docs/tables: name, kind, further label. Tests compare the tables with the code.
var tableRow = regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)` \\| (counter|gauge|histogram) \\| (?:`([a-z_]+)`)? *\\|")

// The board of the control plane uses metrics and labels that exist.
func TestBoard_ControlPlane(t *testing.T) {
	names := map[string]*promtest.Metric{}
	for of, label := range map[string]string{"controller": "controller", "agent": "agent", "bus": "server"} {
		text, err := os.ReadFile("../../docs/tables/" + of + "-metrics.md")
		if err != nil {
			t.Fatal(err)
		}
		rows := tableRow.FindAllStringSubmatch(string(text), -1)
		if len(rows) < 8 {
			t.Fatalf("%d metrics of %s", len(rows), of)
		}
		for _, row := range rows {
			m := &promtest.Metric{Kind: row[2], Labels: map[string][]string{label: nil}}
			if row[3] != "" {
				m.Labels[row[3]] = nil
			}
			names[row[1]] = m
			if row[2] == "histogram" {
				delete(names, row[1])
				names[row[1]+"_bucket"] = &promtest.Metric{Kind: row[2], Labels: map[string][]string{label: nil, "le": nil}}
			}
		}
	}
	const path = "../../deploy/grafana/weir-control.json"
	promtest.Board(t, path, names, 25)
	board, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range names { // counters that only rise are shown as rates
		if m.Kind == "counter" && regexp.MustCompile(name+`\b`).Match(board) && !regexp.MustCompile(`(rate|increase)\(`+name).Match(board) {
			t.Errorf("%s is shown without a rate", name)
		}
	}
	if !strings.Contains(string(board), "weir_controller_decision_seconds_bucket") {
		t.Error("the board does not show the time from a report to its commands")
	}
}
