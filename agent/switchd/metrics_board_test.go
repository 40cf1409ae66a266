package switchd

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// Words of PromQL that are neither metrics nor labels; functions are recognised by the parenthesis that follows.
var (
	promWords     = []string{"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "inf", "nan"}
	promGroups    = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	promFunctions = []string{
		"sum", "min", "max", "avg", "count", "rate", "increase", "avg_over_time", "max_over_time", "vector",
	}
	// Labels that Prometheus adds to scraped metrics.
	targetLabels = []string{"instance", "job"}
	promToken    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\$\w+|[a-zA-Z_][a-zA-Z0-9_]*|[0-9][0-9a-z.]*|=~|!~|!=|==|>=|<=|\S`)
)

// checkQuery reports the metrics, labels and values of a query that do not exist.
func checkQuery(query string, names map[string]*exposed) (wrong []string) {
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
				n = &exposed{}
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
func checkMatchers(metric string, n *exposed, tokens []string) (wrong []string) {
	for i := 0; tokens[i] != "}" && tokens[i] != ""; i++ {
		label, sign, value := tokens[i], tokens[i+1], tokens[i+2]
		if label == "," {
			continue
		}
		i += 2
		values, has := n.labels[label]
		if !has && !slices.Contains(targetLabels, label) {
			wrong = append(wrong, fmt.Sprintf("%s has no label %s", metric, label))
		}
		if !has || strings.Contains(value, "$") {
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

func hasLabel(label string, names map[string]*exposed) bool {
	if slices.Contains(targetLabels, label) {
		return true
	}
	for _, n := range names {
		if _, has := n.labels[label]; has {
			return true
		}
	}
	return false
}

// Without a checker that finds faults, the tests below would show nothing.
func TestCheckQuery(t *testing.T) {
	names := exposedNames(t)
	for query, says := range map[string]string{
		`rate(weir_switch_port_packets_total{port=~"$port",instance="a"}[5m])`:         "",
		`sum by (reason) (weir_switch_port_passed_packets_total{reason="tunnel"})`:     "",
		`rate(weir_switch_port_packet_total[5m])`:                                      "no metric weir_switch_port_packet_total",
		`weir_switch_port_flows{reason="x"}`:                                           "has no label reason",
		`weir_switch_port_state{state=~"degraded|offf"}`:                               `never has state "offf"`,
		`sum by (arms) (weir_switch_port_flows)`:                                       "no metric has the label arms",
		`summ(weir_switch_port_flows)`:                                                 "function summ",
		`1 > 2`:                                                                        "asks for no metric",
		`weir_switch_port_passed_packets_total{switch=~"$switch", reason="tunnelled"}`: `never has reason "tunnelled"`,
	} {
		wrong := strings.Join(checkQuery(query, names), "; ")
		if (says == "") != (wrong == "") || !strings.Contains(wrong, says) {
			t.Errorf("%s: %q, want %q", query, wrong, says)
		}
	}
}

// Every query of the board uses existing metrics, and every legend a label that its query keeps.
func TestBoard(t *testing.T) {
	file, err := os.ReadFile("../../deploy/grafana/weir-switch.json")
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
	names := exposedNames(t)
	variables := []string{"__rate_interval", "datasource"}
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
		if v.Type == "query" {
			asked := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
			if asked == nil || !hasLabel(asked[2], names) || len(checkQuery(asked[1], names)) > 0 {
				t.Errorf("variable %s: %s", v.Name, v.Definition)
			}
		}
	}
	queries := 0
	look := func(where, expr, legend string) {
		queries++
		for _, wrong := range checkQuery(expr, names) {
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
	if queries < 20 {
		t.Errorf("only %d queries were found", queries)
	}
}

// Every alert uses existing metrics, and has a text that says what happened and what to do.
func TestAlerts(t *testing.T) {
	file, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(file, &rules); err != nil {
		t.Fatal(err)
	}
	names := exposedNames(t)
	names["up"] = &exposed{} // a metric of Prometheus itself
	seen := map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			for _, wrong := range checkQuery(r.Expr, names) {
				t.Errorf("%s: %s", r.Alert, wrong)
			}
			if seen[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: twice, or without severity, summary or description", r.Alert)
			}
			seen[r.Alert] = true
		}
	}
	if len(seen) < 8 {
		t.Errorf("only %d alerts were read", len(seen))
	}
}
