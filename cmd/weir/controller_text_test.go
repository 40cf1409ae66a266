package main

import (
	"bytes"
	"strings"
	"testing"

	"weir/controller"
)

// The text of a controller shows what policies make it do. Text of agents and switches stays in its line.
func TestPrintController_Policies(t *testing.T) {
	s := &controller.Status{
		Name: "c1", Refused: map[string]string{"00000000000000aa": "its description is \x1b[2J\nc9"},
		Bus: &controller.BusStatus{Connected: true, Agents: []controller.AgentStatus{{Name: "h1", Version: "1.4\x1b[31m", Host: 7, VMs: 2, Commands: true, Term: 3}}},
		Policies: &controller.PoliciesStatus{
			Change: 12, Caps: 3, Plans: map[string]int{"tor2": 1, "tor1": 48},
			Laws: []controller.PolicyLaw{
				{Law: "sicc", Percent: 100, Ports: -1, VMs: 4, Live: 7, InstanceCounts: controller.InstanceCounts{Passed: 90, Observed: 0, Other: 2}},
				{Law: "fairqctl", Percent: 0, Ports: 2, VMs: -1, InstanceCounts: controller.InstanceCounts{Observed: 41}},
			},
		},
	}
	var out bytes.Buffer
	if err := printController(&out, s); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"policies: as of change 12; 3 VMs with a cap; tor1 runs laws at 48 ports; tor2 runs laws at 1 ports",
		"law       of flows  ports  VMs  live  sent  observed  of other VMs",
		"sicc      100 %     all    4    7     90    0         2",
		"fairqctl  0 %       2      all  0     0     41        0",
		`not managed: 00000000000000aa: its description is \x1b[2J\nc9`,
	} {
		if !strings.Contains(out.String(), "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("control characters reach the terminal:\n%q", out.String())
	}
	s.Policies = &controller.PoliciesStatus{}
	out.Reset()
	if err := printController(&out, s); err != nil || !strings.Contains(out.String(), "\npolicies: none yet\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
