package agentd

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/config"
	"weir/law"
)

const (
	plainBus    = "kind: Agent\nbus: {urls: [\"tls://10.0.0.5:4222\"], keys: k}\n"
	plainHost   = plainBus + "host: {number: 7, uplink: {port: eth0}, vms: [{vm: 1, port: vnet0, mac: \"52:54:00:00:00:01\", addresses: [10.0.0.1]}]}\n"
	plainSwitch = plainBus + "switch: {number: 3, ports: [{port: swp1, number: 1}]}\n"
)

// Every refusal names file, line and key, and says what is allowed.
func TestFile_Refuses(t *testing.T) {
	vm := func(keys string) string {
		return plainBus + "host:\n  number: 7\n  uplink: {port: eth0}\n  vms:\n    - {vm: 1, name: a, port: vnet0, mac: \"52:54:00:00:00:01\", addresses: [10.0.0.1]}\n    - {" + keys + "}\n"
	}
	sw := func(keys string) string {
		return plainBus + "switch:\n  number: 3\n  ports: [{port: swp1, number: 1}]\n  " + keys + "\n"
	}
	many := "labels: {"
	for i := range 33 {
		many += fmt.Sprintf("k%d: v, ", i)
	}
	many += "}"
	for _, row := range []struct{ file, says string }{
		{"kind: Switch\n", "a.yaml: this is a Switch file: use weir switch -f a.yaml"},
		{plainBus, "a.yaml:1: the agent has no role; host, switch or both"},
		{plainHost + "version: 2\n", "a.yaml:4: version: "},
		{plainHost + "name: A_1\n", "a.yaml:4: name: "},
		{plainHost + "names: x\n", "a.yaml:4: names: unknown key; did you mean name?"},
		{strings.Replace(plainHost, "tls://10.0.0.5:4222", "nats://10.0.0.5:4222", 1), `a.yaml:2: bus.urls.0: "nats://10.0.0.5:4222" is no address of the bus; tls://ADDRESS:PORT`},
		{strings.Replace(plainHost, "tls://10.0.0.5:4222", "tls://10.0.0.5", 1), "a.yaml:2: bus.urls.0: "},
		{strings.Replace(plainHost, "tls://10.0.0.5:4222", "tls://10.0.0.5:0", 1), "a.yaml:2: bus.urls.0: "},
		{strings.Replace(plainHost, `["tls://10.0.0.5:4222"]`, "[]", 1), "a.yaml:2: bus.urls: "},
		{strings.Replace(plainHost, ", keys: k", "", 1), "a.yaml:2: bus.keys: the key is missing"},
		{strings.Replace(plainHost, "keys: k", "keys: k, buckets: 0", 1), `a.yaml:2: bus.buckets: "0" is out of range; at least 1 and at most 1024`},
		{plainHost + "metrics: {listen: nowhere}\n", "a.yaml:4: metrics.listen: "},
		{strings.Replace(plainHost, "number: 7", "number: 0", 1), "a.yaml:3: host.number: "},
		{strings.Replace(plainHost, "port: eth0", "rate: 1Gbit", 1), "a.yaml:3: host.uplink.port: the key is missing"},
		{strings.Replace(plainHost, "port: eth0", "port: eth0, rate: 1001Gbit", 1), "a.yaml:3: host.uplink.rate: 1001Gbit is out of range; at most 1000Gbit"},
		{strings.Replace(plainHost, "port: eth0", "port: eth0, rate: fast", 1), "a.yaml:3: host.uplink.rate: "},
		{strings.Replace(plainHost, "port: vnet0", "port: eth0", 1), "a.yaml:3: host.vms.0.port: the port eth0 is there twice (host.uplink.port); each once"},
		{vm(`vm: 1, port: vnet1, mac: "52:54:00:00:00:02", addresses: [10.0.0.2]`), "a.yaml:8: host.vms.1.vm: the VM 1 is there twice (host.vms.0.vm); each once"},
		{vm(`vm: 2, name: a, port: vnet1, mac: "52:54:00:00:00:02", addresses: [10.0.0.2]`), "a.yaml:8: host.vms.a.name: the name a is there twice"},
		{vm(`vm: 2, port: vnet0, mac: "52:54:00:00:00:02", addresses: [10.0.0.2]`), "a.yaml:8: host.vms.1.port: the port vnet0 is there twice"},
		{vm(`vm: 0, port: vnet1, mac: "52:54:00:00:00:02", addresses: [10.0.0.2]`), "a.yaml:8: host.vms.1.vm: "},
		{vm(`vm: 2, port: vnet1, mac: "52:54:00:00:00", addresses: [10.0.0.2]`), `a.yaml:8: host.vms.1.mac: "52:54:00:00:00" is no MAC address of a device; six bytes`},
		{vm(`vm: 2, port: vnet1, mac: "01:00:5e:00:00:01", addresses: [10.0.0.2]`), "a.yaml:8: host.vms.1.mac: "},
		{vm(`vm: 2, port: vnet1, mac: "52:54:00:00:00:02", addresses: []`), "a.yaml:8: host.vms.1.addresses: "},
		{vm(`vm: 2, port: vnet1, mac: "52:54:00:00:00:02", addresses: [10.0.0.300]`), `a.yaml:8: host.vms.1.addresses.0: "10.0.0.300" is no address and no prefix; an address, or a prefix`},
		{vm(`vm: 2, port: vnet1, mac: "52:54:00:00:00:02", addresses: [10.0.0.2/24]`), "a.yaml:8: host.vms.1.addresses.0: 10.0.0.2/24 has bits beyond its length: 10.0.0.0/24 is meant, or /32"},
		{vm(`vm: 2, port: vnet1, mac: "52:54:00:00:00:02", addresses: ["::/64"]`), "a.yaml:8: host.vms.1.addresses.0: ::/64 covers ::ffff:0:0/96, which is all of IPv4"},
		{vm(`vm: 2, port: vnet1, mac: "52:54:00:00:00:02", addresses: [0.0.0.0]`), "a.yaml:8: host.vms.1.addresses.0: 0.0.0.0 is no address of a device"},
		{vm(`vm: 2, port: vnet1, mac: "52:54:00:00:00:02", addresses: ["fe80::1%eth0"]`), "a.yaml:8: host.vms.1.addresses.0: "},
		{vm(`vm: 2, port: vnet1, mac: "52:54:00:00:00:02", addresses: [10.0.0.2], labels: {a: "` + strings.Repeat("x", 64) + `"}`), "a.yaml:8: host.vms.1: a name or label of 64 bytes"},
		{vm(`vm: 2, port: vnet1, mac: "52:54:00:00:00:02", addresses: [10.0.0.2], ` + many), "a.yaml:8: host.vms.1: 33 labels, want at most 32"},
		{vm(`vm: 2, name: "a\x1bb", port: vnet1, mac: "52:54:00:00:00:02", addresses: [10.0.0.2]`), "b: a name or label of 3 bytes, want at most 63 of printable UTF-8"},
		{strings.Replace(plainHost, "number: 7", "number: 7, peers: [{agent: h8, addresses: [10.0.9.1/24]}]", 1), "a.yaml:3: host.peers.0.addresses.0: 10.0.9.1/24 has bits beyond its length"},
		{strings.Replace(plainHost, "number: 7", "number: 7, peers: [{agent: h8, addresses: [10.0.9.1, 10.0.9.1]}]", 1), "a.yaml:3: host.peers.0.addresses.1: the address 10.0.9.1/32 is there twice"},
		{strings.Replace(plainHost, "number: 7", "number: 7, peers: [{agent: h8, addresses: [10.0.9.1]}, {agent: h8, addresses: [10.0.9.2]}]", 1), "a.yaml:3: host.peers.1.agent: the agent h8 is there twice"},
		{withDeadlines("metadata: [10.0.0.1]"), `a.yaml:3: host.deadlines.metadata.0: "10.0.0.1" is no link-local address; such as 169.254.169.253`},
		{withDeadlines("metadata: [169.254.169.253, 169.254.169.254]"), "a.yaml:3: host.deadlines.metadata.1: the version of IP IPv4 is there twice"},
		{strings.Replace(plainSwitch, "number: 3", "number: 0", 1), "a.yaml:3: switch.number: "},
		{sw("interval: 900us"), "a.yaml:6: switch.interval: 900µs is out of range; 1ms to 10s"},
		{sw("interval: 0s"), "a.yaml:6: switch.interval: 0s is out of range"},
		{sw("idle: 2000000s"), "a.yaml:6: switch.idle: "},
		{sw("signals: [marks, drops]"), `a.yaml:6: switch.signals.1: "drops" is no signal; allowed: marks, arrivals`},
		{sw("signals: [marks, marks]"), "a.yaml:6: switch.signals.1: the signal marks is there twice"},
		{sw("sources: [{vm: 1, addresses: [10.0.0.0/24]}]"), `a.yaml:6: switch.sources.0.addresses.0: "10.0.0.0/24" is no address`},
		{sw("sources: [{vm: 1, addresses: [10.0.0.1]}, {vm: 2, addresses: [10.0.0.1]}]"), "a.yaml:6: switch.sources.1.addresses.0: the address 10.0.0.1 is there twice"},
		{sw("sources: [{vm: 0, addresses: [10.0.0.1]}]"), "a.yaml:6: switch.sources.0.vm: "},
		{sw("file: x\n  laws: policy"), "switch.file: laws: policy is given, too; file for the laws of a file, or laws: policy for those of policies"},
		{plainBus + "switch: {number: 3, ports: [{port: a, number: 1, rate: 0bit}]}\n", "a.yaml:3: switch.ports.0.rate: "},
		{plainBus + "switch: {number: 3, ports: [{port: a, number: 1, buffer: 9B}]}\n", "a.yaml:3: switch.ports.0.buffer: 9B is out of range; 1514B (one full frame) to 4.29GB"},
		{plainBus + "switch: {number: 3, ports: [{port: a, number: 1, rtt: 2s}]}\n", "a.yaml:3: switch.ports.0.rtt: 2s is out of range"},
		{plainBus + "switch: {number: 3, ports: [{port: a, number: 1, peer: A}]}\n", "a.yaml:3: switch.ports.0.peer: "},
		{plainBus + "switch: {number: 3, ports: []}\n", "a.yaml:3: switch.ports: "},
		{plainBus + "switch: {number: 3, ports: [{port: a, number: 1}, {port: a, number: 2}]}\n", "a.yaml:3: switch.ports.1.port: the port a is there twice"},
		{plainBus + "switch: {number: 3, ports: [{port: a, number: 1}, {port: b, number: 1}]}\n", "a.yaml:3: switch.ports.1.number: the number 1 is there twice"},
		{plainBus + "switch: {number: 3, ports: [{port: aaaaaaaaaaaaaaaa, number: 1}]}\n", "a.yaml:3: switch.ports.0.port: "},
	} {
		if _, err := kindAgent().Parse("a.yaml", []byte(row.file)); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s\n%v\nwanted\n%s", row.file, err, row.says)
		}
	}
}

