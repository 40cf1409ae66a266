package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/law"
	"weir/law/fairq"
	"weir/law/gcc"
	"weir/law/mark"
	"weir/law/sicc"
)

const planBase = `
id: plan
duration: 10s
seeds: [1, 2]
topology: {kind: dumbbell, senders: 3, receivers: 1}
network: {rate: 1Gbit, rtt: 200us, buffer: 125KB}
guests: {cc: reno, rto_min: 100ms}
traffic:
  - {name: long, from: "sender1..2", to: receiver1, pattern: bulk, stop: 8s}
  - {name: short, from: sender3, to: receiver1, pattern: burst, size: 10KB, start: 1s, every: 500ms, epochs: 3, gap: 24us, deadline: 20ms, give_up: 1s, initial_window: 2}
  - {name: noise, from: sender3, to: receiver1, proto: udp, pattern: cbr, rate: 100Mbit}
schemes:
  - {name: droptail}
  - {name: ecn, params: {threshold: 25KB}, guests: {ecn: true}}
  - {name: dctcp, laws: [ecn], params: {threshold: 15pkt}, guests: {cc: dctcp, sack: false}}
  - {name: fairq, worlds: [sim]}
  - {name: static, params: {rate: 250Mbit}}
vary:
  - {key: guests.cc, as: guest_cc, values: [reno, cubic]}
  - {key: schemes.ecn.params.threshold, as: mark, values: [20KB, 30KB]}
lab: {time_scale: 5, seeds: [7]}
measure: {ports: {bottleneck: "switch->receiver1"}, windows: {loaded: [2s, 9s]}}
`

