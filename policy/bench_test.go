package policy

import (
	"testing"

	"weir/law"
)

// thousand makes policies and VMs: each policy selects one VM by name, one tenant of ten VMs, and one switch by a pattern.
func thousand(b *testing.B, n int) ([]string, []Node) {
	b.Helper()
	var texts []string
	for i := range n {
		texts = append(texts, head+"name: p"+number(i)+"\nselect:\n  vms: {labels: {tenant: t"+number(i/10)+", app: [a"+number(i%10)+", b]}}\n  ports: {names: ['n"+number(i)+"*']}\n"+
			"laws:\n  window: {share: 0.25}\nguarantee: {rate: 10Mbit, weight: 3, cap: 1Gbit}\n")
	}
	var nodes []Node
	for i := range n / 20 {
		node := Node{Name: "n" + number(i), Host: &NodeHost{ID: law.Host(i), Rate: 10e9}}
		for k := range 20 {
			id := 20*i + k
			node.Host.VMs = append(node.Host.VMs, NodeVM{ID: law.VM(id + 1), Name: "v" + number(id), Labels: map[string]string{"tenant": "t" + number(id/10), "app": "a" + number(id%10)}})
		}
		nodes = append(nodes, node)
	}
	return texts, nodes
}

// BenchmarkCompile compiles 1000 policies for 1000 VMs: selected one by one, and all selected by all policies.
func BenchmarkCompile(b *testing.B) {
	texts, nodes := thousand(b, 1000)
	reader := NewReader(toys())
	var policies, all []Policy
	for i, text := range texts {
		p, err := reader.Parse("p.yaml", []byte(text))
		if err != nil {
			b.Fatal(err)
		}
		p.Since = uint64(i + 1)
		policies = append(policies, *p)
		p.Select = map[Kind]*Selector{VM: {Names: []string{"*"}}}
		p.Percent = i % 101
		all = append(all, *p)
	}
	b.Run("apart", func(b *testing.B) {
		for b.Loop() {
			if s := Compile(toys(), policies, nodes); len(s.Targets) != 1050 || s.Policies[7].Hold == 0 {
				b.Fatal("nothing holds")
			}
		}
	})
	b.Run("all-meet", func(b *testing.B) {
		for b.Loop() {
			if s := Compile(toys(), all, nodes); s.Targets[1049].MoreLeft == 0 {
				b.Fatal("nothing is left out")
			}
		}
	})
}

// BenchmarkApply reads 1000 files, and checks what they would do.
func BenchmarkApply(b *testing.B) {
	texts, nodes := thousand(b, 1000)
	reader := NewReader(toys())
	for b.Loop() {
		var policies []Policy
		for _, text := range texts {
			p, err := reader.Parse("p.yaml", []byte(text))
			if err != nil {
				b.Fatal(err)
			}
			policies = append(policies, *p)
		}
		if p := Propose(toys(), nil, policies, nil, nodes); len(p.Refused) > 0 || len(p.Targets) == 0 {
			b.Fatalf("%+v", p.Refused)
		}
	}
}
