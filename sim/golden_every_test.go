package sim

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/workload"
	"weir/law"
)

var rewrite = flag.Bool("rewrite", false, "TestGolden_EveryExperiment: write the golden file anew; review it as a diff")

// goldenRandom is how many random experiments have a line in the golden file.
const goldenRandom = 40

// golden is one run whose result must not change by a bit.
type golden struct {
	name   string
	run    *experiment.Run
	digest string
}

// The beginning of every experiment of the project, under each scheme that the simulator has, and some random ones with
// their troubles, equal the golden file. This is so on any machine, with any number of processors.
func TestGolden_EveryExperiment(t *testing.T) {
	goldens := append(experimentGoldens(t), acdcGoldens(t)...)
	files := len(goldens)
	goldens = append(goldens, make([]golden, goldenRandom)...)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(goldens) {
					return
				}
				if err := goldens[i].carryOut(int64(i - files + 1)); err != nil {
					t.Errorf("%s: %v", goldens[i].name, err)
				}
			}
		})
	}
	wg.Wait()
	var out bytes.Buffer
	for _, g := range goldens {
		fmt.Fprintf(&out, "%s %.32s\n", g.name, g.digest)
	}
	const path = "testdata/experiments.golden"
	if *rewrite {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil { //nolint:gosec // a golden file
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, old := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(old)) {
		a, b := "nothing", "nothing"
		if i < len(got) {
			a = got[i]
		}
		if i < len(old) {
			b = old[i]
		}
		if a != b {
			t.Errorf("%s: %s, was %s; go test ./sim -run TestGolden -args -rewrite, if it is meant to", path, a, b)
		}
	}
}

// carryOut runs it. A golden without a run is the random experiment of that seed.
func (g *golden) carryOut(seed int64) error {
	if g.run == nil {
		tr := newTrial(seed)
		g.name = fmt.Sprintf("random %d", seed)
		var err error
		if tr.run, err = tr.planned(); err != nil {
			return err
		}
		raw, err := tr.unwatched()
		if err == nil {
			g.digest = Digest(raw)
		}
		return err
	}
	raw, err := (&World{Laws: laws.Sim()}).Run(context.Background(), g.run, quiet{})
	if err != nil {
		return err
	}
	bytes := int64(0)
	for i := range raw.Flows {
		bytes += raw.Flows[i].Bytes
	}
	if bytes == 0 {
		return fmt.Errorf("nothing was sent in %v", g.run.Config.Duration)
	}
	g.digest = Digest(raw)
	return nil
}

// experimentGoldens returns, for each scheme of each file that the simulator can carry out, the runs at both ends of
// the file's axes, shortened.
func experimentGoldens(t *testing.T) []golden {
	t.Helper()
	var files []string
	for _, pattern := range []string{"../experiments/*.yaml", "../experiments/*/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	var out []golden
	for _, path := range files {
		f, err := laws.All().Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(f.Worlds, experiment.WorldSim) {
			continue
		}
		p, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldSim}, AssumeAll: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range bothEnds(p.Runs) {
			if err := (&World{Laws: laws.Sim()}).Check(r); err != nil {
				if !slices.ContainsFunc(notSimulated, func(why string) bool { return strings.Contains(err.Error(), why) }) {
					t.Errorf("%s: %s: %v", path, FileName(r), err)
				}
				continue
			}
			shorten(r)
			out = append(out, golden{name: strings.TrimPrefix(path, "../experiments/") + " " + FileName(r), run: r})
		}
	}
	if len(out) < 40 {
		t.Fatalf("only %d runs of the project's files", len(out))
	}
	return out
}

// notSimulated lists the reasons for which a run of the project's files may be refused. Any other reason is an error.
var notSimulated = []string{"the simulator has no law", "guests.cc bbr", "guests.stack netstack"}

// acdcGoldens are runs with AC/DC, which no file of the project has.
func acdcGoldens(t *testing.T) []golden {
	t.Helper()
	f, err := laws.All().Load("../experiments/incast.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldSim}, AssumeAll: true,
		Set: []string{"claims=[]", "schemes=[{name: acdc, params: {threshold: 25KB}}, {name: acdc_police, laws: [acdc], params: {threshold: 20pkt, police: true}}]"}})
	if err != nil {
		t.Fatal(err)
	}
	var out []golden
	for _, r := range bothEnds(p.Runs) {
		shorten(r)
		out = append(out, golden{name: "incast.yaml with " + FileName(r), run: r})
	}
	return out
}

// bothEnds returns the first and the last run of each scheme, of the first seed.
func bothEnds(runs []*experiment.Run) (out []*experiment.Run) {
	last := map[string]int{} // places in out
	for _, r := range runs {
		switch at, known := last[r.Scheme]; {
		case r.Seed != runs[0].Seed:
		case !known:
			out = append(out, r)
			last[r.Scheme] = -1
		case at < 0:
			last[r.Scheme] = len(out)
			out = append(out, r)
		default:
			out[at] = r
		}
	}
	return out
}

// shorten ends a run soon after its last item has begun. It ends it sooner if the receiving hosts could get more than
// about ten thousand packets until then.
func shorten(r *experiment.Run) {
	const packets = 60_000
	first, last := law.Duration(math.MaxInt64), law.Duration(0)
	rates := map[string]law.Rate{}
	for i := range r.Config.Items {
		it := &r.Config.Items[i]
		first, last = min(first, it.Start), max(last, it.Start)
		for _, pair := range it.Pairs {
			rates[pair.Dst] = 0
		}
	}
	total := law.Rate(0)
	for _, l := range r.Config.Graph.Links {
		for _, end := range []string{l.A, strings.TrimSuffix(l.A, ".hv")} {
			if rate, gets := rates[end]; gets && rate == 0 {
				rates[end] = l.Rate
				total += l.Rate
			}
		}
	}
	if total == 0 { // VMs: what their switches' links carry
		for _, l := range r.Config.Graph.Links {
			total += l.Rate
		}
	}
	budget := law.Duration(float64(packets * 12_000 * 1e9 / float64(total)))
	r.Config.Duration = min(r.Config.Duration, last+law.Duration(200e6), first+max(budget, law.Duration(300e3)))
	if _, err := workload.Expand(&r.Config, r.Seed); err != nil {
		panic(err)
	}
}
