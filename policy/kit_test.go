package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/law"
)

// toyParams are the parameters of the laws of the tests.
type toyParams struct {
	Every law.Duration `json:"every" above:"0" jsonschema_description:"how often"`
	Share float64      `json:"share" jsonschema:"minimum=0,maximum=1" jsonschema_description:"a fraction"`
	Old   int          `json:"old,omitempty" jsonschema_description:"has no effect"`
}

func toy(name string, sites []law.Site, claims ...law.Resource) law.Spec {
	return law.Spec{
		Name: name, Sites: sites, Claims: claims, Params: func() any { return &toyParams{Every: 1e6, Share: 0.5} },
		Idle: map[string]law.Idle{"old": {Why: "nothing reads it", Do: "remove it"}},
	}
}

// toys are laws of all sites. marker and painter own the same resource.
func toys() law.Specs {
	return law.Specs{
		toy("window", []law.Site{law.SwitchPort, law.VMPort}, law.ReceiveWindow),
		toy("marker", []law.Site{law.SwitchPort}, law.Marking),
		toy("painter", []law.Site{law.SwitchPort, law.Uplink}, law.Marking, law.SendRate),
		toy("remote", []law.Site{law.Controller}, law.ReceiveWindow),
		toy("guest", []law.Site{law.VMPort}, law.ECN),
	}
}

const head = "kind: Policy\nversion: 1\n"

// read parses a policy from its keys without kind and version.
func read(t testing.TB, since uint64, text string) Policy {
	t.Helper()
	p, err := NewReader(toys()).Parse("p.yaml", []byte(head+text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p.Since, p.Version = since, 1
	return *p
}

// hosts makes an inventory: h1 with web1 to web3, h2 with db1, and tor1 whose ports lead to both.
func hosts() []Node {
	web := func(n int, tier string) NodeVM {
		return NodeVM{ID: law.VM(n), Name: fmt.Sprintf("web%d", n), Labels: map[string]string{"tenant": "a", "tier": tier}}
	}
	return []Node{
		{Name: "h1", Labels: map[string]string{"rack": "1"}, Host: &NodeHost{ID: 1, Rate: 10e9, Switches: []string{"tor1"}, VMs: []NodeVM{web(1, "front"), web(2, "front"), web(3, "cache")}}},
		{Name: "h2", Labels: map[string]string{"rack": "2"}, Host: &NodeHost{ID: 2, Rate: 10e9, Switches: []string{"tor1"}, VMs: []NodeVM{{ID: 9, Name: "db1", Labels: map[string]string{"tenant": "b"}}}}},
		{Name: "tor1", Switch: &NodeSwitch{ID: 7, Ports: []NodePort{
			{N: 1, Name: "swp1", Rate: 10e9, Peer: "h1", Labels: map[string]string{"role": "access"}},
			{N: 2, Name: "swp2", Rate: 4e9, Peer: "h2", Labels: map[string]string{"role": "access"}},
			{N: 3, Name: "swp3", Rate: 40e9, Labels: map[string]string{"role": "fabric"}},
		}}},
	}
}

// at returns what holds at a target.
func at(t testing.TB, s *State, name string) *Here {
	t.Helper()
	i := slices.IndexFunc(s.Targets, func(h Here) bool { return h.Target.String() == name })
	if i < 0 {
		t.Fatalf("no target %s", name)
	}
	return &s.Targets[i]
}

func says(h *Here) string { return strings.Join(h.lines(), "; ") }

func status(t testing.TB, s *State, name string) Status {
	t.Helper()
	i := slices.IndexFunc(s.Policies, func(p Status) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no policy %s", name)
	}
	return s.Policies[i]
}
