// Package promtest checks, in tests, that queries of boards and alerts use metrics, labels and values that exist.
package promtest

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Metric is a metric: the values of each of its labels; nil: any.
type Metric struct {
	Kind   string
	Labels map[string][]string
}

// Words of PromQL that are neither metrics nor labels; functions are recognised by the parenthesis that follows.
var (
	promWords     = []string{"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "inf", "nan"}
	promGroups    = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	promFunctions = []string{
		"sum", "min", "max", "avg", "count", "rate", "increase", "avg_over_time", "max_over_time", "vector", "histogram_quantile",
	}
	// Labels that Prometheus adds to scraped metrics.
	targetLabels = []string{"instance", "job"}
	promToken    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\$\w+|[a-zA-Z_][a-zA-Z0-9_]*|[0-9][0-9a-z.]*|=~|!~|!=|==|>=|<=|\S`)
)

// CheckQuery returns the metrics, labels and values of a query that do not exist.
func CheckQuery(query string, names map[string]*Metric) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	tokens := append(promToken.FindAllString(query, -1), "", "", "")
	metrics := 0
	for i := 0; tokens[i] != ""; i++ {
		word, next := tokens[i], tokens[i+1]
		switch {
		case slices.Contains(promGroups, word) && next == "(":
			for i += 2; tokens[i] != ")" && tokens[i] != ""; i++ {
				if l := tokens[i]; l != "," && !hasLabel(l, names) {
					complain("no metric has the label %s", l)
				}
			}
		case slices.Contains(promWords, word) || !regexp.MustCompile(`^[a-zA-Z_]`).MatchString(word):
		case next == "(" || slices.Contains(promGroups, next) && slices.Contains(promFunctions, word):
			if !slices.Contains(promFunctions, word) {
				complain("function %s", word)
			}
		default:
			metrics++
			n := names[word]
			if n == nil {
				complain("there is no metric %s", word)
				n = &Metric{}
			}
			if next == "{" {
				wrong = append(wrong, checkMatchers(word, n, tokens[i+2:])...)
				for tokens[i] != "}" && tokens[i] != "" {
					i++
				}
			}
		}
	}
	if metrics == 0 {
		complain("asks for no metric")
	}
	return wrong
}

// checkMatchers checks the text between braces behind a metric's name.
func checkMatchers(metric string, n *Metric, tokens []string) (wrong []string) {
	for i := 0; tokens[i] != "}" && tokens[i] != ""; i++ {
		label, sign, value := tokens[i], tokens[i+1], tokens[i+2]
		if label == "," {
			continue
		}
		i += 2
		values, has := n.Labels[label]
		if !has && !slices.Contains(targetLabels, label) {
			wrong = append(wrong, fmt.Sprintf("%s has no label %s", metric, label))
		}
		if !has || values == nil || strings.Contains(value, "$") {
			continue
		}
		parts := []string{strings.Trim(value, `"`)}
		if sign == "=~" || sign == "!~" {
			parts = strings.Split(parts[0], "|")
		}
		for _, p := range parts {
			if !slices.Contains(values, p) {
				wrong = append(wrong, fmt.Sprintf("%s never has %s %q", metric, label, p))
			}
		}
	}
	return wrong
}

func hasLabel(label string, names map[string]*Metric) bool {
	if slices.Contains(targetLabels, label) {
		return true
	}
	for _, n := range names {
		if _, has := n.Labels[label]; has {
			return true
		}
	}
	return false
}

// Board checks a board of Grafana, which must have at least so many queries. Every query uses existing metrics, and every legend a
// label that its query keeps.
func Board(t *testing.T, path string, names map[string]*Metric, least int) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr, LegendFormat string }
			GridPos struct{ X, Y, W, H int }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
		Annotations struct{ List []struct{ Name, Expr string } }
	}
	if err := json.Unmarshal(file, &board); err != nil {
		t.Fatal(err)
	}
	variables := []string{"__rate_interval", "datasource"}
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
		if v.Type == "query" {
			asked := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
			if asked == nil || !hasLabel(asked[2], names) || len(CheckQuery(asked[1], names)) > 0 {
				t.Errorf("variable %s: %s", v.Name, v.Definition)
			}
		}
	}
	queries := 0
	look := func(where, expr, legend string) {
		queries++
		for _, wrong := range CheckQuery(expr, names) {
			t.Errorf("%s: %s: %s", where, expr, wrong)
		}
		for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(expr, -1) {
			if !slices.Contains(variables, v[1]) {
				t.Errorf("%s: no variable %s", where, v[0])
			}
		}
		for _, l := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(legend, -1) {
			if !hasLabel(l[1], names) {
				t.Errorf("%s: legend %s", where, legend)
			}
		}
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.W < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: twice, without a title, or out of the grid", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			look(p.Title, q.Expr, q.LegendFormat)
		}
	}
	for _, a := range board.Annotations.List {
		look(a.Name, a.Expr, "")
	}
	if queries < least {
		t.Errorf("only %d queries were found", queries)
	}
}
