package switchd

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"weir/config"
)

// keyCase changes one key of a Switch file.
type keyCase struct {
	// file has the key, without the lines that both files share (keysBase)
	file, without string
	// see names where the key has an effect: the law of a port or the switch program's configuration, as written to the
	// kernel; or "config", and shownBy is the test of its effect.
	see, shownBy string
}

const keysBase = "kind: Switch\nversion: 2\n"

func port(settings string) string { return "ports: [{match: p1, " + settings + "}]\n" }

var (
	keysPort    = "ports: [{match: p1}]\n"
	keysOfPorts = map[string]string{
		"rate": "1Gbit", "buffer": "99KB", "rtt": "2ms", "fairq.target_fraction": "0.5", "fairq.interval": "1ms", "fairq.updates": "3",
		"fairq.gain": "code", "fairq.longest_wait": "50ms", "fairq.hold_requests": "off", "fairq.repair_losses": "off", "fairq.min_window": "9KB", "fairq.paths": "2",
	}
	keysOfFile = map[string]keyCase{
		"version":                 {see: "config", shownBy: "file_version_test.go TestVersion1_IsReadAsBefore"},
		"kind":                    {see: "config", shownBy: "../../config/config_test.go TestKind"},
		"name":                    {file: keysPort + "name: other\n", without: keysPort, see: "kernel"},
		"ports.*.match":           {file: "ports: [{match: p2}]\n", without: keysPort, see: "law"},
		"ports.*.shape":           {file: port("shape: 1Gbit"), without: keysPort, see: "config", shownBy: "../../cmd/weir/switch_reload_test.go TestSwitch_Shape"},
		"ports.*.mark.threshold":  {file: port("mark: {threshold: 9KB}"), without: keysPort, see: "config", shownBy: "../../cmd/weir/switch_mark_test.go TestSwitch_Mark"},
		"ports.*.percent":         {file: port("percent: 50"), without: keysPort, see: "config", shownBy: "bypolicy_test.go TestPercentOfAPort"},
		"defaults.percent":        {file: keysPort + "defaults: {percent: 50}\n", without: keysPort, see: "config", shownBy: "bypolicy_test.go TestPercentOfAPort"},
		"defaults.shape":          {file: keysPort + "defaults: {shape: 1Gbit}\n", without: keysPort, see: "config", shownBy: "../../cmd/weir/switch_reload_test.go TestSwitch_Shape"},
		"defaults.mark.threshold": {file: keysPort + "defaults: {mark: {threshold: 9KB}}\n", without: keysPort, see: "config", shownBy: "../../cmd/weir/switch_mark_test.go TestSwitch_Mark"},
		"fairq.count":             {file: keysPort + "fairq: {count: handshake}\n", without: keysPort, see: "kernel"},
		"fairq.scale":             {file: keysPort + "fairq: {scale: unify}\n", without: keysPort, see: "kernel"},
		"fairq.unify_shift":       {file: keysPort + "fairq: {scale: unify, unify_shift: 9}\n", without: keysPort + "fairq: {scale: unify}\n", see: "kernel"},
		"fairq.flows":             {file: keysPort + "fairq: {flows: 2048}\n", without: keysPort, see: "kernel"},
		"fairq.shrink":            {file: keysPort + "fairq: {shrink: avoid}\n", without: keysPort, see: "kernel"},
		"fairq.signed":            {file: keysPort + "fairq: {signed: drop}\n", without: keysPort, see: "kernel"},
		"fairq.vlans":             {file: keysPort + "fairq: {vlans: ignore}\n", without: keysPort, see: "kernel"},
		"fairq.promises":          {file: keysPort + "fairq: {promises: on}\n", without: keysPort, see: "kernel"},
		"fairq.credits":           {file: keysPort + "fairq: {credits: on}\n", without: keysPort + "fairq: {promises: on}\n", see: "kernel"},
		"scope":                   {file: keysPort + "scope: [10.0.0.0/8]\n", without: keysPort, see: "kernel"},
		"fairq.edge.interval":     {file: keysPort + "fairq: {edge: {interval: 20ms}}\n", without: keysPort + "fairq: {edge: {}}\n", see: "kernel"},
		"fairq.edge.change":       {file: keysPort + "fairq: {edge: {change: 0.5}}\n", without: keysPort + "fairq: {edge: {}}\n", see: "kernel"},
		"fairq.edge.lease":        {file: keysPort + "fairq: {edge: {lease: 2s}}\n", without: keysPort + "fairq: {edge: {}}\n", see: "kernel"},
		"enforce.ports":           {file: "ports: [{match: [p1, p2]}]\nenforce: {ports: p2}\n", without: "ports: [{match: [p1, p2]}]\n", see: "config", shownBy: "../../cmd/weir/canary_machine_test.go TestCanary_OtherPortsAreObserved"},
		"enforce.percent":         {file: keysPort + "enforce: {percent: 50}\n", without: keysPort, see: "config", shownBy: "../../cmd/weir/canary_machine_test.go TestCanary_LimitsItsShare"},
		"rollback.if":             {file: keysPort + "enforce: {percent: 50}\nrollback: {if: [goodput < 0.9]}\n", without: keysPort + "enforce: {percent: 50}\n", see: "config", shownBy: "../../cmd/weir/canary_machine_test.go TestCanary_RollsBack"},
		"rollback.over":           {file: keysPort + "enforce: {percent: 50}\nrollback: {if: [goodput < 0.9], over: 20s}\n", without: keysPort + "enforce: {percent: 50}\nrollback: {if: [goodput < 0.9]}\n", see: "config", shownBy: "rollback_judge_test.go TestJudge"},
		"metrics.listen":          {file: keysPort + "metrics: {listen: \"127.0.0.1:1\"}\n", without: keysPort, see: "config", shownBy: "../../cmd/weir/switch_metrics_test.go TestSwitch_MetricsAddress"},
	}
)

