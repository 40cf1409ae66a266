package inventory

import (
	"net/netip"
	"slices"

	"weir/law"
)

// Guest is the VM that has an address, and its host. VM 0: no VM has it.
type Guest struct {
	VM   law.VM
	Host law.Host
}

// Guests finds VMs by their addresses. The first host that reports an address has it, until it gives it up or leaves; then the next one
// has it. Prefixes of several addresses are left out: a law cannot list their addresses. A law makes one with NewGuests.
type Guests struct {
	all    map[netip.Addr][]Guest // of each host that reports the address; the first one has it
	ofHost map[law.Host]map[netip.Addr]law.VM
}

// NewGuests returns an empty table.
func NewGuests() *Guests {
	return &Guests{all: map[netip.Addr][]Guest{}, ofHost: map[law.Host]map[netip.Addr]law.VM{}}
}

// Of returns who has an address.
func (g *Guests) Of(a netip.Addr) Guest {
	if all := g.all[a]; len(all) > 0 {
		return all[0]
	}
	return Guest{}
}

// Set replaces what a host's VMs may send from; nil: nothing. Of two VMs of the host with the same address the first one counts.
func (g *Guests) Set(h law.Host, vms []VM) {
	now := map[netip.Addr]law.VM{}
	for _, vm := range vms {
		for _, p := range vm.Addresses {
			if _, taken := now[p.Addr()]; p.IsSingleIP() && !taken {
				now[p.Addr()] = vm.Number
			}
		}
	}
	for a := range g.ofHost[h] {
		if _, still := now[a]; !still {
			g.remove(a, h)
		}
	}
	for a, vm := range now {
		g.add(a, Guest{vm, h})
	}
	if g.ofHost[h] = now; len(now) == 0 {
		delete(g.ofHost, h)
	}
}

// add makes the guest the one of its host that has the address.
func (g *Guests) add(a netip.Addr, guest Guest) {
	if i := g.find(a, guest.Host); i >= 0 {
		g.all[a][i] = guest
		return
	}
	g.all[a] = append(g.all[a], guest)
}

func (g *Guests) remove(a netip.Addr, h law.Host) {
	i := g.find(a, h)
	if g.all[a] = slices.Delete(g.all[a], i, i+1); len(g.all[a]) == 0 {
		delete(g.all, a)
	}
}

func (g *Guests) find(a netip.Addr, h law.Host) int {
	return slices.IndexFunc(g.all[a], func(one Guest) bool { return one.Host == h })
}
