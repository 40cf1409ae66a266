package switchd

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"weir/law"
)

// A port's own share of flows counts before that of the file.
func TestPercentOfAPort(t *testing.T) {
	c := parsed(t, "ports: [{match: p1, percent: 30}, {match: 'p*'}, {match: q1}]\ndefaults: {percent: 60}\nenforce: {percent: 80, ports: q1}\n")
	other := parsed(t, "ports: [{match: p1, percent: 0}, {match: p2}, {match: q1}]\nenforce: {percent: 80, ports: [q1]}\n")
	for _, row := range []struct {
		c    *Config
		port string
		want int
	}{{c, "p1", 30}, {c, "p2", 60}, {c, "q1", 60}, {other, "p1", 0}, {other, "p2", 0}, {other, "q1", 80}} {
		if got := row.c.percent(newRules(nil, row.c.Ports), row.port); got != row.want {
			t.Errorf("%s: %d %%, want %d", row.port, got, row.want)
		}
	}
	r := role{cfg: parsed(t, "ports: [{match: p1, percent: 30}]\n")}
	if r.canaryInterval() != canaryIntervalMax {
		t.Error("the BDP of a port with a canary is not followed")
	}
	if _, err := testAgent().Parse("s.yaml", []byte(keysBase+"ports: [{match: p1, percent: 30}]\nfairq: {credits: on}\n")); err == nil || !strings.Contains(err.Error(), "ports.p1.percent: 30 % of the flows is a canary") {
		t.Error(err)
	}
}

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, err := testAgent().Parse("s.yaml", []byte(keysBase+text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The laws of policies become a file that the switch accepts. Laws that it cannot run are left out with the reason, and stop no others.
func TestPlan(t *testing.T) {
	fairq := func(place, percent int, keys string) PlannedLaw {
		return PlannedLaw{place, "fairq", json.RawMessage(keys), percent}
	}
	ecnAt := func(place int, keys string) PlannedLaw { return PlannedLaw{place, "ecn", json.RawMessage(keys), 100} }
	const k50 = `{"threshold":"50KB","not_ect":"pass"}`
	text, left, err := testAgent().Plan("sw", "", []Planned{
		{Port: "p1", Rate: 1e9, Buffer: 100_000, RTT: law.Duration(2e6), Laws: []PlannedLaw{fairq(1, 100, `{"target_fraction":0.3}`), ecnAt(3, k50)}},
		{Port: "p2", Laws: []PlannedLaw{fairq(0, 10, "{}")}},
		{Port: "p3", Laws: []PlannedLaw{ecnAt(3, k50)}},
		{Port: "p4", Laws: []PlannedLaw{fairq(2, 100, `{"scale":"unify"}`)}},                        // other keys of all ports than setting 0
		{Port: "p5", Laws: []PlannedLaw{fairq(4, 100, `{"interval":"1us"}`)}},                       // refused by the checks of a file
		{Port: "p6", Laws: []PlannedLaw{fairq(5, 100, `{"max_window":"9KB"}`), {6, "red", nil, 1}}}, // this agent has no such key, no such law
		{Port: "p7", Laws: []PlannedLaw{ecnAt(7, `{"threshold":"50KB","not_ect":"drop"}`)}},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	c, err := testAgent().Parse("plan", text)
	if err != nil || len(c.Ports) != 3 || c.Name != "sw" || c.Metrics.Listen != "" {
		t.Fatalf("%v, %+v\n%s", err, c, text)
	}
	type port struct {
		match   string
		percent int
		mark    law.Bytes
	}
	var got []port
	for _, p := range c.Ports {
		got = append(got, port{p.Match[0], *p.Percent, p.Mark.Threshold})
	}
	if want := []port{{"p1", 100, 50_000}, {"p2", 10, 0}, {"p3", 0, 50_000}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if p := c.Ports[0]; p.Rate != 1e9 || p.Buffer != 100_000 || p.RTT != law.Duration(2e6) {
		t.Errorf("%+v", p.PortSettings)
	}
	for i, want := range []string{
		"p4 fairq: an older policy gives the law fairq other values of what all ports of a switch share", "p5 fairq: ", "p6 fairq: max_window: a switch's agent has only the default",
		"p6 red: this agent has no law red for its ports", "p7 ecn: not_ect: a switch's agent has no drop",
	} {
		if i >= len(left) || !strings.HasPrefix(left[i].Port+" "+left[i].Law+": "+left[i].Reason, want) {
			t.Errorf("left out %d: %+v, want %s", i, left, want)
		}
	}
	if text, left, err := testAgent().Plan("sw", "", []Planned{{Port: "p6", Laws: []PlannedLaw{{0, "red", nil, 1}}}}); text != nil || err != nil || len(left) != 1 {
		t.Errorf("%s, %v, %v", text, left, err)
	}
	if got := testAgent().PolicyLaws(); !slices.Contains(got, "ecn") || !slices.Contains(got, "fairq") {
		t.Error(got)
	}
}
