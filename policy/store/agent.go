package store

import (
	"fmt"
	"slices"
	"strings"

	"weir/bus/weirv1"
	"weir/law"
	"weir/policy"
)

// Agent makes the node of an agent from its whole inventory, which must come from a decoder: of a switch, or of a host. A port or
// VM is named by its number (port-3, vm-12) if its name is missing, is that of another one, has this form, or cannot be
// selected. The caller
// adds what the agent's inventory does not have.
func Agent(name string, sw law.Switch, host law.Host, whole *weirv1.Inventory) policy.Node {
	n := policy.Node{Name: name, Laws: slices.Clone(whole.GetLaws())}
	used := map[string]bool{}
	named := func(name, kind string, number uint32) string {
		digits, form := strings.CutPrefix(name, kind+"-")
		if !policy.ValidName(name) || used[name] || form && strings.Trim(digits, "0123456789") == "" {
			name = fmt.Sprintf("%s-%d", kind, number)
		}
		used[name] = true
		return name
	}
	if sw != 0 {
		n.Switch = &policy.NodeSwitch{ID: sw}
		ports := slices.Clone(whole.GetPorts())
		slices.SortFunc(ports, func(a, b *weirv1.SwitchPort) int { return int(a.GetPort()) - int(b.GetPort()) })
		for _, p := range ports {
			n.Switch.Ports = append(n.Switch.Ports, policy.NodePort{
				N: p.GetPort(), Name: named(p.GetName(), "port", p.GetPort()), Labels: p.GetLabels(), Rate: law.Rate(p.GetRate()), Buffer: law.Bytes(p.GetBufferBytes()),
				Peer: p.GetPeer(),
			})
		}
	}
	if host != 0 {
		clear(used)
		n.Host = &policy.NodeHost{ID: host, Rate: law.Rate(whole.GetHypervisor().GetRate()), Switches: slices.Clone(whole.GetHypervisor().GetSwitches())}
		n.Labels = whole.GetHypervisor().GetLabels()
		guests := slices.Clone(whole.GetGuests())
		slices.SortFunc(guests, func(a, b *weirv1.Guest) int { return int(a.GetVm()) - int(b.GetVm()) })
		for _, g := range guests {
			n.Host.VMs = append(n.Host.VMs, policy.NodeVM{ID: law.VM(g.GetVm()), Name: named(g.GetName(), "vm", g.GetVm()), Labels: g.GetLabels(), Port: g.GetPort()})
		}
	}
	return n
}
