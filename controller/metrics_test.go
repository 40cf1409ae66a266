package controller

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/datapath/testnet"
	"weir/internal/promtest"
)

var updateTables = flag.Bool("update", false, "write the table of metrics")

// described are all metrics of a controller, by name, with help and labels.
func described(t *testing.T) map[string][2]string {
	t.Helper()
	to := make(chan *prometheus.Desc, 1000)
	(&exporter{}).Describe(to)
	close(to)
	out := map[string][2]string{}
	parts := regexp.MustCompile(`^Desc{fqName: "([a-z_]+)", help: "(.*?)", (?:unit: ".*", )?constLabels: {}, variableLabels: {(.*)}}$`)
	for d := range to {
		p := parts.FindStringSubmatch(d.String())
		if p == nil {
			t.Fatal(d)
		}
		out[p[1]] = [2]string{p[2], p[3]}
	}
	return out
}

// TestMetrics_AreDocumented compares the table of metrics with the code, and with -update writes it.
func TestMetrics_AreDocumented(t *testing.T) {
	all := described(t)
	var rows []promtest.Row
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(name, "weir_controller_") {
			continue
		}
		r := promtest.Row{Name: name, Kind: "gauge", Help: all[name][0]}
		switch {
		case strings.HasSuffix(name, "_total"):
			r.Kind = "counter"
		case name == "weir_controller_decision_seconds":
			r.Kind = "histogram"
		}
		if labels := strings.Split(all[name][1], ","); len(labels) > 1 {
			r.Label = labels[1]
		}
		rows = append(rows, r)
	}
	promtest.Table(t, "../docs/tables/controller-metrics.md", "Metrics of weir controller", "The command: [controller.md](../controller.md). All have the label `controller`. "+
		"With an embedded bus those of [the bus](bus-metrics.md), too.", rows, *updateTables)
}

// The figures of a controller with agents: its own, and those of the bus in its process.
func TestMetrics_OfAgents(t *testing.T) {
	k := newBusKit(t)
	k.cfg.Metrics = testnet.FreeAddress(t)
	k.run()
	sw, h1 := k.agent("sw"), k.agent("h1")
	h1.hosts(t, 7, 1, 1)
	k.until("a grant", func() bool { sw.report(t, 77); return len(h1.grants) > 0 })
	s := k.status()
	if s.Bus.Held != 4 || s.Bus.Term == 0 || s.Bus.Decisions.Count == 0 || s.Bus.Decisions.Sum <= 0 || s.Core.Steps == 0 || s.Core.LawsUs < 0 {
		t.Errorf("%+v, %+v", s.Bus, s.Core)
	}
	answer, err := http.Get("http://" + k.cfg.Metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	of := fmt.Sprintf(`{controller="%s"`, k.cfg.Name)
	for _, line := range []string{
		"weir_controller_buckets_held" + of + "} 4", "weir_controller_bus_connected" + of + "} 1", "weir_controller_agents" + of + "} 2",
		"weir_controller_agents_commanded" + of + "} 2", `weir_bus_connections{role="agent",server="b1"} 2`, "weir_controller_decision_seconds_bucket" + of + `,le="+Inf"}`,
		`weir_controller_grants_total` + of + `,result="sent"}`,
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

// Each time is in the first bucket that has room for it, and in all above.
func TestLatencies(t *testing.T) {
	var l latencies
	for _, d := range []time.Duration{0, 50 * time.Microsecond, 51 * time.Microsecond, time.Millisecond, 900 * time.Millisecond, time.Hour} {
		l.add(d)
	}
	s := l.status()
	if s.Count != 6 || s.Within[50e-6] != 2 || s.Within[100e-6] != 3 || s.Within[500e-6] != 3 || s.Within[1e-3] != 4 || s.Within[0.1] != 4 || s.Within[1] != 5 {
		t.Errorf("%+v", s)
	}
}