// seenOf returns the effect of a file at a level: the laws of its ports on a NIC with a tbf, the switch program's
// configuration, or the configuration of the switch.
func seenOf(t *testing.T, level, text string) string {
	t.Helper()
	f, err := testKind().Parse("keys.yaml", []byte(keysBase+text))
	if err != nil {
		t.Fatal(err)
	}
	c := testAgent().config(f)
	switch level {
	case "law":
		var out []string
		for _, p := range c.Ports {
			l, err := lawAt(&p.PortSettings, "p1", shaper{Kind: "tbf", Rate: 10e9, Buffer: 1e6})
			out = append(out, fmt.Sprintf("%v %+v %v", p.Match, l, err))
		}
		return strings.Join(out, "\n")
	case "kernel":
		text, err := kernelText(c)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text2, err := json.Marshal([]any{c.Name, c.Ports, c.Enforce, c.Rollback, c.Metrics})
	if err != nil {
		t.Fatal(err)
	}
	return string(text2)
}

// Every key of a Switch file reaches the kernel, or a test shows its effect. A key of the schema without a case fails
// here.
func TestEveryKeyHasAnEffect(t *testing.T) {
	cases := maps.Clone(keysOfFile)
	for key, value := range keysOfPorts {
		said := key + ": " + value
		if own, ok := strings.CutPrefix(key, "fairq."); ok {
			said = "fairq: {" + own + ": " + value + "}"
		}
		cases["ports.*."+key] = keyCase{file: port(said), without: keysPort, see: "law"}
		cases["defaults."+key] = keyCase{file: keysPort + "defaults: {" + said + "}\n", without: keysPort, see: "law"}
	}
	keys := config.SchemaKeys(testAgent().Schema())
	for _, key := range keys {
		c, ok := cases[key]
		if !ok {
			t.Errorf("%s: no case shows its effect: add one, or refuse the key", key)
			continue
		}
		if c.file != "" && seenOf(t, c.see, c.file) == seenOf(t, c.see, c.without) {
			t.Errorf("%s has no effect", key)
		}
		if c.see != "config" {
			continue
		}
		file, name, _ := strings.Cut(c.shownBy, " ")
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "func "+name+"(") {
			t.Errorf("%s: no test %s: %v", key, c.shownBy, err)
		}
	}
	for key := range cases {
		if !slices.Contains(keys, key) {
			t.Errorf("%s: there is no such key", key)
		}
	}
}
