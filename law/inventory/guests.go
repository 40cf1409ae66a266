package inventory

import (
	"net/netip"

	"weir/law"
)

// Guest is the VM that has an address, and its host. VM 0: no VM has it.
type Guest struct {
	VM   law.VM
	Host law.Host
}

// Guests finds VMs by their addresses. Prefixes of several addresses are left out: a law cannot list their addresses. A law
// makes one with NewGuests.
type Guests struct {
	all    map[netip.Addr]Guest
	ofHost map[law.Host][]netip.Addr
}

// NewGuests returns an empty table.
func NewGuests() *Guests {
	return &Guests{all: map[netip.Addr]Guest{}, ofHost: map[law.Host][]netip.Addr{}}
}

// Of returns who has an address.
func (g *Guests) Of(a netip.Addr) Guest { return g.all[a] }

// Set replaces what a host's VMs may send from; nil: nothing. An address that another host has reported since stays there.
func (g *Guests) Set(h law.Host, vms []VM) {
	for _, a := range g.ofHost[h] {
		if g.all[a].Host == h { // it may have moved
			delete(g.all, a)
		}
	}
	delete(g.ofHost, h)
	for _, vm := range vms {
		for _, p := range vm.Addresses {
			if p.IsSingleIP() {
				g.all[p.Addr()] = Guest{vm.Number, h}
				g.ofHost[h] = append(g.ofHost[h], p.Addr())
			}
		}
	}
}