// 17000 sources are too many, and 4096 VMs with all their keys are not.
func TestFile_Sizes(t *testing.T) {
	var b strings.Builder
	b.WriteString(plainBus + "switch:\n  number: 3\n  ports: [{port: swp1, number: 1}]\n  sources:\n")
	for i := range 1100 {
		fmt.Fprintf(&b, "    - {vm: %d, addresses: [", i+1)
		for j := range 16 {
			fmt.Fprintf(&b, "10.%d.%d.%d, ", i>>8, i&255, j)
		}
		b.WriteString("]}\n")
	}
	if _, err := kindAgent().Parse("a.yaml", []byte(b.String())); err == nil || !strings.Contains(err.Error(), "a.yaml:6: switch.sources: 17600 addresses; at most 16384") {
		t.Error(err)
	}
	b.Reset()
	b.WriteString(plainBus + "host:\n  number: 7\n  uplink: {port: eth0}\n  vms:\n")
	for i := range 4096 {
		fmt.Fprintf(&b, "    - {vm: %d, name: web%[1]d, port: vnet%[1]d, mac: \"52:54:00:00:%02x:%02x\", addresses: [10.0.%d.%d, \"fe80::/64\"], labels: {tenant: a, tier: web}}\n",
			i+1, i>>8, i&255, i>>8, i&255)
	}
	f, err := kindAgent().Parse("a.yaml", []byte(b.String()))
	if err != nil || len(f.config().Host.VMs) != 4096 {
		t.Errorf("%v", err)
	}
}

