package report

import (
	"fmt"
	"math/rand/v2"
	"time"

	"weir/experiment/result"
)

// sweepDocument is an experiment over a number of senders, in two worlds, with five schemes, deadlines and flows
// that do not finish.
func sweepDocument() *result.Document {
	doc := &result.Document{Experiment: "D1", Weir: "v0.1.0", Host: result.Host{Kernel: "6.18.5", CPUs: 2}}
	for _, world := range []string{"lab", "sim"} {
		for k, scheme := range []string{"tcp", "dctcp", "d2tcp", "sed", "rsed"} {
			for _, n := range []int{5, 10, 20, 40} {
				for seed := int64(1); seed <= 2; seed++ {
					rng := rand.New(rand.NewPCG(uint64(seed), uint64(n*10+k)))
					raw := &result.Raw{Duration: 4 * time.Second, Bin: 10 * time.Millisecond}
					for i := range n * 10 {
						f := result.Flow{Group: "deadline_flows", Mouse: i, Key: key(1+i%200, 1000+i), Done: true, Deadline: 200 * time.Millisecond, Bytes: 100000}
						f.End = time.Duration(float64(5*time.Millisecond) * (1 + rng.ExpFloat64()*float64(n*(5-k))/5))
						f.Done = rng.Float64() > 0.02*float64(5-k)
						raw.Flows = append(raw.Flows, f)
					}
					for i := range 100 {
						raw.Flows = append(raw.Flows, result.Flow{Group: "background", Mouse: i, Key: key(1+i, 99), Done: true, Endless: true,
							End: 4 * time.Second, Bytes: int64(2e5 * (1 + rng.Float64()))})
					}
					doc.Runs = append(doc.Runs, result.Build(result.Info{World: world, Seed: seed, Scale: 5, Scheme: scheme, Laws: []string{scheme},
						Axes: map[string]string{"senders": fmt.Sprint(n)}, Series: 50 * time.Millisecond}, raw))
				}
			}
		}
	}
	return doc
}
