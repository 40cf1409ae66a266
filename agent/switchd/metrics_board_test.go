package switchd

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"weir/internal/promtest"
)

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
		wrong := strings.Join(promtest.CheckQuery(query, names), "; ")
		if (says == "") != (wrong == "") || !strings.Contains(wrong, says) {
			t.Errorf("%s: %q, want %q", query, wrong, says)
		}
	}
}

// The board of switches uses metrics that exist.
func TestBoard(t *testing.T) {
	promtest.Board(t, "../../deploy/grafana/weir-switch.json", exposedNames(t), 20)
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
	names["up"] = &promtest.Metric{} // a metric of Prometheus itself
	seen := map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			for _, wrong := range promtest.CheckQuery(r.Expr, names) {
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
