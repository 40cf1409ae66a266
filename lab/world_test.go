package lab

import (
	"slices"
	"strings"
	"testing"

	"weir/experiment"
)

// A law that the lab's form or the hardware cannot run is refused before it is attached.
func TestEnforce_Checks(t *testing.T) {
	r := &experiment.Run{Scheme: "s", Config: *hardwareNet().config(), Laws: []string{"deeptail"}, At: []string{"switch"}}
	if _, err := (&Lab{}).Enforce(r, testWorks); err == nil || !strings.Contains(err.Error(), "topology.switch rtl cannot run deeptail") {
		t.Error(err)
	}
}

const spelledPort = `
id: ports
duration: 1s
topology: {kind: dumbbell, senders: 1, receivers: 1, hypervisors: true}
network: {rate: 10Mbit, rtt: 400us, buffer: 60KB}
traffic: [{name: long, from: sender1, to: receiver1, pattern: bulk, stop: 500ms}]
schemes: [{name: droptail}]
measure: {ports: {b: "PORT"}}
`

// A port of measure.ports is measured in every spelling that files may have. One without a queue is refused.
func TestMeasuredPorts_InEverySpelling(t *testing.T) {
	for spelled, refused := range map[string]bool{
		"switch->receiver1": false, "switch -> receiver1": false, "switch->receiver1.hv": false,
		"receiver1.hv->receiver1": true,
	} {
		f, err := testLaws.Parse("ports.yaml", []byte(strings.Replace(spelledPort, "PORT", spelled, 1)))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldLab}, SeedCount: 1})
		if err != nil {
			t.Fatal(err)
		}
		cfg := &plan.Runs[0].Config
		p, err := newPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.checkMeasured(); (err != nil) != refused || refused && !strings.Contains(err.Error(), "measure.ports.b: receiver1.hv->receiver1 has no queue in the lab") {
			t.Errorf("%s: %v", spelled, err)
		}
		var measured []string
		for _, port := range measuredPorts(&Lab{plan: p}, cfg) {
			if port.Sample && slices.Equal(port.Labels, []string{"b"}) {
				measured = append(measured, port.Name)
			}
		}
		if !refused && !slices.Equal(measured, []string{"switch->receiver1"}) {
			t.Errorf("%s: measured are %v", spelled, measured)
		}
	}
}