func parsed(t *testing.T, text string) *File {
	t.Helper()
	f, err := testLaws.Parse("plan.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// lacking parses a file with the law absent, which is in no world of this build.
func lacking(t *testing.T, text string) *File {
	t.Helper()
	type params struct {
		Rate law.Rate `json:"rate"`
	}
	absent := Law{Spec: law.Spec{Name: "absent", Params: func() any { return &params{} }, Worlds: law.BothWorlds(), Sites: []law.Site{law.SwitchPort}}}
	f, err := NewLaws(append(slices.Clone(testLaws.list), absent)...).Parse("plan.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func planned(t *testing.T, text string, o Options) *Plan {
	t.Helper()
	p, err := parsed(t, text).Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A scheme runs only at the points of the axes that make a difference to it.
func TestAxesThatASchemeDoesNotUse(t *testing.T) {
	p := planned(t, planBase, Options{Worlds: []string{"sim"}, AssumeAll: true})
	got := map[string][]string{}
	for _, r := range p.Runs {
		if r.Seed == 1 {
			got[r.Scheme] = append(got[r.Scheme], fmt.Sprint(r.Point))
		}
	}
	want := map[string][]string{
		"droptail": {"map[guest_cc:reno]", "map[guest_cc:cubic]"}, // the threshold is a parameter of ecn
		"ecn":      {"map[guest_cc:reno mark:20KB]", "map[guest_cc:reno mark:30KB]", "map[guest_cc:cubic mark:20KB]", "map[guest_cc:cubic mark:30KB]"},
		"dctcp":    {"map[]"}, // its own cc has precedence over the axis
		"fairq":    {"map[guest_cc:reno]", "map[guest_cc:cubic]"},
		"static":   {"map[guest_cc:reno]", "map[guest_cc:cubic]"},
	}
	for scheme, points := range want {
		if !slices.Equal(got[scheme], points) {
			t.Errorf("%s: %v, want %v", scheme, got[scheme], points)
		}
	}
	// 11 points and two seeds.
	if len(p.Runs) != 22 {
		t.Errorf("%d runs, want 22", len(p.Runs))
	}
}

// An axis with one value makes no difference, so it is no axis of the runs: weir compare pairs them with those of another value. A claim
// about another value is undecided because the file does not declare it (TestUndecided of package claim).
func TestAxisWithOneValue(t *testing.T) {
	p := planned(t, planBase, Options{Worlds: []string{"sim"}, Schemes: []string{"droptail", "ecn"}, Sweep: []string{"schemes.ecn.params.threshold=20KB", "guests.cc=reno"}, AssumeAll: true})
	for _, r := range p.Runs {
		if got := fmt.Sprint(r.Point); got != "map[]" {
			t.Errorf("%s: %v, want no axis", r.Scheme, got)
		}
	}
}

// Precedence: traffic item, scheme, vary, guests, then the defaults.
func TestPrecedenceOfGuests(t *testing.T) {
	p := planned(t, planBase, Options{Worlds: []string{"sim"}, AssumeAll: true})
	guests := func(scheme, cc, item string) Guests {
		for _, r := range p.Runs {
			if r.Scheme != scheme || cc != "" && r.Point["guest_cc"] != cc {
				continue
			}
			for _, it := range r.Config.Items {
				if it.Name == item {
					return r.Config.Profiles[it.Profile]
				}
			}
		}
		t.Fatalf("no run of %s with %s", scheme, cc)
		return Guests{}
	}
	g := guests("droptail", "cubic", "long")
	if g.CC != "cubic" || *g.RTOMin != 100e6 || *g.InitialWindow != 10 || *g.ECN || !*g.SACK || !*g.DelayedACK || *g.InitialRTO != 1e9 || g.Stack != "linux" {
		t.Errorf("droptail, long: %+v", g)
	}
	if g := guests("ecn", "reno", "long"); !*g.ECN || g.CC != "reno" {
		t.Errorf("ecn, long: ECN %v, %s", *g.ECN, g.CC)
	}
	if g := guests("ecn", "reno", "short"); *g.InitialWindow != 2 || !*g.ECN {
		t.Errorf("ecn, short: window %d, ECN %v", *g.InitialWindow, *g.ECN)
	}
	if g := guests("dctcp", "", "long"); g.CC != "dctcp" || !*g.ECN || *g.SACK {
		t.Errorf("dctcp implies ECN: %+v", g)
	}
	text := strings.Replace(planBase, "pattern: bulk, stop: 8s", "pattern: bulk, stop: 8s, cc: cubic, ecn: false", 1)
	p = planned(t, text, Options{Worlds: []string{"sim"}, AssumeAll: true})
	if g := guests("dctcp", "", "long"); g.CC != "cubic" || *g.ECN {
		t.Errorf("the item's own cc and ecn: %s, ECN %v; want cubic, false", g.CC, *g.ECN)
	}
}

// Items with equal settings share a profile.
func TestProfilesAreDistinct(t *testing.T) {
	p := planned(t, planBase, Options{Worlds: []string{"sim"}, AssumeAll: true, Schemes: []string{"droptail"}})
	c := p.Runs[0].Config
	if len(c.Profiles) != 2 || c.Items[0].Profile != c.Items[2].Profile || c.Items[0].Profile == c.Items[1].Profile {
		t.Errorf("%d profiles; items have %d, %d, %d", len(c.Profiles), c.Items[0].Profile, c.Items[1].Profile, c.Items[2].Profile)
	}
}

// In the lab every rate is divided and every time multiplied by time_scale; bytes, the RTT and the delay of links
// are not scaled.
func TestTimeScale(t *testing.T) {
	lab := planned(t, planBase, Options{Worlds: []string{"lab"}, AssumeAll: true, Schemes: []string{"ecn", "fairq", "droptail"}})
	sim := planned(t, planBase, Options{Worlds: []string{"sim"}, AssumeAll: true, Schemes: []string{"ecn"}})
	r, u := lab.Runs[slices.IndexFunc(lab.Runs, func(r *Run) bool { return r.Scheme == "ecn" })], sim.Runs[0]
	if r.Scale != 5 || u.Scale != 1 || r.Seed != 7 || u.Seed != 1 {
		t.Fatalf("scale %v and %v, seed %d and %d; want 5 and 1, 7 and 1", r.Scale, u.Scale, r.Seed, u.Seed)
	}
	times := func(c Config) []law.Duration {
		s := c.Items[1]
		g := c.Profiles[s.Profile]
		return []law.Duration{
			c.Duration, c.Series, c.Windows["loaded"][0], c.Windows["loaded"][1], c.Items[0].Stop,
			s.Start, s.Every, s.Gap, s.Deadline, s.GiveUp, *g.RTOMin, *g.InitialRTO, *s.RTOMin,
		}
	}
	scaled, plain := times(r.Config), times(u.Config)
	for i := range plain {
		if plain[i] <= 0 || scaled[i] != 5*plain[i] {
			t.Errorf("time %d: %s, want 5 x %s", i, scaled[i], plain[i])
		}
	}
	rates := func(c Config) []law.Rate {
		return []law.Rate{c.Graph.Links[1].Rate, c.Graph.Links[3].Rate, c.Items[2].Rate}
	}
	scaledRates, plainRates := rates(r.Config), rates(u.Config)
	for i := range plainRates {
		if plainRates[i] != 5*scaledRates[i] {
			t.Errorf("rate %d: %s, want %s / 5", i, scaledRates[i], plainRates[i])
		}
	}
	if r.Config.RTT != u.Config.RTT || r.Config.Graph.Links[1].Delay != u.Config.Graph.Links[1].Delay ||
		r.Config.Items[1].Size != 10_000 || r.Config.Graph.Links[1].Buffer.Bytes() != 125_000 {
		t.Error("RTT, delay, size or buffer was scaled")
	}
	if p := r.Params["ecn"].(mark.Params); p.Threshold.Bytes() != 20_000 {
		t.Errorf("threshold %s, want 20KB", p.Threshold)
	}
}

// The times of a law are multiplied, its rates divided; both worlds together run at the lab's scale and with its
// seeds.
func TestLawsAreScaled(t *testing.T) {
	text := strings.Replace(planBase, "{name: fairq, worlds: [sim]}", "{name: fairq, params: {interval: 50us}}\n  - {name: gcc, params: {min_rate: 10Mbit}}", 1)
	p := planned(t, text, Options{Worlds: []string{"lab", "sim"}, AssumeAll: true, Schemes: []string{"fairq", "gcc"}})
	seen := map[string]bool{}
	for _, r := range p.Runs {
		seen[r.World] = true
		if r.Scale != 5 || r.Seed != 7 {
			t.Errorf("%s: scale %v, seed %d; want 5, 7", r.World, r.Scale, r.Seed)
		}
		if r.LabRTT != (r.World == "sim") {
			t.Errorf("%s: LabRTT is %v: beside the lab the simulator takes its round trip", r.World, r.LabRTT)
		}
		if f, ok := r.Params["fairq"].(fairq.Params); ok && (f.Interval != 250e3 || f.Idle != 5e9 || f.Updates != 10 || f.TargetFraction != 0.2) {
			t.Errorf("fairq: %+v", f)
		}
		if g, ok := r.Params["gcc"].(gcc.Config); ok && (g.MinRate != 2e6 || g.Interval != 25e6 || g.Period != 1.25e6 || g.Increase != 65e3) {
			t.Errorf("gcc: %+v", g)
		}
	}
	if !seen["lab"] || !seen["sim"] {
		t.Errorf("worlds %v", seen)
	}
}

// newreno and sack exist in the simulator only: no kernel has them by that name. A lab that used reno instead
// would be compared with something else.
func TestCCOfTheSimulatorOnly(t *testing.T) {
	f := parsed(t, planBase)
	o := Options{Worlds: []string{"lab"}, Schemes: []string{"droptail"}, Set: []string{"guests.cc=sack"}, AssumeAll: true}
	if _, err := f.Plan(o); err == nil || !strings.Contains(err.Error(), "traffic long: guests.cc sack exists in sim only") {
		t.Errorf("in the lab: %v", err)
	}
	for _, cc := range []string{"newreno", "sack"} {
		o.Worlds, o.Set = []string{"sim"}, []string{"guests.cc=" + cc}
		if p, err := f.Plan(o); err != nil || p.Runs[0].guestCC() != cc || p.Runs[0].LabRTT {
			t.Errorf("%s in the simulator: %v", cc, err)
		}
	}
}

func TestSkippedAndUnavailable(t *testing.T) {
	f := parsed(t, planBase)
	// The whole file: the file itself skips fairq in the lab; the law static exists in no lab.
	p, err := f.Plan(Options{Worlds: []string{"lab"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Skip{{"fairq", "lab", "the file runs it in sim only"}, {"static", "lab", "law static exists in sim only"}}
	if !slices.Equal(p.Skipped, want) {
		t.Errorf("skipped %v, want %v", p.Skipped, want)
	}
	// Asking for these two alone is an error.
	if _, err := f.Plan(Options{Worlds: []string{"lab"}, Schemes: []string{"static", "fairq"}}); err == nil || !strings.Contains(err.Error(), "nothing of experiment plan can run here") {
		t.Errorf("only what is skipped: %v", err)
	}
	// A law that this build has in no world; the file has other laws for the simulator.
	var u *UnavailableError
	lacks := lacking(t, strings.Replace(planBase, "{name: fairq, worlds: [sim]}", "{name: absent, worlds: [sim], params: {rate: 10Mbit}}", 1))
	if _, err := lacks.Plan(Options{Worlds: []string{"sim"}}); !errors.As(err, &u) || u.What != "law" || u.World != "sim" || u.Names[0] != "absent" ||
		!slices.Equal(u.Can, []string{"droptail", "ecn", "dctcp", "static"}) {
		t.Errorf("sim: %v", err)
	}
	// A law that this build does not have, with an option that asks for it.
	f = lacking(t, strings.Replace(planBase, "{name: fairq, worlds: [sim]}", "{name: absent}", 1))
	if _, err := f.Plan(Options{Worlds: []string{"lab"}}); !errors.As(err, &u) || u.Names[0] != "absent" ||
		err.Error() != "law absent (of scheme absent) is not in this build for world lab; ask for --scheme droptail,ecn,dctcp" {
		t.Errorf("the whole file: %v", err)
	}
	two := lacking(t, strings.Replace(planBase, "{name: fairq, worlds: [sim]}", "{name: absent}\n  - {name: other, laws: [absent]}", 1))
	if _, err := two.Plan(Options{Worlds: []string{"lab"}, Schemes: []string{"absent", "ecn", "other"}}); err == nil ||
		err.Error() != "laws absent (of scheme absent), absent (of scheme other) are not in this build for world lab; ask for --scheme ecn" {
		t.Errorf("two laws: %v", err)
	}
	if p, err := f.Plan(Options{Worlds: []string{"lab"}, Schemes: u.Can}); err != nil || len(p.Runs) == 0 {
		t.Errorf("the hint of the error: %v", err)
	}
	for _, o := range []Options{
		{Worlds: []string{"moon"}}, {Schemes: []string{"ecm"}},
		{Set: []string{"guests.cc"}}, {Set: []string{"traffic.ants.size=1KB"}}, {Set: []string{"guests.cc=vegas"}},
		{Sweep: []string{"network.rate=1Gbit,fast"}}, {Sweep: []string{"network.rate=1Gbit", "network.rate=2Gbit"}},
		{Set: []string{"network.rate=1Gbit"}, Sweep: []string{"network.rate=2Gbit,3Gbit"}}, {Sweep: []string{"seeds=1,2"}},
		{SeedCount: 2_000_000_000}, {SeedCount: 20_000}, {Set: []string{"traffic.long.name.x=1"}},
	} {
		if _, err := f.Plan(o); err == nil || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%+v: got %v, want one line", o, err)
		}
	}
}

// A result names the kind of the lab's switches if they are not bridges; simulated switches have no kind.
func TestInfoNamesTheSwitches(t *testing.T) {
	for _, c := range []struct {
		world, set, want string
	}{{"lab", "ovs", "ovs"}, {"lab", "bridge", ""}, {"sim", "ovs", ""}} {
		p := planned(t, planBase, Options{Worlds: []string{c.world}, Schemes: []string{"droptail"}, Set: []string{"topology.switch=" + c.set}})
		if got := p.Runs[0].Info().Switch; got != c.want {
			t.Errorf("world %s, switches %s: the result says %q, want %q", c.world, c.set, got, c.want)
		}
	}
}

func TestSetAndSweep(t *testing.T) {
	o := Options{Worlds: []string{"lab"}, Schemes: []string{"ecn"}}
	o.Set = []string{"guests.cc=bbr", "traffic.short.size=20KB", "schemes.ecn.params.not_ect=drop", "lab.time_scale=2", "traffic.long.from=sender1"}
	o.Sweep = []string{"schemes.ecn.params.threshold=10KB,15pkt,40KB", "network.buffer=100KB,200KB"}
	o.Seeds = []int64{3}
	p := planned(t, planBase, o)
	if len(p.Runs) != 6 {
		t.Fatalf("%d runs, want 3 thresholds x 2 buffers", len(p.Runs))
	}
	r := p.Runs[5]
	if r.Point["mark"] != "40KB" || r.Point["buffer"] != "200KB" || len(r.Point) != 2 {
		t.Errorf("point %v; guests.cc was set, so it is no axis", r.Point)
	}
	m := r.Params["ecn"].(mark.Params)
	if m.Threshold.Bytes() != 40_000 || m.NotECT != "drop" || r.Scale != 2 || r.Seed != 3 ||
		r.Config.Profiles[0].CC != "bbr" || r.Config.Items[1].Size != 20_000 || len(r.Config.Items[0].Pairs) != 1 ||
		r.Config.Graph.Links[1].Buffer.Bytes() != 200_000 {
		t.Errorf("%+v %+v", m, r)
	}
	if q := p.Runs[2].Params["ecn"].(mark.Params).Threshold; !q.Packets || q.Bytes() != 22_500 {
		t.Errorf("15pkt is %+v", q)
	}
	// A sweep name that an axis already has.
	p = planned(t, planBase, Options{Worlds: []string{"lab"}, Schemes: []string{"ecn"}, Sweep: []string{"network.rate=1Gbit", "traffic.noise.rate=1Mbit,2Mbit"}})
	if _, ok := p.Runs[0].Point["traffic_noise_rate"]; !ok {
		t.Errorf("point %v", p.Runs[0].Point)
	}
	// Seeds 1..N.
	p = planned(t, planBase, Options{Worlds: []string{"lab"}, Schemes: []string{"droptail"}, SeedCount: 3})
	if len(p.Runs) != 6 || p.Runs[2].Seed != 3 {
		t.Errorf("%d runs", len(p.Runs))
	}
}

// A sweep of a key that the file varies keeps the name of the file's axis, so that its claims and figures find it.
func TestSweep_KeepsTheAxisName(t *testing.T) {
	p := planned(t, planBase, Options{Worlds: []string{"sim"}, Schemes: []string{"droptail"}, Sweep: []string{"guests.cc=bbr,cubic"}, AssumeAll: true})
	if got := fmt.Sprint(p.Runs[0].Point); got != "map[guest_cc:bbr]" {
		t.Errorf("%s, want the axis guest_cc", got)
	}
	for _, a := range p.File.Vary {
		if a.Key == "guests.cc" && a.As != "guest_cc" {
			t.Errorf("the axis is called %s", a.As)
		}
	}
}

// An option finds the axis of its key in each spelling. It is refused if an axis hides its value, whole or in part.
func TestSet_FindsTheAxisInAnySpelling(t *testing.T) {
	for _, o := range []Options{
		{Set: []string{"schemes.1.params.threshold=50KB"}}, {Sweep: []string{"schemes.1.params.threshold=50KB,60KB"}},
	} {
		o.Worlds, o.Schemes, o.AssumeAll = []string{"sim"}, []string{"ecn"}, true
		p := planned(t, planBase, o)
		if got := p.Runs[0].Params["ecn"].(mark.Params).Threshold.Bytes(); got != 50_000 {
			t.Errorf("%v: a threshold of %d B", o, got)
		}
	}
	f := parsed(t, planBase)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Set: []string{"schemes.ecn.params={threshold: 50KB}"}}, "the axis mark sets schemes.ecn.params.threshold"},
		{Options{Set: []string{"schemes.1={name: ecn}"}}, "the axis mark sets schemes.ecn.params.threshold"},
		{Options{Sweep: []string{"guests={cc: reno},{cc: bbr}"}}, "the axis guest_cc sets guests.cc"},
		{Options{Set: []string{"traffic.long.start=1s"}, Sweep: []string{"traffic.0.start=2s,3s"}}, "--set traffic.long.start=1s also sets this key"},
		{Options{Set: []string{"network.rate=1Gbit"}, Sweep: []string{"network={rate: 2Gbit}"}}, "--set network.rate=1Gbit also sets this key"},
	} {
		if _, err := f.Plan(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.o, err, c.want)
		}
	}
}

// Of two axes that set one key, the first would have no effect.
func TestAxes_SetDifferentKeys(t *testing.T) {
	for _, second := range []string{
		"{key: schemes.1.params.threshold, as: other, values: [20KB, 30KB]}", "{as: other, cases: {a: {schemes.ecn.params: {threshold: 1KB}}}}",
	} {
		text := strings.Replace(planBase, "lab: {time", "  - "+second+"\nlab: {time", 1)
		_, err := testLaws.Parse("plan.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "the axis mark also sets schemes.ecn.params.threshold") {
			t.Errorf("%s: %v", second, err)
		}
	}
}

// Cases set several keys at once. A case may make another key invalid; the error reports that.
func TestCases(t *testing.T) {
	vary := "vary:\n  - as: noise_kind\n    cases:\n      udp: {traffic.noise.proto: udp}\n      tcp: {traffic.noise.proto: tcp, traffic.noise.cc: bbr}\n"
	head, rest, _ := strings.Cut(planBase, "vary:")
	_, tail, _ := strings.Cut(rest, "lab:")
	text := head + vary + "lab:" + tail
	p := planned(t, text, Options{Worlds: []string{"lab"}, Schemes: []string{"droptail"}})
	if len(p.Runs) != 2 || p.Runs[0].Point["noise_kind"] != "udp" || p.Runs[1].Point["noise_kind"] != "tcp" {
		t.Fatalf("%d runs: %v", len(p.Runs), p.Runs[0].Point)
	}
	if it := p.Runs[1].Config.Items[2]; it.Proto != "tcp" || p.Runs[1].Config.Profiles[it.Profile].CC != "bbr" {
		t.Errorf("case tcp: %s %+v", it.Proto, it.Guests)
	}
	if _, err := parsed(t, text).Plan(Options{Set: []string{"traffic.noise.proto=tcp"}}); err == nil || !strings.Contains(err.Error(), "the axis noise_kind sets this key") {
		t.Errorf("a key of a case: %v", err)
	}
	broken := strings.Replace(text, "{traffic.noise.proto: udp}", "{traffic.short.proto: udp}", 1)
	if _, err := testLaws.Parse("x.yaml", []byte(broken)); err == nil || !strings.Contains(err.Error(), "pattern burst cannot be udp") {
		t.Errorf("an impossible case: %v", err)
	}
}

// The option at selects the switches that run the laws.
func TestAt(t *testing.T) {
	text := strings.Replace(planBase, "{kind: dumbbell, senders: 3, receivers: 1}", "{kind: dumbbell, senders: 3, receivers: 2}", 1)
	text = strings.Replace(text, "switch->receiver1", "left->right", 1)
	text = strings.Replace(text, "{name: droptail}", "{name: droptail, at: [left]}", 1)
	p := planned(t, text, Options{Worlds: []string{"lab"}, Schemes: []string{"droptail", "ecn"}})
	for _, r := range p.Runs {
		want := map[string][]string{"droptail": {"left"}, "ecn": {"left", "right"}}[r.Scheme]
		if !slices.Equal(r.At, want) {
			t.Errorf("%s at %v, want %v", r.Scheme, r.At, want)
		}
	}
}

// Two laws in one scheme share params by field name.
func TestSchemeOfTwoLaws(t *testing.T) {
	text := strings.Replace(planBase, "{name: static, params: {rate: 250Mbit}}", "{name: sdn, laws: [gcc, ecn], params: {interval: 10ms, threshold: 20pkt, not_ect: drop}}", 1)
	p := planned(t, text, Options{Worlds: []string{"sim"}, AssumeAll: true, Schemes: []string{"sdn"}})
	g, m := p.Runs[0].Params["gcc"].(gcc.Config), p.Runs[0].Params["ecn"].(mark.Params)
	if g.Interval != 10e6 || g.Variant != "paper" || m.Threshold.Bytes() != 30_000 || m.NotECT != "drop" {
		t.Errorf("%+v %+v", g, m)
	}
}

// A parameter under the name of a law is for this law only. It overrides a parameter that stands for all laws.
func TestSchemeOfTwoLaws_OwnParams(t *testing.T) {
	for scheme, want := range map[string]law.Duration{
		"{name: sdn, laws: [sicc, fairq], params: {sicc: {interval: 20ms}}}":                         fairq.Default().Interval,
		"{name: sdn, laws: [sicc, fairq], params: {sicc: {interval: 20ms}, fairq: {interval: 2ms}}}": 2e6,
	} {
		text := strings.Replace(planBase, "{name: static, params: {rate: 250Mbit}}", scheme, 1)
		p := planned(t, text, Options{Worlds: []string{"sim"}, AssumeAll: true, Schemes: []string{"sdn"}})
		s, f := p.Runs[0].Params["sicc"].(sicc.Params), p.Runs[0].Params["fairq"].(fairq.Params)
		if s.Interval != 20e6 || f.Interval != want {
			t.Errorf("%s: sicc %v, fairq %v", scheme, s.Interval, f.Interval)
		}
	}
	text := strings.Replace(planBase, "{name: static, params: {rate: 250Mbit}}", "{name: sdn, laws: [gcc, ecn], params: {gcc: {interval: 10ms}, ecn: {threshold: 20pkt}}}", 1)
	p := planned(t, text, Options{Worlds: []string{"sim"}, AssumeAll: true, Schemes: []string{"sdn"}, Set: []string{"schemes.sdn.params.gcc.interval=7ms"}})
	if g, m := p.Runs[0].Params["gcc"].(gcc.Config), p.Runs[0].Params["ecn"].(mark.Params); g.Interval != 7e6 || m.Threshold.Bytes() != 30_000 {
		t.Errorf("%+v %+v", g, m)
	}
}

// Two plans of one file do not share memory that a world could change.
func TestPlansDoNotShare(t *testing.T) {
	f := parsed(t, planBase)
	a, err := f.Plan(Options{Worlds: []string{"lab"}, Set: []string{"network.rate=500Mbit"}})
	if err != nil {
		t.Fatal(err)
	}
	a.Runs[0].Config.Windows["loaded"] = [2]law.Duration{1, 2}
	a.Runs[0].Config.Graph.Links[1].Rate = 1
	if a.Runs[1].Config.Windows["loaded"][1] == 2 || a.Runs[1].Config.Graph.Links[1].Rate == 1 {
		t.Error("two runs share windows or links")
	}
	b, err := f.Plan(Options{Worlds: []string{"lab"}})
	if err != nil || b.Runs[0].Config.Graph.Links[1].Rate != 200e6 {
		t.Errorf("--set of one plan is in the next: %v, %v", b.Runs[0].Config.Graph.Links[1].Rate, err)
	}
}
