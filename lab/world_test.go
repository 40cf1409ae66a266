package lab

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/experiment"
	"weir/experiment/result"
	"weir/internal/testroot"
)

// A law that the lab's form or the hardware cannot run is refused before it is attached.
func TestEnforce_Checks(t *testing.T) {
	r := &experiment.Run{Scheme: "s", Config: *hardwareNet().config(), Laws: []string{"deeptail"}, At: []string{"switch"}}
	if _, err := (&Lab{}).Enforce(t.Context(), r, testWorks); err == nil || !strings.Contains(err.Error(), "topology.switch rtl cannot run deeptail") {
		t.Error(err)
	}
}

// intruder starts a process in a node of a lab when the run reaches a phase.
type intruder struct {
	experiment.Silent
	phase string
	begin func()
}

func (p *intruder) Phase(text string) {
	if text == p.phase {
		p.begin()
	}
}

// A process of somebody else that keeps a namespace of the run is reported with the result.
func TestWorld_NamesWhoStays(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	f, err := testLaws.Parse("ports.yaml", []byte(strings.Replace(spelledPort, "PORT", "switch->receiver1", 1)))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := f.Plan(experiment.Options{Worlds: []string{experiment.WorldLab}, SeedCount: 1})
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("nsenter", "--net="+filepath.Join(netnsDir, "weir-"+runName()+"-receiver1"), "sh", "-c", "echo ready; read x")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin := func() {
		if err := other.Start(); err != nil {
			t.Error(err)
			return
		}
		if n, err := out.Read(make([]byte, 16)); n == 0 {
			t.Errorf("the process in receiver1: %v", err)
		}
	}
	raw, err := (&World{Laws: testWorks, WithoutMeasuring: true}).Run(t.Context(), plan.Runs[0], &intruder{phase: "running", begin: begin})
	if err != nil {
		t.Fatal(err)
	}
	who := fmt.Sprintf("its namespaces remain until these end: %d (sh) in receiver1", other.Process.Pid)
	if !slices.ContainsFunc(raw.Unmet, func(u result.Unmet) bool {
		return u.Key == "lab" && u.Severity == result.Warning && strings.HasSuffix(u.Text, who)
	}) {
		t.Errorf("%v, want %s", raw.Unmet, who)
	}
	if err := errors.Join(in.Close(), out.Close()); err != nil {
		t.Error(err)
	}
	_ = other.Wait() // read fails at the end of its input
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
