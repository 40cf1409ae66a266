package bus

import (
	"flag"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/promtest"
)

var update = flag.Bool("update", false, "write the table of metrics")

// A server's figures are those of its connections and messages.
func TestMetrics(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	a, _ := k.agent(k.enrol("agent/sw1"), s.URL())
	k.dial(k.enrol("observer/op"), s.URL())
	for n := range uint64(20) {
		if err := a.SendTelemetry(telemetryOf(n)); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, a.conn)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(s)
	values := map[string]float64{}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() != "server" {
					name += " " + l.GetValue()
				} else if l.GetValue() != "b1" {
					t.Errorf("%s of server %s", name, l.GetValue())
				}
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"weir_bus_connections agent": 1, "weir_bus_connections observer": 1, "weir_bus_connections controller": 0, "weir_bus_connections_total": 2,
		"weir_bus_slow_consumers_total": 0,
	} {
		if got, there := values[name]; !there || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if values["weir_bus_received_messages_total"] < 20 || values["weir_bus_received_bytes_total"] < 20*20 || values["weir_bus_subscriptions"] < 1 {
		t.Errorf("%v", values)
	}
}

// TestMetrics_AreDocumented compares the table of metrics with the code, and with -update writes it.
func TestMetrics_AreDocumented(t *testing.T) {
	var rows []promtest.Row
	for i := range serverFigures {
		f := &serverFigures[i]
		rows = append(rows, promtest.Row{Name: f.name, Kind: promtest.Kind(f.counter), Label: f.label, Help: f.help})
	}
	promtest.Table(t, "../docs/tables/bus-metrics.md", "Metrics of the bus", "The bus: [bus.md](../bus.md). Of an embedded server, in the metrics of the controller, "+
		"or of `weir bus serve --metrics`. All have the label `server`. An external server has NATS' own.", rows, *update)
}
