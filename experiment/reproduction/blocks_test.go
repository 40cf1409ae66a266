package reproduction

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment/result"
)

const pageWithBlocks = `# Page

<!-- results of X1 -->

1 run, weir v0.

| scheme | drops |
|---|---|
| ecn | 99 |

**The paper's claims**: 1 confirmed, 0 refuted, 0 undecided.

| | where | measured | asked | |
|---|---|---|---|---|
| X | | 99 | <= 100 | confirmed |

**What this project asks**: 0 confirmed, 1 refuted, 0 undecided.

| | where | measured | asked | |
|---|---|---|---|---|
| Y | | 99 | <= 9 | **refuted** [1] |

Causes:

1. it is so

* something was not as asked (1 of 1 run)

<!-- end of results -->

prose

<!-- results of X3 -->

kept: 1 confirmed

<!-- end of results -->
`

// A verdict stands on one page. Tables on other pages come from the same results, or lose theirs.
func TestPages_OneVerdict(t *testing.T) {
	for world, want := range map[string][]string{
		"sim":     {"| ecn | 21.5 (21..22) |", "Claims: [REPRODUCTION.md](../REPRODUCTION.md#x1).", "kept: 1 confirmed", "prose"},
		"lab,sim": {"| ecn | 99 |\n\n* something was not as asked (1 of 1 run)\n\nClaims: [REPRODUCTION.md](../REPRODUCTION.md#x1).", "kept: 1 confirmed", "prose"},
	} {
		root := repository(t, world, fileText)
		name := map[string]string{"sim": "fairq-simulated.md", "lab,sim": "fairq-experiments.md"}[world]
		file := filepath.Join(root, "docs/tables", name)
		text := pageWithBlocks
		for range 2 { // the second time nothing changes
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			pages, err := Pages(root, laws.All())
			if err != nil {
				t.Fatal(err)
			}
			got := string(pages["docs/tables/"+name])
			for _, w := range want {
				if !strings.Contains(got, w) {
					t.Errorf("%s: %s does not say %q:\n%s", world, name, w, got)
				}
			}
			if strings.Contains(got, "refuted") || strings.Contains(got, "it is so") {
				t.Errorf("%s: %s has verdicts:\n%s", world, name, got)
			}
			if text != pageWithBlocks && got != text {
				t.Errorf("%s: it is another page the second time:\n%s", world, got)
			}
			text = got
		}
	}
}

// README.md says what results/lab-sim/incast.json has.
func TestPages_IncastFigures(t *testing.T) {
	doc, err := readSummary("../../results/lab-sim/incast.json")
	if err != nil {
		t.Fatal(err)
	}
	of := func(world, scheme, cc string, path ...string) float64 {
		var values []float64
		for _, r := range doc.Runs {
			if v, ok := r.Metric(path); ok && r.World == world && r.Scheme == scheme && r.Axes["guest_cc"] == cc {
				values = append(values, v)
			}
		}
		if len(values) != 3 {
			t.Fatalf("%s, %s, %s: %d seeds have %v", world, scheme, cc, len(values), path)
		}
		return result.Quantile(slices.Sorted(slices.Values(values)), 0.5)
	}
	digits := func(v float64) string { // as on the pages: three digits, whole numbers from 100
		if v >= 99.95 {
			return fmt.Sprintf("%.0f", v)
		}
		return fmt.Sprintf("%.1f", v)
	}
	var readme []string
	for _, cc := range []string{"cubic", "reno"} {
		for _, s := range []struct{ scheme, name string }{{"droptail", "drop-tail"}, {"fairq", "fairq"}} {
			m := func(path ...string) float64 { return of("lab", s.scheme, cc, path...) }
			readme = append(readme, fmt.Sprintf("%s|%s/%s/%.0f|%.0f|%.1f|%s", s.name,
				digits(m("mice", "fct_ms", "p50")), digits(m("mice", "fct_ms", "p99")), m("mice", "fct_ms", "max"),
				m("all", "drops"), m("elephants", "throughput_mbps"), digits(m("bottleneck", "queue_bytes", "mean")/1e3)))
		}
	}
	check := func(page string, row *regexp.Regexp, parts []int, want []string) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range row.FindAllStringSubmatch(strings.NewReplacer("*", "", "\u00a0", "").Replace(string(text)), -1) {
			var cells []string
			for _, i := range parts {
				cells = append(cells, strings.ReplaceAll(m[i], " ", ""))
			}
			got = append(got, strings.Join(cells, "|"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s says\n%s\nresults/lab-sim/incast.json has\n%s", page, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check("../../README.md", regexp.MustCompile(`(?m)^\|[a-z ]*\| (drop-tail|fairq) \| ([\d./ ]+) \| [^|]+ \| ([\d ]+) \| ([\d.]+) \| ([\d.]+) KB`), []int{1, 2, 3, 4, 5}, readme)
}
