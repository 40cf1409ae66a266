package controller

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/config"
)

// keysOfFile has, for each key of a Controller file, a file with the key, a file to compare it with if needed, and the test that
// checks its effect.
var keysOfFile = map[string]struct{ file, without, shownBy string }{
	"kind":                     {shownBy: "../config/config_test.go TestKind"},
	"version":                  {shownBy: "../config/version_test.go TestVersion_Unknown"},
	"name":                     {file: "name: other"},
	"listen":                   {file: "listen: 127.0.0.1:1"},
	"tls.ca":                   {file: "tls: {ca: x, certificate: b, key: c}", without: keysTLS, shownBy: "siege_tls_test.go TestControllerTLS"},
	"tls.certificate":          {file: "tls: {ca: a, certificate: x, key: c}", without: keysTLS, shownBy: "siege_tls_test.go TestControllerTLS"},
	"tls.key":                  {file: "tls: {ca: a, certificate: b, key: x}", without: keysTLS, shownBy: "siege_tls_test.go TestControllerTLS"},
	"tls.named":                {file: "tls: {ca: a, certificate: b, key: c, named: true}", without: keysTLS, shownBy: "siege_tls_test.go TestControllerTLS"},
	"generation":               {file: "generation: /tmp/x"},
	"poll":                     {file: "poll: 2s", shownBy: "../law/poll/poll_test.go TestGridDoesNotDrift"},
	"rates.probe":              {file: "rates: {probe: 7}"},
	"rates.arp":                {file: "rates: {arp: 7}"},
	"rates.copy":               {file: "rates: {copy: 7}"},
	"rates.source":             {file: "rates: {source: 7}"},
	"rates.miss":               {file: "rates: {miss: 7}"},
	"limits.switches":          {file: "limits: {switches: 7}"},
	"limits.hosts":             {file: "limits: {hosts: 7}", shownBy: "../law/forward/law_test.go TestHostLimits"},
	"limits.hosts_per_port":    {file: "limits: {hosts_per_port: 7}", shownBy: "../law/forward/law_test.go TestHostLimits"},
	"limits.pins":              {file: "limits: {pins: 7}", shownBy: "../law/forward/law_test.go TestPinLimit"},
	"limits.floods":            {file: "limits: {floods: 7}", shownBy: "../law/forward/law_test.go TestFloodLimit"},
	"bus.listen":               {file: "bus: {listen: 127.0.0.1:2, server_keys: a, keys: b}", without: keysBus, shownBy: "agents_test.go TestAgents_ReportToGrant"},
	"bus.server_keys":          {file: "bus: {listen: 127.0.0.1:1, server_keys: x, keys: b}", without: keysBus, shownBy: "agents_test.go TestAgents_ReportToGrant"},
	"bus.store":                {file: "bus: {listen: 127.0.0.1:1, server_keys: a, keys: b, store: c}", without: keysBus},
	"bus.urls":                 {file: "bus: {urls: [\"tls://127.0.0.1:2\"], keys: b}", without: keysBusURL},
	"bus.replicas":             {file: "bus: {urls: [\"tls://127.0.0.1:1\"], keys: b, replicas: 3}", without: keysBusURL, shownBy: "../bus/lease_test.go TestRunner_TakesOver"},
	"bus.keys":                 {file: "bus: {listen: 127.0.0.1:1, server_keys: a, keys: x}", without: keysBus, shownBy: "agents_test.go TestAgents_ReportToGrant"},
	"bus.buckets":              {file: "bus: {listen: 127.0.0.1:1, server_keys: a, keys: b, buckets: 3}", without: keysBus, shownBy: "agents_test.go TestAgents_ReportToGrant"},
	"bus.messages":             {file: "bus: {listen: 127.0.0.1:1, server_keys: a, keys: b, messages: in-band, port: eth0}", without: keysBus, shownBy: "frames_test.go TestFrames_File"},
	"bus.port":                 {file: "bus: {listen: 127.0.0.1:1, server_keys: a, keys: b, messages: in-band, port: eth1}", without: "bus: {listen: 127.0.0.1:1, server_keys: a, keys: b, messages: in-band, port: eth0}", shownBy: "../agent/agentd/frames_real_test.go TestFrames_Limit"},
	"sflow.listen":             {file: keysSFlow + "{listen: 127.0.0.1:2, switches: [{address: 192.0.2.1, switch: 5}]}", without: keysSFlowAll, shownBy: "sflow_test.go TestSFlow_OpenVSwitch"},
	"sflow.interval":           {file: keysSFlow + "{listen: 127.0.0.1:1, interval: 1s, switches: [{address: 192.0.2.1, switch: 5}]}", without: keysSFlowAll, shownBy: "sflow_test.go TestSFlow_OpenVSwitch"},
	"sflow.switches.*.address": {file: keysSFlow + "{listen: 127.0.0.1:1, switches: [{address: 192.0.2.2, switch: 5}]}", without: keysSFlowAll, shownBy: "sflow/receiver_test.go TestReceiver_Refuses"},
	"sflow.switches.*.switch":  {file: keysSFlow + "{listen: 127.0.0.1:1, switches: [{address: 192.0.2.1, switch: 6}]}", without: keysSFlowAll, shownBy: "sflow/receiver_test.go TestReceiver"},
	"sflow.switches.*.ports":   {file: keysSFlow + "{listen: 127.0.0.1:1, switches: [{address: 192.0.2.1, switch: 5, ports: [3]}]}", without: keysSFlowAll, shownBy: "sflow/receiver_test.go TestReceiver"},
	"laws":                     {shownBy: "laws_test.go TestLawsOfAFile"},
	"metrics.listen":           {file: "metrics: {listen: 127.0.0.1:1}"},
	"record":                   {file: "record: /tmp/x", shownBy: "recording_test.go TestRecord"},
	"record_size":              {file: "record: /tmp/x\nrecord_size: 5MB", without: "record: /tmp/x", shownBy: "record/writer_test.go TestWriter_Rotates"},
}

