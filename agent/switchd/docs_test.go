package switchd

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// madeBy heads the pages that `make doc-tables` writes.
const madeBy = "<!-- made by make doc-tables; do not edit -->\n\n"

// generated compares a page of docs/tables with the sources; with -update it writes the page.
func generated(t *testing.T, name, want string) {
	t.Helper()
	path := "../../docs/tables/" + name
	if *update {
		if err := os.WriteFile(path, []byte(madeBy+want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != madeBy+want {
		t.Errorf("%s differs from the sources (%v): run make doc-tables", path, err)
	}
}

// TestDocTables_Status writes the findings and the fields of weir status --json, with their comments in the sources.
func TestDocTables_Status(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Tables of weir status\n\nExplained in [status.md](../status.md).\n\n" +
		"## Findings\n\nThe worst finding is first. The state is the best that a port can have with the finding.\n\n" +
		"| word | state | meaning |\n|---|---|---|\n")
	for _, c := range checks {
		if c.means == "" {
			t.Errorf("%s: no meaning", c.word)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.word, c.state, c.means)
	}
	fmt.Fprintf(&b, "\nOf a switch only: `%s` (off): it is attached to no port. `%s` (off): the pinned tables are of another version of Weir.\n\n",
		wordStopped, wordLayout)
	b.WriteString("## JSON\n\n`weir status --json` prints `{\"switches\": [...]}`. Bytes, milliseconds (`_ms`), microseconds (`_us`) and seconds (`_s`) stand in the names.\n")
	comments := fieldComments(t, "status.go", "status_meter.go", "status_credits.go", "health.go")
	for _, of := range []any{Switch{}, Port{}, Finding{}, Rates{}, Credits{}, Parking{}, SignedSource{}} {
		kind := reflect.TypeOf(of)
		fmt.Fprintf(&b, "\n### %s\n\n| field | meaning |\n|---|---|\n", kind.Name())
		for i := range kind.NumField() {
			f := kind.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			text := comments[kind.Name()+"."+f.Name]
			if text == "" {
				t.Errorf("%s.%s has no comment", kind.Name(), f.Name)
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, text)
		}
	}
	b.WriteString("\n### Reasons of passed packets\n\nKeys of `passed`, and of the label `reason` of `weir_switch_port_passed_packets_total`.\n\n| key | in the text | meaning |\n|---|---|---|\n")
	for _, r := range reasons {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", r.Key, r.Text, r.Means)
	}
	generated(t, "status.md", b.String())
}

// fieldComments are the comments of struct fields, by "Type.Field".
func fieldComments(t *testing.T, files ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, id := range f.Names {
						out[spec.Name.Name+"."+id.Name] = strings.TrimSpace(f.Comment.Text())
					}
				}
			}
			return true
		})
	}
	return out
}

// processMetrics are those of Prometheus' client for Go, whose help texts are not Weir's.
var processMetrics = []struct{ name, kind, unit, help string }{
	{"process_cpu_seconds_total", "counter", "s", "CPU time of the process, user and system. Kernel programs are not included."},
	{"process_resident_memory_bytes", "gauge", "B", "Resident memory."},
	{"process_virtual_memory_bytes", "gauge", "B", "Address space."},
	{"process_virtual_memory_max_bytes", "gauge", "B", "Limit of the address space."},
	{"process_open_fds", "gauge", "files", "Open files."},
	{"process_max_fds", "gauge", "files", "Limit of open files."},
	{"process_start_time_seconds", "gauge", "s", "Start of the process, since 1970."},
	{"process_network_receive_bytes_total", "counter", "B", "Bytes received by the whole network namespace."},
	{"process_network_transmit_bytes_total", "counter", "B", "Bytes sent by the whole network namespace."},
}

// metricUnit returns the unit in a metric's name, or what it counts.
func metricUnit(name string) string {
	for _, u := range []struct{ in, unit string }{
		{"_bytes", "B"}, {"_seconds", "s"}, {"_packets_total", "packets"}, {"_connections", "connections"}, {"_segments_total", "segments"},
		{"_acks_total", "segments"}, {"_flows", "flows"}, {"_samples", "samples"}, {"_ports", "ports"},
	} {
		if strings.Contains(name, u.in) {
			return u.unit
		}
	}
	return ""
}

// metricTable is the table of TestMetrics_AreDocumented.
func metricTable() string {
	var b strings.Builder
	b.WriteString("# Table of metrics\n\nHow to scrape and use them: [metrics.md](../metrics.md). Counters of a port count since the port was first\n" +
		"attached and outlive a restart of `weir switch`; counters of a switch and of the process begin with the process.\n\n" +
		"| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n")
	row := func(d *prometheus.Desc, kind prometheus.ValueType) {
		m := regexp.MustCompile(`fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)".*variableLabels: \{([^}]*)\}`).FindStringSubmatch(d.String())
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m[1], map[prometheus.ValueType]string{gauge: "gauge", counter: "counter"}[kind],
			"`"+strings.ReplaceAll(m[3], ",", "`, `")+"`", metricUnit(m[1]), m[2])
	}
	row(buildInfo, gauge)
	row(readable.desc, readable.kind)
	for i := range switchMetrics {
		row(switchMetrics[i].desc, switchMetrics[i].kind)
	}
	for i := range portMetrics {
		row(portMetrics[i].desc, portMetrics[i].kind)
	}
	for _, p := range processMetrics {
		fmt.Fprintf(&b, "| `%s` | %s | | %s | %s |\n", p.name, p.kind, p.unit, p.help)
	}
	return b.String()
}