// onePeer is another host.
const onePeer = "number: 7, peers: [{agent: h8, addresses: [10.0.9.0/24]}]"

// withDeadlines returns a file with these keys of host.deadlines.
func withDeadlines(keys string) string {
	return strings.Replace(plainHost, "number: 7", "number: 7, deadlines: {"+keys+"}", 1)
}

// keysOfFile has, for each key of an Agent file, a file with the key, one to compare it with, and the test that checks its effect.
var keysOfFile = map[string]struct{ file, without, shownBy string }{
	"kind":                         {shownBy: "../../config/config_test.go TestKind"},
	"version":                      {shownBy: "../../config/version_test.go TestVersion_Unknown"},
	"name":                         {plainHost + "name: x\n", plainHost, "name_test.go TestCertificate"},
	"bus.urls":                     {strings.Replace(plainHost, "10.0.0.5", "10.0.0.6", 1), plainHost, "host_real_test.go TestGrant_ControllerDies"},
	"bus.keys":                     {strings.Replace(plainHost, "keys: k", "keys: l", 1), plainHost, "name_test.go TestCertificate"},
	"bus.buckets":                  {strings.Replace(plainHost, "keys: k", "keys: k, buckets: 4", 1), plainHost, "host_real_test.go TestGrant_ControllerDies"},
	"state":                        {plainHost + "state: /x\n", plainHost, ""},
	"host.number":                  {strings.Replace(plainHost, "number: 7", "number: 8", 1), plainHost, "reload_real_test.go TestReload_VMs"},
	"host.uplink.port":             {strings.Replace(plainHost, "eth0", "eth1", 1), plainHost, "switch_real_test.go TestFailOpen"},
	"host.laws":                    {strings.Replace(plainHost, "number: 7", "number: 7, laws: {x: {}}", 1), plainHost, "half_real_test.go TestHalf_LimitsAndIsKilled"},
	"host.uplink.rate":             {strings.Replace(plainHost, "eth0", "eth0, rate: 1Gbit", 1), plainHost, "reload_real_test.go TestRate"},
	"host.pause_zero":              {strings.Replace(plainHost, "number: 7", "number: 7, pause_zero: true", 1), plainHost, "../../datapath/host/frames_test.go TestClamp_PauseZero"},
	"host.messages":                {strings.Replace(plainHost, "number: 7", "number: 7, messages: in-band", 1), plainHost, "frames_real_test.go TestFrames_Limit"},
	"host.peers.*.agent":           {strings.Replace(plainHost, "number: 7", onePeer, 1), plainHost, "pairs_real_test.go TestPairs_ReturnedAndHeard"},
	"host.peers.*.addresses":       {strings.Replace(plainHost, "number: 7", onePeer, 1), strings.Replace(plainHost, "number: 7", strings.Replace(onePeer, "10.0.9.0", "10.0.8.0", 1), 1), "pairs_real_test.go TestPairs_ReturnedAndHeard"},
	"host.deadlines.sockets":       {withDeadlines("sockets: /x"), withDeadlines("sockets: /y"), "declare_test.go TestDeclare_PublicDirectory"},
	"host.deadlines.metadata":      {withDeadlines("sockets: /x, metadata: [169.254.169.253]"), withDeadlines("sockets: /x"), "metadata_real_test.go TestMetadata_Declare"},
	"host.deadlines.quotas":        {withDeadlines("sockets: /x, quotas: none"), withDeadlines("sockets: /x"), "deadlines_test.go TestDeadlines_Flood"},
	"host.deadlines.vm.rate":       {withDeadlines("sockets: /x, vm: {rate: 7}"), withDeadlines("sockets: /x"), "deadlines_test.go TestDeadlines_Rate"},
	"host.deadlines.vm.live":       {withDeadlines("sockets: /x, vm: {live: 7}"), withDeadlines("sockets: /x"), "deadlines_test.go TestDeadlines_Quotas"},
	"host.deadlines.vm.demand":     {withDeadlines("sockets: /x, vm: {demand: 7Mbit}"), withDeadlines("sockets: /x"), "deadlines_test.go TestDeadlines_Demand"},
	"host.deadlines.tenant.rate":   {withDeadlines("sockets: /x, tenant: {rate: 7}"), withDeadlines("sockets: /x"), "deadlines_test.go TestDeadlines_Rate"},
	"host.deadlines.tenant.live":   {withDeadlines("sockets: /x, tenant: {live: 7}"), withDeadlines("sockets: /x"), "deadlines_test.go TestDeadlines_Quotas"},
	"host.deadlines.tenant.demand": {withDeadlines("sockets: /x, tenant: {demand: 7Mbit}"), withDeadlines("sockets: /x"), "deadlines_test.go TestDeadlines_Demand"},
	"host.vms.*.vm":                {strings.Replace(plainHost, "vm: 1", "vm: 2", 1), plainHost, "reload_real_test.go TestReload_VMs"},
	"host.vms.*.name":              {strings.Replace(plainHost, "vm: 1", "vm: 1, name: x", 1), plainHost, ""},
	"host.vms.*.port":              {strings.Replace(plainHost, "vnet0", "vnet1", 1), plainHost, "reload_real_test.go TestReload_VMs"},
	"host.vms.*.mac":               {strings.Replace(plainHost, "00:01", "00:02", 1), plainHost, "reload_real_test.go TestForgedFramesAreDropped"},
	"host.vms.*.addresses":         {strings.Replace(plainHost, "10.0.0.1]", "10.0.0.2]", 1), plainHost, "reload_real_test.go TestForgedFramesAreDropped"},
	"host.vms.*.labels":            {strings.Replace(plainHost, "vm: 1", "vm: 1, labels: {a: b}", 1), plainHost, ""},
	"switch.number":                {strings.Replace(plainSwitch, "number: 3", "number: 4", 1), plainSwitch, "switch_real_test.go TestTelemetry"},
	"switch.interval":              {strings.Replace(plainSwitch, "number: 3", "number: 3, interval: 7ms", 1), plainSwitch, "switch_real_test.go TestReload_Ports"},
	"switch.idle":                  {strings.Replace(plainSwitch, "number: 3", "number: 3, idle: 7ms", 1), plainSwitch, "../../datapath/telemetry/real_test.go TestTelemetry_RequestsOnOpenConnections"},
	"switch.signals":               {strings.Replace(plainSwitch, "number: 3", "number: 3, signals: [marks]", 1), plainSwitch, "switch_real_test.go TestReload_Ports"},
	"switch.ports.*.port":          {strings.Replace(plainSwitch, "swp1", "swp2", 1), plainSwitch, "switch_real_test.go TestTelemetry"},
	"switch.ports.*.number":        {strings.Replace(plainSwitch, "number: 1", "number: 2", 1), plainSwitch, "switch_real_test.go TestTelemetry"},
	"switch.ports.*.labels":        {strings.Replace(plainSwitch, "number: 1", "number: 1, labels: {a: b}", 1), plainSwitch, "switch_real_test.go TestTelemetry"},
	"switch.sources.*.vm":          {strings.Replace(plainSwitch, "number: 3", "number: 3, sources: [{vm: 2, addresses: [10.0.0.1]}]", 1), strings.Replace(plainSwitch, "number: 3", "number: 3, sources: [{vm: 1, addresses: [10.0.0.1]}]", 1), ""},
	"switch.sources.*.addresses":   {strings.Replace(plainSwitch, "number: 3", "number: 3, sources: [{vm: 2, addresses: [10.0.0.1]}]", 1), plainSwitch, ""},
	"host.labels":                  {strings.Replace(plainHost, "number: 7", "number: 7, labels: {rack: r1}", 1), plainHost, "bypolicy_real_test.go TestInventory_OfTheMachine"},
	"host.switches":                {strings.Replace(plainHost, "number: 7", "number: 7, switches: [tor1]", 1), plainHost, "bypolicy_real_test.go TestInventory_OfTheMachine"},
	"switch.laws":                  {strings.Replace(plainSwitch, "number: 3", "number: 3, laws: policy", 1), plainSwitch, "bypolicy_real_test.go TestLawsByPolicy"},
	"switch.ports.*.rate":          {strings.Replace(plainSwitch, "number: 1", "number: 1, rate: 1Gbit", 1), plainSwitch, "bypolicy_real_test.go TestInventory_OfTheMachine"},
	"switch.ports.*.buffer":        {strings.Replace(plainSwitch, "number: 1", "number: 1, buffer: 1MB", 1), plainSwitch, "bypolicy_real_test.go TestInventory_OfTheMachine"},
	"switch.ports.*.rtt":           {strings.Replace(plainSwitch, "number: 1", "number: 1, rtt: 1ms", 1), plainSwitch, "../switchd/bypolicy_test.go TestPlan"},
	"switch.ports.*.peer":          {strings.Replace(plainSwitch, "number: 1", "number: 1, peer: h1", 1), plainSwitch, "bypolicy_real_test.go TestInventory_OfTheMachine"},
	"switch.file":                  {strings.Replace(plainSwitch, "number: 3", "number: 3, file: x", 1), plainSwitch, "switch_real_test.go TestLawsInTheAgent"},
	"metrics.listen":               {plainHost + "metrics: {listen: \"127.0.0.1:1\"}\n", plainHost, "metrics_test.go TestMetrics"},
}