const (
	keysTLS   = "tls: {ca: a, certificate: b, key: c}"
	keysBus   = "bus: {listen: 127.0.0.1:1, server_keys: a, keys: b}"
	keysSFlow = keysBus + "\nsflow: "

	keysSFlowAll = keysSFlow + "{listen: 127.0.0.1:1, switches: [{address: 192.0.2.1, switch: 5}]}"

	keysBusURL = "bus: {urls: [\"tls://127.0.0.1:1\"], keys: b}"
)

// Every key of a Controller file changes what the controller is asked to do. A key of the schema that is not in
// keysOfFile fails here.
func TestEveryKeyHasAnEffect(t *testing.T) {
	seen := func(text string) string {
		dir := t.TempDir()
		for _, keys := range []string{"a", "b", "x"} { // directories with certificates
			text = strings.ReplaceAll(text, "keys: "+keys, "keys: "+filepath.Join(dir, keys))
			if err := errors.Join(os.Mkdir(filepath.Join(dir, keys), 0o700), os.WriteFile(filepath.Join(dir, keys, "n.pem"), nil, 0o600),
				os.WriteFile(filepath.Join(dir, keys, "frames.key"), []byte(strings.Repeat("ab", 32)), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		f, err := kindController().Parse("keys.yaml", []byte("kind: Controller\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		c := f.config()
		tls := "plain TCP"
		if c.TLS != nil {
			tls = fmt.Sprintf("%+v", *c.TLS)
		}
		bus := "no bus"
		if c.Bus != nil {
			bus = strings.ReplaceAll(fmt.Sprintf("%+v", *c.Bus), dir, "")
		}
		sampled := ""
		if c.SFlow != nil {
			sampled = fmt.Sprintf("%+v", *c.SFlow)
		}
		return fmt.Sprintf("%s %s %s %s %s %v %s %v %+v %s %s %v", sampled, bus, c.Name, c.Listen, tls, c.Named, c.Generation, c.Poll, c.Forward, c.Metrics, c.Record, c.RecordSize)
	}
	keys := config.SchemaKeys(Schema())
	for _, key := range keys {
		k, ok := keysOfFile[key]
		if !ok {
			t.Errorf("%s: no case shows its effect: add one, or refuse the key", key)
			continue
		}
		if k.file != "" && seen(k.file) == seen(k.without) {
			t.Errorf("%s makes no difference", key)
		}
		if k.shownBy == "" {
			continue
		}
		file, name, _ := strings.Cut(k.shownBy, " ")
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "func "+name+"(") {
			t.Errorf("%s: no test %s: %v", key, k.shownBy, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keysOfFile)) {
		if !slices.Contains(keys, key) {
			t.Errorf("%s: there is no such key", key)
		}
	}
}
