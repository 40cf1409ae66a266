package inventory_test

import (
	"net/netip"
	"testing"

	"weir/law"
	"weir/law/inventory"
)

// The first host that reports an address has it until it gives it up or leaves. So no other host can take it, and a VM can move.
func TestGuests(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	vm := func(n law.VM, of ...string) inventory.VM {
		v := inventory.VM{Number: n}
		for _, p := range of {
			v.Addresses = append(v.Addresses, netip.MustParsePrefix(p))
		}
		return v
	}
	g := inventory.NewGuests()
	check := func(what string, ofA, ofB inventory.Guest) {
		t.Helper()
		if g.Of(a) != ofA || g.Of(b) != ofB {
			t.Errorf("%s: %+v and %+v, want %+v and %+v", what, g.Of(a), g.Of(b), ofA, ofB)
		}
	}
	none := inventory.Guest{}
	g.Set(1, []inventory.VM{vm(1, "10.0.0.1/32", "10.0.0.0/24"), vm(2, "10.0.0.2/32")})
	check("first", inventory.Guest{VM: 1, Host: 1}, inventory.Guest{VM: 2, Host: 1})
	g.Set(2, []inventory.VM{vm(1, "10.0.0.1/32")})
	check("another host reports it", inventory.Guest{VM: 1, Host: 1}, inventory.Guest{VM: 2, Host: 1})
	g.Set(1, []inventory.VM{vm(3, "10.0.0.2/32")})
	check("the first host gives it up", inventory.Guest{VM: 1, Host: 2}, inventory.Guest{VM: 3, Host: 1})
	g.Set(1, []inventory.VM{vm(9, "10.0.0.1/32"), vm(3, "10.0.0.2/32"), vm(4, "10.0.0.2/32")})
	check("the old host reports it again", inventory.Guest{VM: 1, Host: 2}, inventory.Guest{VM: 3, Host: 1})
	g.Set(1, nil)
	check("the old host leaves", inventory.Guest{VM: 1, Host: 2}, none)
	g.Set(2, nil)
	check("the new host leaves", none, none)
}
