package sim

import (
	"testing"

	"weir/experiment"
)

// BenchmarkRun is whole runs: how many data packets reach their hosts in a second of one processor, with all of TCP.
func BenchmarkRun(b *testing.B) {
	four := "{name: long, from: \"sender*\", to: receiver1, pattern: bulk, stop: 2s}"
	for _, c := range []struct {
		name string
		runs []*experiment.Run
	}{
		{"4-flows", planned(b, baseWith(four), "network.rate=1Gbit", "network.buffer=125KB", "measure.series=100ms")},
		{"incast", fileRuns(b, "incast.yaml", "droptail")},
		{"S1", fileRuns(b, "sicc/S1.yaml", "droptail")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			bytes, n := int64(0), 0
			for b.Loop() {
				raw := ran(b, &World{}, c.runs[n%len(c.runs)])
				n++
				for i := range raw.Flows {
					bytes += raw.Flows[i].Bytes
				}
			}
			b.ReportMetric(float64(bytes)/1448/b.Elapsed().Seconds(), "packets/s")
		})
	}
}

// fileRuns gives the runs of one scheme of a file of the project with its first seed.
func fileRuns(b *testing.B, file, scheme string) []*experiment.Run {
	b.Helper()
	f, err := experiment.Load("../experiments/" + file)
	if err != nil {
		b.Fatal(err)
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, Schemes: []string{scheme}, SeedCount: 1, AssumeAll: true})
	if err != nil {
		b.Fatal(err)
	}
	return p.Runs
}
