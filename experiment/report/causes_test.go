package report

import (
	"strings"
	"testing"

	"weir/experiment/result"
)

// Timeouts are shown with their causes if a world knows them. The shares of payload are shown as a range if they
// differ.
func TestTable_CausesOfTimeouts(t *testing.T) {
	group := func() *result.Group {
		return &result.Group{Flows: 4, Timeouts: new(int64(9)), Drops: new(int64(20)), FCT: &result.Distribution{N: 4, P50: 1.5}}
	}
	lab, sim := run("a", 1, nil, group()), run("a", 1, nil, group())
	if got := table(t, &result.Document{Experiment: "x", Runs: []*result.Run{lab}}); strings.Contains(got, "FLoss") || strings.Contains(got, "LAck") {
		t.Errorf("the lab has causes:\n%s", got)
	}
	g, h := sim.Groups["g"], group()
	g.FLoss, g.LAck = new(int64(6)), new(int64(2))
	h.Timeouts, h.FLoss, h.LAck, h.Drops = new(int64(8)), new(int64(5)), new(int64(3)), new(int64(21))
	plain := run("b", 1, nil, h)
	sim.World, plain.World, sim.PayloadShare, plain.PayloadShare = "sim", "sim", 1448.0/1538, 1460.0/1538
	got := table(t, &result.Document{Experiment: "x", Runs: []*result.Run{sim, plain}})
	for _, text := range []string{"timeouts  FLoss-TO  LAck-TO  drops", "; a full link carries 94.1 to 94.9 % payload"} {
		if !strings.Contains(got, text) {
			t.Errorf("there is no %q in\n%s", text, got)
		}
	}
}
