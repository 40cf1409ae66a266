package result

import (
	"encoding/json"
	"testing"

	"weir/law"
)

// A stored run and a document of an earlier build have a former name of a metric. Each is found under both names, and
// written with the present one.
func TestFormerMetrics(t *testing.T) {
	stored := Build(Info{World: "lab"}, &Raw{LawTotals: []law.Value{{Metric: "acks_told", Value: 2}}})
	document := &Run{Ports: map[string]*PortResult{AllPorts: {}}}
	if err := json.Unmarshal([]byte(`{"acks_told": 2}`), &document.Ports[AllPorts].Law); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*Run{"stored": stored, "document": document} {
		for _, metric := range []string{"acks_told", "acks_advertised"} {
			if got, ok := r.Metric([]string{AllPorts, "law", metric}); !ok || got != 2 {
				t.Errorf("%s: %s is %v, %t; want 2", name, metric, got, ok)
			}
		}
		if text, err := json.Marshal(r.Ports[AllPorts].Law); err != nil || string(text) != `{"acks_advertised":2}` {
			t.Errorf("%s is written as %s (%v)", name, text, err)
		}
	}
}
