package controller

import (
	"fmt"
	"net/netip"

	"weir/law"
	"weir/law/inventory"
)

// claims has the agents that report a number. The first one has it, and the others wait until it reports the number no longer
// or is silent. So an agent cannot take a VM from another, and a VM can move.
type claims[N comparable] map[N][]*agent

// of returns the agent that has n; nil: none.
func (c claims[N]) of(n N) *agent {
	if all := c[n]; len(all) > 0 {
		return all[0]
	}
	return nil
}

func (c claims[N]) add(n N, a *agent) {
	for _, other := range c[n] {
		if other == a {
			return
		}
	}
	c[n] = append(c[n], a)
}

// remove returns the agent that has n now, if a had it before; nil: nothing changed, or nobody has it.
func (c claims[N]) remove(n N, a *agent) *agent {
	all := c[n]
	for i, other := range all {
		if other != a {
			continue
		}
		all = append(all[:i:i], all[i+1:]...)
		if len(all) == 0 {
			delete(c, n)
			return nil
		}
		c[n] = all
		if i == 0 {
			return all[0]
		}
	}
	return nil
}

// setAddresses makes the claims of these agents those of the VMs that they have now. It adds the agents that get an address by it.
func (a *agents) setAddresses(changed map[*agent]bool) {
	list := a.inOrder(changed)
	for _, ag := range list {
		was := ag.at
		ag.at = a.addressesOf(ag)
		for ip := range was {
			if _, still := ag.at[ip]; still {
				continue
			}
			if next := a.addresses.remove(ip, ag); next != nil {
				changed[next] = true
			}
		}
	}
	for _, ag := range list {
		for ip := range ag.at {
			if a.addresses.add(ip, ag); a.addresses.of(ip) != ag {
				a.refuse(ag, "address", fmt.Sprintf("a VM of agent %s has %v; this agent's VM has it as soon as the other does not", a.addresses.of(ip).name, ip))
			}
		}
	}
}

// addressesOf returns the addresses of the VMs that an agent has. Of two VMs with the same address the first one has it.
func (a *agents) addressesOf(ag *agent) map[netip.Addr]law.VM {
	at := map[netip.Addr]law.VM{}
	for _, n := range sortedKeys(ag.has) {
		if a.vms.of(n) != ag {
			continue
		}
		for _, p := range ag.has[n].Addresses {
			if _, taken := at[p.Addr()]; p.IsSingleIP() && !taken {
				at[p.Addr()] = n
			}
		}
	}
	return at
}

// heldBy returns the addresses of a VM without those that another VM has. Prefixes of several addresses are not claimed.
func (a *agents) heldBy(vm *inventory.VM) (list []netip.Prefix) {
	for _, p := range vm.Addresses {
		if !p.IsSingleIP() || a.vmAt(p.Addr()) == vm.Number {
			list = append(list, p)
		}
	}
	return list
}
