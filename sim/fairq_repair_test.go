//go:build cgo

package sim

import (
	"fmt"
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
)

// 1000 answers at once are more than packets can wait for in 100 ms, so a part of the requests passes. The buffer has no room for their
// answers. With repair_losses these wait, and come in order.
func TestFairQ_CreditsRepairLosses(t *testing.T) {
	for _, repairs := range []bool{false, true} {
		f, err := laws.All().Load("../experiments/fairq/burst.yaml")
		if err != nil {
			t.Fatal(err)
		}
		p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, Schemes: []string{"credits"}, Set: []string{
			"seeds=[1]", "vary=[]", "traffic.mice.count=125", "traffic.mice.connection=new", "traffic.mice.epochs=3", "duration=6s",
			fmt.Sprintf("schemes.credits.params.repair_losses=%t", repairs),
		}})
		if err != nil {
			t.Fatal(err)
		}
		raw := ran(t, &World{Laws: laws.Sim()}, p.Runs[0])
		slowest := slowestFlow(t, raw)
		t.Logf("repair_losses %t: %d segments dropped, the slowest answer took %v", repairs, len(raw.Drops), slowest)
		if !repairs && len(raw.Drops) == 0 {
			t.Error("no segment was dropped without repair_losses: this test shows nothing")
		}
		if repairs && (len(raw.Drops) > 0 || slowest > 850*time.Millisecond) {
			t.Errorf("%d segments were dropped, and the slowest answer took %v: want none, 850 ms at most", len(raw.Drops), slowest)
		}
	}
}
