package store

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/bus/weirv1"
)

func TestAgent(t *testing.T) {
	n := Agent("h1", 0, 4, &weirv1.Inventory{Guests: []*weirv1.Guest{
		{Vm: 7, Name: "web1", Port: "tap0", Labels: map[string]string{"tenant": "a"}},
		{Vm: 8}, {Vm: 9, Name: "a/b"}, {Vm: 3, Name: "web2"}, {Vm: 12, Name: "web1"},
	}})
	var names []string
	for _, v := range n.Host.VMs {
		names = append(names, v.Name)
	}
	if want := []string{"web2", "web1", "vm-8", "vm-9", "vm-12"}; !slices.Equal(names, want) || n.Check() != nil {
		t.Errorf("%v, want %v; %v", names, want, n.Check())
	}
	if web1 := n.Host.VMs[1]; web1.Labels["tenant"] != "a" || web1.Port != "tap0" || n.Switch != nil {
		t.Errorf("%+v", web1)
	}
	n = Agent("tor1", 3, 0, &weirv1.Inventory{Ports: []*weirv1.SwitchPort{{Port: 2, Name: "swp2", Rate: 1e9, BufferBytes: 9e4}, {Port: 1}}})
	if p := n.Switch.Ports; p[0].Name != "port-1" || p[1].N != 2 || p[1].Name != "swp2" || p[1].Rate != 1e9 || p[1].Buffer != 9e4 || n.Host != nil {
		t.Errorf("%+v", p)
	}
}

// Every inventory that an agent may report is a node that can be stored.
func TestAgent_IsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"", "a", "b", "vm-1", "vm-2", "port-1", "ä b", "x/y", "*"})
		inv := &weirv1.Inventory{}
		for i := range rapid.IntRange(0, 6).Draw(t, "count") {
			inv.Guests = append(inv.Guests, &weirv1.Guest{Vm: uint32(i + 1), Name: name.Draw(t, "vm"), Labels: map[string]string{"k ä/*": name.Draw(t, "value")}})
			inv.Ports = append(inv.Ports, &weirv1.SwitchPort{Port: uint32(i), Name: name.Draw(t, "port")})
		}
		n := Agent("n", 1, 1, inv)
		if err := n.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