// Every key of an Agent file changes what the agent is asked to do. A key of the schema that is not in keysOfFile fails here.
func TestEveryKeyHasAnEffect(t *testing.T) {
	seen := func(text string) string {
		f, err := kindAgent().Parse("keys.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c := f.config()
		out := fmt.Sprintf("%s %+v %s %s", c.Name, c.Bus, c.State, c.Metrics)
		if c.Host != nil {
			if c.Host.Deadlines != nil {
				out += fmt.Sprintf("%+v", *c.Host.Deadlines)
				c.Host.Deadlines = nil // its address differs
			}
			out += fmt.Sprintf("%+v", *c.Host)
		}
		if c.Switch != nil {
			out += fmt.Sprintf("%+v", *c.Switch)
		}
		return out
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

// The schema is committed for editors; it must be that of the types.
func TestSchemaIsCommitted(t *testing.T) {
	want, err := os.ReadFile("../../deploy/agent.schema.json")
	if err != nil || !bytes.Equal(want, Schema()) {
		t.Errorf("deploy/agent.schema.json differs (%v): make generate, then review the diff", err)
	}
}

// The example that packages install is right as it is. Its comments are right, too.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../deploy/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	as, err := kindAgent().Parse("agent.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if c := as.config(); c.Switch == nil || c.Host != nil || c.Bus.Buckets != defaultBuckets {
		t.Errorf("%+v", c)
	}
	said := regexp.MustCompile(`(?m)^( *)# ?( *(- \{|[a-z_]+:( |$)))`).ReplaceAll(text, []byte("$1$2"))
	all, err := kindAgent().Parse("said.yaml", said)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	c := all.config()
	if c.Host.Rate != 10e9 || c.Host.VMs[0].Number != 1 || c.Switch.Sources[netip.MustParseAddr("10.0.0.1")] != law.VM(1) || c.Switch.File != "/etc/weir/switch.yaml" {
		t.Errorf("%+v %+v", c.Host, c.Switch)
	}
	c.Switch.File, c.Switch.Sources = "", as.config().Switch.Sources
	if got, want := fmt.Sprintf("%+v %s", *c.Switch, c.Metrics), fmt.Sprintf("%+v %s", *as.config().Switch, as.config().Metrics); got != want {
		t.Errorf("what it says in comments is not what holds without:\n%s\n%s", got, want)
	}
}
