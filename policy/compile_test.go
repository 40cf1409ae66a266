package policy

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"weir/internal/testseed"
	"weir/law"
)

func TestCompile_PutsLawsAndGuaranteesAtTargets(t *testing.T) {
	s := Compile(toys(), []Policy{
		read(t, 1, "name: front\nselect: {vms: {labels: {tier: front}}}\nlaws: {window: {share: 0.25}}\nguarantee: {cap: 1Gbit}\n"),
		read(t, 2, "name: fabric\nselect: {ports: {labels: {role: fabric}}, hosts: {labels: {rack: '2'}}}\nlaws: {painter: {}}\nenforce: {percent: 0}\n"),
		read(t, 3, "name: nobody\nselect: {vms: {labels: {tenant: c}}}\nlaws: {window: {}}\n"),
	}, hosts())
	for target, want := range map[string]string{
		"vm h1/web1":     "law window share=0.25 (front); guarantee: weight 1, cap 1Gbit (front)",
		"vm h1/web3":     "",
		"port tor1/swp3": "law painter, observes only (fabric)",
		"port tor1/swp1": "",
		"host h2":        "law painter, observes only (fabric)",
	} {
		if got := says(at(t, s, target)); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	for name, want := range map[string]Status{
		"front":  {Name: "front", Version: 1, Condition: Enforced, Targets: 2, Hold: 4},
		"fabric": {Name: "fabric", Version: 1, Condition: Observed, Targets: 2, Hold: 2},
		"nobody": {Name: "nobody", Version: 1, Condition: Off, Reason: "it selects no port, host or VM of the inventory"},
	} {
		if got := status(t, s, name); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// Where two policies contradict each other, the older holds and the other is degraded, with the reason.
func TestCompile_TheOlderStays(t *testing.T) {
	all := func(since uint64, name, keys string) Policy {
		return read(t, since, "name: "+name+"\nselect: {ports: {names: ['*']}}\n"+keys)
	}
	some := func(since uint64, name, keys string) Policy {
		return read(t, since, "name: "+name+"\nselect: {ports: {names: [tor1/swp1]}}\n"+keys)
	}
	for _, row := range []struct {
		name, want string
		older, b   Policy
		condition  Condition
	}{
		{"other parameters", "policy a gives the law window other parameters, or another percentage", some(4, "a", "laws: {window: {}}\n"), all(5, "b", "laws: {window: {share: 1}}\n"), Degraded},
		{"another percentage", "policy a gives the law window other parameters, or another percentage", some(4, "a", "laws: {window: {}}\n"), all(5, "b", "laws: {window: {}}\nenforce: {percent: 5}\n"), Degraded},
		{"one resource", "its law painter and the law marker of policy a both own the marking", some(4, "a", "laws: {marker: {}}\n"), all(5, "b", "laws: {painter: {}}\n"), Degraded},
		{"the same", "", some(4, "a", "laws: {window: {}}\n"), all(5, "b", "laws: {window: {share: 0.5}}\n"), Enforced},
		{"another resource", "", some(4, "a", "laws: {marker: {}}\n"), all(5, "b", "laws: {window: {}}\n"), Enforced},
		{"not applied yet", "policy a gives the law window other parameters, or another percentage", some(4, "a", "laws: {window: {}}\n"), all(0, "b", "laws: {window: {share: 1}}\n"), Degraded},
		{"nothing is left", "policy a gives the law window other parameters, or another percentage", all(4, "a", "laws: {window: {}}\n"), some(5, "b", "laws: {window: {share: 1}}\n"), Off},
	} {
		s := Compile(toys(), []Policy{row.b, row.older}, hosts())
		b := status(t, s, "b")
		want := row.want
		if want != "" {
			want = "at port tor1/swp1: " + want
		}
		if a := status(t, s, "a"); a.Condition != Enforced || b.Condition != row.condition || b.Reason != want {
			t.Errorf("%s: a %+v, b %+v; want %s, %q", row.name, a, b, row.condition, want)
		}
	}
}

// The sum of guarantees is limited by the uplink, and by the switch ports that lead to the host.
func TestCompile_GuaranteesFitIntoThePort(t *testing.T) {
	guarantee := func(since uint64, name, vms, rate string) Policy {
		return read(t, since, "name: "+name+"\nselect: {vms: {names: ["+vms+"]}}\nguarantee: {rate: "+rate+"}\n")
	}
	s := Compile(toys(), []Policy{guarantee(1, "a", "web1", "6Gbit"), guarantee(2, "b", "web2, web3", "3Gbit"), guarantee(3, "c", "db1", "4.5Gbit")}, hosts())
	if b := status(t, s, "b"); b.Condition != Degraded || b.Reason != "at vm h1/web3: h1 has 10Gbit, and 9Gbit of it are guaranteed by a, b: 3Gbit more do not fit" {
		t.Errorf("%+v", b)
	}
	if at(t, s, "vm h1/web2").Guarantee == nil || at(t, s, "vm h1/web3").Guarantee != nil {
		t.Error("web2 has no guarantee, or web3 has one")
	}
	if c := status(t, s, "c"); c.Condition != Off || c.Reason != "at vm h2/db1: h2 has 4Gbit: a guarantee of 4500Mbit does not fit" {
		t.Errorf("%+v", c)
	}
	inventory := hosts()
	inventory[0].Host.Rate = 0
	if a := status(t, Compile(toys(), []Policy{guarantee(1, "a", "web1", "6Gbit")}, inventory), "a"); a.Condition != Off || !strings.Contains(a.Reason, "rate of the host's uplink is not known") {
		t.Errorf("%+v", a)
	}
}

// A switch limits the guarantees of a host only if the host's own agent names it. Any other agent could void them with a slow port, or
// lift the limit with a fast one or one without a rate.
func TestCompile_OnlyItsOwnSwitchesLimitAHost(t *testing.T) {
	holds := func(inventory []Node, host, vm, rate string) bool {
		p := read(t, 1, "name: a\nselect: {vms: {names: ["+vm+"]}}\nguarantee: {rate: "+rate+"}\n")
		return at(t, Compile(toys(), []Policy{p}, inventory), "vm "+host+"/"+vm).Guarantee != nil
	}
	liar := func(peer string, rate law.Rate) []Node {
		return append(hosts(), Node{Name: "liar", Switch: &NodeSwitch{ID: 66, Ports: []NodePort{{N: 1, Name: "swp1", Rate: rate, Peer: peer}}}})
	}
	for _, rate := range []law.Rate{0, 1000, 100e9} { // the port of its own switch to h2 has 4 Gbit/s
		if i := liar("h2", rate); !holds(i, "h2", "db1", "4Gbit") || holds(i, "h2", "db1", "5Gbit") {
			t.Errorf("with a port of %v of another switch 4 Gbit/s do not fit, or 5 do", rate)
		}
	}
	lonely := liar("h1", 1000)
	if lonely[2].Switch.Ports[0].Peer = ""; !holds(lonely, "h1", "web1", "4Gbit") { // no port of its own switch leads to h1
		t.Error("a port of 1 kbit/s of another switch voids a guarantee")
	}
	unnamed := hosts()
	if unnamed[1].Host.Switches = nil; !holds(unnamed, "h2", "db1", "5Gbit") {
		t.Error("the host names no switch, and a switch limits it")
	}
}

// A VM keeps its policy when it moves to another host: the place does not matter, only its name and labels.
func TestCompile_FollowsAVM(t *testing.T) {
	p := []Policy{read(t, 1, "name: a\nselect: {vms: {labels: {tenant: b}}}\nlaws: {window: {}}\nguarantee: {cap: 1Gbit}\n")}
	inventory := hosts()
	moved := inventory[1].Host.VMs[0]
	inventory[0].Host.VMs = append(inventory[0].Host.VMs, moved)
	s := Compile(toys(), p, inventory)
	for _, target := range []string{"vm h1/db1", "vm h2/db1"} { // at both while it moves
		if got := says(at(t, s, target)); got != "law window (a); guarantee: weight 1, cap 1Gbit (a)" {
			t.Errorf("%s: %q", target, got)
		}
	}
}

// A rate or a weight needs a law that shares the uplink, at the VM or at its host. Without one they are reserved, and degraded.
func TestCompile_SharingNeedsALaw(t *testing.T) {
	const reason = "at vm h2/db1: no law that shares the uplink runs at the VM or its host, so the rate and the weight are reserved and not enforced"
	shares := read(t, 2, "name: shares\nselect: {hosts: {names: [h2]}}\nlaws: {painter: {}}\n")
	for keys, want := range map[string]Status{
		"{rate: 3Gbit}": {Name: "a", Version: 1, Condition: Degraded, Reason: reason, Targets: 1, Hold: 1, Left: 1},
		"{weight: 2}":   {Name: "a", Version: 1, Condition: Degraded, Reason: reason, Targets: 1, Hold: 1, Left: 1},
		"{cap: 3Gbit}":  {Name: "a", Version: 1, Condition: Enforced, Targets: 1, Hold: 1},
	} {
		p := read(t, 1, "name: a\nselect: {vms: {names: [db1]}}\nguarantee: "+keys+"\n")
		if got := status(t, Compile(toys(), []Policy{p}, hosts()), "a"); got != want {
			t.Errorf("%s: %+v", keys, got)
		}
		if got := status(t, Compile(toys(), []Policy{p, shares}, hosts()), "a"); got.Condition != Enforced {
			t.Errorf("%s, with a law: %+v", keys, got)
		}
		over := read(t, 3, "name: b\nselect: {vms: {names: [db1]}}\nguarantee: {rate: 5Gbit}\n")
		if r := Propose(toys(), nil, []Policy{over}, nil, hosts()).Refused; len(r) != 1 {
			t.Errorf("a rate beyond the port is refused: %+v", r)
		}
	}
}

func TestCompile_LawsThatNothingRuns(t *testing.T) {
	inventory := hosts()
	inventory[0].Laws = []string{"window"}
	inventory[1].Laws = []string{}
	s := Compile(toys(), []Policy{read(t, 1, "name: a\nselect: {vms: {names: ['*']}}\nlaws: {window: {}}\n")}, inventory)
	if a := status(t, s, "a"); a.Condition != Degraded || a.Reason != "at vm h2/db1: nothing runs the law window there" {
		t.Errorf("%+v", a)
	}
	broken := Policy{Name: "old", Broken: "the law is not in this build"}
	if got := status(t, Compile(toys(), []Policy{broken}, inventory), "old"); got.Condition != Off || got.Reason != broken.Broken {
		t.Errorf("%+v", got)
	}
}

// TestCompile_TheOrderDoesNotMatter: the same policies and nodes in any order give the same bytes.
func TestCompile_TheOrderDoesNotMatter(t *testing.T) {
	r := testseed.New(t)
	policies, inventory := crowd(t, r, 60, 5)
	want := Compile(toys(), policies, inventory).Bytes()
	if !bytes.Contains(want, []byte(`"left":[`)) || !bytes.Contains(want, []byte(`"guarantee":{`)) {
		t.Fatal("nothing is left out, or nothing is guaranteed: the test shows nothing")
	}
	for range 20 {
		shuffle(r, policies)
		shuffle(r, inventory)
		for _, n := range inventory {
			if n.Host != nil {
				shuffle(r, n.Host.VMs)
			}
		}
		if !bytes.Equal(Compile(toys(), policies, inventory).Bytes(), want) {
			t.Fatal("another order gives another result")
		}
	}
}

func shuffle[T any](r *rand.Rand, list []T) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// crowd makes policies with few labels and names, so that many meet, and nodes with 20 VMs or ports each.
func crowd(t testing.TB, r *rand.Rand, policies, nodes int) ([]Policy, []Node) {
	t.Helper()
	reader := NewReader(toys())
	var out []Policy
	for i := range policies {
		text := head + "name: p" + number(i) + "\nselect: {vms: {labels: {tenant: t" + number(r.IntN(6)) + "}}, ports: {names: [n0/x" + number(r.IntN(20)) + ", 'n2*']}}\n" +
			"laws: {" + []string{"window", "remote"}[r.IntN(2)] + ": {share: 0." + number(r.IntN(2)) + "}}\nguarantee: {rate: " + number(1+r.IntN(3)) + "Gbit}\n"
		p, err := reader.Parse("p.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		p.Since = uint64(r.IntN(5))
		out = append(out, *p)
	}
	var inventory []Node
	for i := range nodes {
		n := Node{Name: "n" + number(i)}
		if i%2 == 0 {
			n.Switch = &NodeSwitch{ID: law.Switch(i)}
			for k := range 20 {
				n.Switch.Ports = append(n.Switch.Ports, NodePort{N: uint32(k), Name: "x" + number(k), Rate: 10e9})
			}
		} else {
			n.Host = &NodeHost{ID: law.Host(i), Rate: 10e9}
			for k := range 20 {
				n.Host.VMs = append(n.Host.VMs, NodeVM{ID: law.VM(100*i + k + 1), Name: "v" + number(k), Labels: map[string]string{"tenant": "t" + number(r.IntN(8))}})
			}
		}
		inventory = append(inventory, n)
	}
	return out, inventory
}

func TestNode_Check(t *testing.T) {
	if h := hosts(); slices.ContainsFunc(h, func(n Node) bool { return n.Check() != nil }) {
		t.Fatal("a sound node is refused")
	}
	for says, change := range map[string]func(n *Node){
		"a name has 1 to 63":                        func(n *Node) { n.Name = "H1" },
		"33 labels, want at most 32":                func(n *Node) { n.Labels = labels(33) },
		`VM "a/b" is not a name`:                    func(n *Node) { n.Host.VMs[0].Name = "a/b" },
		"has this name or number twice":             func(n *Node) { n.Host.VMs[0].Name = "web2" },
		"VM web2, number 1: the node has this":      func(n *Node) { n.Host.VMs[1].ID = 1 },
		`the label "a b": "x"`:                      func(n *Node) { n.Host.VMs[0].Labels = map[string]string{"a\tb": "x"} },
		"4097 VMs, want at most 4096":               func(n *Node) { n.Host.VMs = make([]NodeVM, 4097) },
		"has the port \"xxxx":                       func(n *Node) { n.Host.VMs[0].Port = strings.Repeat("x", 64) },
		"and the number 0":                          func(n *Node) { n.Host.VMs[0].ID = 0 },
		"4097 ports, want at most 4096":             func(n *Node) { n.Switch = &NodeSwitch{Ports: make([]NodePort, 4097)} },
		"want the names of at most 16 nodes":        func(n *Node) { n.Host.Switches = []string{"no node"} },
		`port x has a rate of -1, a buffer of 0`:    func(n *Node) { n.Switch = &NodeSwitch{Ports: []NodePort{{Name: "x", Rate: -1}}} },
		`and the peer "no host"`:                    func(n *Node) { n.Switch = &NodeSwitch{Ports: []NodePort{{Name: "x", Peer: "no host"}}} },
		"too many laws, or names that are too long": func(n *Node) { n.Laws = []string{strings.Repeat("x", 64)} },
	} {
		n := hosts()[0]
		change(&n)
		if err := n.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

func labels(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out["l"+number(i)] = "x"
	}
	return out
}
