package sim

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
)

// fileRow has the costs of a file.
type fileRow struct {
	File      string    `json:"file"`
	Schemes   []string  `json:"schemes"`
	Runs      int       `json:"runs"`
	Packets   int64     `json:"data_packets"`
	Simulated float64   `json:"simulated_s"`
	Cores     []coreRow `json:"cores"`
}

// coreRow has the costs with that many runs at a time, each on its processor.
type coreRow struct {
	Count   int     `json:"processors"`
	Seconds float64 `json:"wall_s"`
	CPU     float64 `json:"processor_s"` // of all together
}

func parseCores(t *testing.T, text string) []int {
	t.Helper()
	var out []int
	for _, one := range strings.Split(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 || n > runtime.NumCPU() {
			t.Fatalf("%q processors: 1 to %d", one, runtime.NumCPU())
		}
		out = append(out, n)
	}
	return out
}

// files carries out all runs of files, with each of these numbers of processors.
func (r *speedReport) files(t *testing.T, paths []string, cores []int) {
	t.Helper()
	r.fileHead(cores)
	all := fileRow{File: "all", Cores: make([]coreRow, len(cores))}
	for _, path := range paths {
		row, runs := fileRuns(t, path)
		for i, n := range cores {
			c := row.carryOut(t, runs, n)
			row.Cores = append(row.Cores, c)
			all.Cores[i].Count = n
			all.Cores[i].Seconds += c.Seconds
			all.Cores[i].CPU += c.CPU
		}
		r.Files = append(r.Files, row)
		r.fileLine(&row)
		all.Runs, all.Packets, all.Simulated = all.Runs+row.Runs, all.Packets+row.Packets, all.Simulated+row.Simulated
	}
	r.Files = append(r.Files, all)
	r.fileLine(&all)
}

// otherLaws are the laws that are not Weir's own.
var otherLaws = []string{"droptail", "red", "ecn", "static"}

// fileRuns returns the runs of a file that the simulator can do: every scheme that this build has, point and seed.
func fileRuns(t *testing.T, path string) (fileRow, []*experiment.Run) {
	t.Helper()
	f, err := laws.All().Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var schemes []string // none: all
	for i := range f.Schemes {
		s := &f.Schemes[i]
		if own := slices.ContainsFunc(s.Laws, func(law string) bool { return !slices.Contains(otherLaws, law) }); !own && !*speedOwn {
			schemes = append(schemes, s.Name)
		}
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldSim}, Schemes: schemes, Available: true})
	if err != nil {
		t.Fatal(err)
	}
	dir, name := filepath.Split(path)
	row := fileRow{File: filepath.Join(filepath.Base(dir), name), Runs: len(p.Runs)}
	for _, run := range p.Runs {
		if err := (&World{Laws: laws.Sim()}).Check(run); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if n := len(row.Schemes); n == 0 || row.Schemes[n-1] != run.Scheme {
			row.Schemes = append(row.Schemes, run.Scheme)
		}
	}
	return row, p.Runs
}

// carryOut does the runs, that many at a time, each with its statistics, and fills in their figures.
func (f *fileRow) carryOut(t *testing.T, runs []*experiment.Run, cores int) coreRow {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	var next, packets, simulated atomic.Int64
	took := stopwatch(func() {
		var wg sync.WaitGroup
		for range cores {
			wg.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= len(runs) {
						return
					}
					n, length, err := wholeRun(runs[i])
					if err != nil {
						t.Errorf("%s: %v", FileName(runs[i]), err)
					}
					packets.Add(n)
					simulated.Add(int64(length))
				}
			})
		}
		wg.Wait()
	})
	if f.Packets > 0 && f.Packets != packets.Load() {
		t.Errorf("%s: %d packets, and %d before", f.File, packets.Load(), f.Packets)
	}
	f.Packets, f.Simulated = packets.Load(), time.Duration(simulated.Load()).Seconds()
	return coreRow{cores, took.wall.Seconds(), took.cpu.Seconds()}
}

// wholeRun does one run as World.Run does, counts arriving packets, and computes its statistics.
func wholeRun(r *experiment.Run) (packets int64, length time.Duration, err error) {
	s, err := build(r)
	if err != nil {
		return 0, 0, err
	}
	defer s.close()
	a := &arrivals{next: s.net.Sink}
	s.net.Sink = a
	raw, err := (&World{Laws: laws.Sim()}).carryOut(context.Background(), s, r, quiet{})
	if err != nil {
		return 0, 0, err
	}
	if out := result.Build(r.Info(), raw); out == nil || a.data == 0 {
		return 0, 0, fmt.Errorf("nothing was sent in %v", raw.Duration)
	}
	return a.data, raw.Duration, nil
}
