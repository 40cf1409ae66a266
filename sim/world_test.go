package sim

import (
	"errors"
	"strings"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/law"
)

// samples are runs of the project's files, shortened.
var samples = []struct {
	file    string
	schemes []string
	set     []string
}{
	{"incast.yaml", []string{"droptail", "ecn", "fairq"}, []string{"duration=3s", "traffic.elephants.stop=3s", "traffic.mice.epochs=10", "measure.windows.loaded=[2s, 3s]", "seeds=[1, 2]"}},
	{"sdn-gcc/G1s.yaml", nil, []string{"duration=300ms", "traffic.tagged.start=100ms", "traffic.tagged.stop=300ms", "traffic.competitors.stop=200ms",
		"measure.windows={both: [100ms, 200ms]}", "claims=[]", "seeds=[1]"}},
	{"sicc/S1.yaml", []string{"droptail"}, []string{"duration=200ms", "traffic.elephants.stop=200ms", "traffic.mice.epochs=1", "claims=[]", "seeds=[1]"}},
}

func sampleRuns(t *testing.T) []*experiment.Run {
	t.Helper()
	var runs []*experiment.Run
	for _, g := range samples {
		f, err := laws.All().Load("../experiments/" + g.file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, Schemes: g.schemes, Set: g.set})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, p.Runs...)
	}
	return runs
}

// The same run gives the same bytes twice, alone and next to other runs.
func TestDigest_SameRunSameBytes(t *testing.T) {
	runs := sampleRuns(t)
	alone := make([]string, len(runs))
	for i, r := range runs {
		alone[i] = Digest(ran(t, &World{Laws: laws.Sim()}, r))
	}
	beside := make([]string, len(runs))
	t.Run("beside", func(t *testing.T) {
		for i, r := range runs {
			t.Run(r.Experiment+"/"+FileName(r), func(t *testing.T) {
				t.Parallel()
				beside[i] = Digest(ran(t, &World{Laws: laws.Sim()}, r))
			})
		}
	})
	for i, r := range runs {
		if alone[i] != beside[i] {
			t.Errorf("%s %s: %s alone, %s beside others", r.Experiment, FileName(r), alone[i], beside[i])
		}
	}
}

// Another seed, another scheme or one more frame in the buffer gives another digest.
func TestDigest_DiffersBetweenRuns(t *testing.T) {
	text := baseWith("{name: long, from: \"sender*\", to: receiver1, pattern: bulk, stop: 200ms}")
	seen := map[string]string{}
	for _, set := range []string{"seeds=[1]", "seeds=[2]", "network.buffer=61514B", "guests.cc=cubic", "network.rtt=401us"} {
		d := Digest(carriedOut(t, text, "duration=300ms", set))
		if other := seen[d]; other != "" {
			t.Errorf("%s and %s come out the same", set, other)
		}
		seen[d] = set
	}
}

// A run that cannot be simulated is refused with the reason, before anything is built.
func TestCheck_RefusesWhatCannotBe(t *testing.T) {
	bulk := baseWith("{name: long, from: \"sender*\", to: receiver1, pattern: bulk}")
	for _, c := range []struct {
		name string
		set  []string
		edit func(r *experiment.Run)
		want string
	}{
		{"rate 0", nil, func(r *experiment.Run) { r.Config.Graph.Links[0].Rate = 0 }, "link sender1 - switch: rate 0: set a rate above 0kbit"},
		{"a buffer under one packet", nil, func(r *experiment.Run) { r.Config.Graph.Links[4].Buffer.N = 1513 }, "a buffer of 1513B is smaller than a full frame"},
		{"a flow to nowhere", nil, func(r *experiment.Run) { r.Config.Items[0].Pairs[0].Dst = "receiver2" }, `there is no host "receiver2"`},
		{"a flow to a switch", nil, func(r *experiment.Run) { r.Config.Items[0].Pairs[0].Dst = "switch" }, `there is no host "switch"`},
		{"a link to nowhere", nil, func(r *experiment.Run) { r.Config.Graph.Links[0].B = "x" }, "one of its ends is not a node"},
		{"bbr", []string{"guests.cc=bbr"}, nil, "guests.cc bbr: the simulator does not have it; use reno, newreno, sack, cubic, dctcp or d2tcp, or the lab"},
		{"netstack", []string{"guests.stack=netstack"}, nil, "guests.stack netstack: the simulator's TCP is Linux's"},
		{"a law of nobody", nil, func(r *experiment.Run) { r.Laws = []string{"absent"} }, "the simulator has no law absent"},
		{"long flows in steps of 1 ms", []string{"duration=1000s", "measure.series=1ms", "traffic.long.count=100"}, nil, "take a longer measure.series"},
		{"a month of samples", []string{"duration=1000000s", "measure.series=100s"}, nil, "samples: at most"},
		{"flows for ever", []string{"traffic=[{name: f, from: sender1, to: receiver1, pattern: poisson, size: 1B, load: 1}]", "duration=1000s"}, nil, "more than the limit of 5000000"},
	} {
		r := planned(t, bulk, c.set...)[0]
		if c.edit != nil {
			c.edit(r)
		}
		if err := (&World{Laws: laws.Sim()}).Check(r); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", c.name, err, c.want)
		}
	}
}

// A closed loop without an end is stopped when it has more flows than a run may have.
func TestRun_BoundsTheFlowsOfClosedLoops(t *testing.T) {
	r := planned(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: closed_loop, size: 1KB, stop: 2s}"))[0]
	s, err := build(r)
	if err != nil {
		t.Fatal(err)
	}
	s.traffic.most = 100
	s.traffic.begin()
	s.run(t.Context(), quiet{})
	if err := s.traffic.broken; err == nil || !strings.Contains(err.Error(), "traffic f: the run has more than 100 flows") || len(s.traffic.results) > 101 {
		t.Errorf("%d flows, %v", len(s.traffic.results), err)
	}
}

// A run whose recording cannot be ended, or cannot begin, is an error.
func TestRun_ReportsErrorsOfTheRecording(t *testing.T) {
	r := planned(t, baseWith("{name: f, from: sender1, to: receiver1, pattern: burst, size: 1KB}"))[0]
	full := errors.New("the disk is full")
	for _, begins := range []bool{true, false} {
		w := &World{Laws: laws.Sim(), Record: func(*experiment.Run) (func(law.Law, string) law.Law, func() error, error) {
			if !begins {
				return nil, nil, full
			}
			return func(l law.Law, _ string) law.Law { return l }, func() error { return full }, nil
		}}
		if _, err := w.Run(t.Context(), r, quiet{}); !errors.Is(err, full) {
			t.Errorf("it begins: %v; the run ends with %v", begins, err)
		}
	}
}
