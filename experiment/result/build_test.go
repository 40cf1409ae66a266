package result

import (
	"testing"
	"time"
)

func TestThin(t *testing.T) {
	r := Build(Info{World: "lab", Scheme: "x"}, &Raw{Duration: time.Second, Flows: []Flow{{Group: "mice", Start: 0, End: time.Millisecond, Done: true, Bytes: 1000}}})
	if v, ok := r.Metric([]string{"mice", "fct_ms", "p99"}); !ok || v != 1 {
		t.Fatal(v, ok)
	}
	t.Log(GroupMetrics(), PortMetrics(), GroupDistributions())
}
