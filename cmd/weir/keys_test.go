package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/cmd/weir/laws"
	"weir/config"
	"weir/experiment"
	"weir/experiment/claim"
	"weir/experiment/report"
	"weir/experiment/result"
	"weir/sim"
)

// Every key of an experiment file has an effect, or is refused by name. keysOfFiles and keysOfLaws change each of them;
// a key of the schema that they lack fails TestEveryKeyHasAnEffect.

// keyCase changes one key of an experiment file.
type keyCase struct {
	see effect
	// set is the change, and with is common to both files, in the syntax of --set.
	set, with string
	topology  string // in place of the file's
	says      string // see: isRefused
}

// effect is where a key has its effect.
type effect int

const (
	inMeasured effect = iota // on what the simulator measures
	inPlan                   // on the list of runs, and their settings
	inReport                 // on the report and the table
	inFigures                // on the figures of the report
	isRefused                // none: it is refused by name
	inTest                   // on guests that no file can request: says names the test of the effect
)

// keysFile is a dumbbell with a burst and long flows, small enough to run in milliseconds.
const keysFile = `id: keys
duration: 300ms
seeds: [1]
worlds: [lab, sim]
topology: TOPOLOGY
network: {rate: 50Mbit, rtt: 400us, buffer: 45KB}
guests: {cc: reno}
traffic:
  - {name: long, from: FROM, to: TO, pattern: bulk, size: 1MB}
  - {name: mice, from: FROM, to: TO, data: pull, pattern: burst, size: 20KB, start: 20ms, every: 60ms, epochs: 3}
  - {name: loop, from: FROM, to: TO, data: pull, pattern: closed_loop, size: 5KB, requests: 20}
  - {name: noise, proto: udp, from: FROM, to: TO, pattern: cbr, rate: 1Mbit}
  - {name: web, from: FROM, to: TO, pattern: poisson, load: 0.2, cdf: hadoop}
schemes:
  - {name: droptail}
measure: {windows: {early: [0s, 100ms]}}
`

const keysDumbbell = "{kind: dumbbell, senders: 3, receivers: 2, hypervisors: false}"

func (k *keyCase) file(t *testing.T, set ...string) (*experiment.File, error) {
	t.Helper()
	from, to := `"sender*"`, `"receiver*"`
	switch {
	case strings.Contains(k.topology, "chain"):
		from, to = `"switch*.sender1"`, `"switch*.receiver1"`
	case k.topology != "":
		from, to = `"rack*.server*"`, `"rack*.server*"`
	}
	text := strings.NewReplacer("TOPOLOGY", cmp.Or(k.topology, keysDumbbell), "FROM", from, "TO", to).Replace(keysFile)
	f, err := laws.All().Parse("keys.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f.With(set)
}

// sets splits a text into options: KEY=VALUE, separated by two spaces.
func sets(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "  ")
}

// seen returns the output in which the key must have its effect.
func (k *keyCase) seen(t *testing.T, set ...string) string {
	t.Helper()
	f, err := k.file(t, set...)
	if err != nil {
		t.Fatal(err)
	}
	o := experiment.Options{}
	if k.see != inPlan {
		o.Worlds = []string{experiment.WorldSim}
	}
	plan, err := f.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	if k.see == inPlan {
		return asJSON(t, plan.Runs) + asJSON(t, plan.Skipped)
	}
	raws, err := runAll(t, f)
	if err != nil {
		t.Fatal(err)
	}
	if k.see == inMeasured {
		return asJSON(t, raws)
	}
	doc, err := newDocument(plan)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range plan.Runs {
		doc.Runs = append(doc.Runs, result.Build(r.Info(), raws[i]))
	}
	doc.Claims = claim.Decide(plan.File.Claims, doc, nil)
	return page(t, doc, k.see == inFigures)
}

// unchanged has the output of each file without the key that a case changes: many cases have the same file.
var unchanged sync.Map // of func() string

// seenBefore is seen of the file without the key.
func (k *keyCase) seenBefore(t *testing.T, set []string) string {
	t.Helper()
	name := fmt.Sprintln(k.see, k.topology, set)
	once, _ := unchanged.LoadOrStore(name, sync.OnceValue(func() string { return k.seen(t, set...) }))
	return once.(func() string)()
}

// runAll runs a file in the simulator.
func runAll(t *testing.T, f *experiment.File) ([]*result.Raw, error) {
	t.Helper()
	plan, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldSim}})
	if err != nil {
		return nil, err
	}
	var raws []*result.Raw
	world := &sim.World{Laws: laws.Sim()}
	for _, r := range plan.Runs {
		if err := world.Check(r); err != nil {
			return nil, err
		}
		raw, err := world.Run(t.Context(), r, experiment.Silent{})
		if err != nil {
			return nil, err
		}
		raws = append(raws, raw)
	}
	return raws, nil
}

// page returns what a reader of a result sees.
func page(t *testing.T, doc *result.Document, withFigures bool) string {
	t.Helper()
	var figures []report.Figure
	if withFigures {
		var err error
		if figures, err = report.Figures(t.TempDir(), doc); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := report.HTML(&out, doc, figures); err != nil {
		t.Fatal(err)
	}
	if err := report.Table(&out, doc); err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		out.WriteString(f.Name)
	}
	return out.String()
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (k *keyCase) check(t *testing.T) {
	t.Helper()
	if k.see == inTest {
		file, name, _ := strings.Cut(k.says, " ")
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "func "+name+"(") {
			t.Errorf("%s: no such test: %v", k.says, err)
		}
		return
	}
	before := sets(k.with)
	after := slices.Concat(before, sets(k.set))
	if k.see == isRefused {
		if _, err := k.file(t, before...); err != nil {
			t.Fatalf("without the key: %v", err)
		}
		f, err := k.file(t, after...)
		if err == nil {
			_, err = runAll(t, f)
		}
		if err == nil || !strings.Contains(err.Error(), k.says) {
			t.Errorf("%s: %v; wanted a refusal: %s", k.set, err, k.says)
		}
		return
	}
	if k.seenBefore(t, before) == k.seen(t, after...) {
		t.Errorf("%s makes no difference", k.set)
	}
}

func TestEveryKeyHasAnEffect(t *testing.T) {
	keys := config.SchemaKeys(laws.All().Schema())
	for _, l := range laws.All().Specs() {
		if !laws.Built(l.Name) {
			continue // its schemes are refused by name
		}
		for _, key := range config.SchemaKeys(config.EncodeSchema(config.SchemaOf(l.Params()))) {
			if key != "" {
				keys = append(keys, "params of "+l.Name+"."+key)
			}
		}
	}
	cases := maps.Clone(keysOfFiles)
	maps.Copy(cases, casesOfLaws())
	for _, key := range keys {
		if len(cases[key]) == 0 {
			t.Errorf("%s: no case shows its effect: add one to keysOfFiles or keysOfLaws, or refuse the key", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(cases)) {
		if !slices.Contains(keys, key) {
			t.Errorf("%s: there is no such key", key)
			continue
		}
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			for i := range cases[key] {
				cases[key][i].check(t)
			}
		})
	}
}
