package bus

import (
	"cmp"

	"weir/bus/inband"
	"weir/bus/weirv1"
	"weir/law"
)

// FramesOf returns how an agent with this inventory takes frames. x must come from a decoder.
func FramesOf(x *weirv1.Inventory) inband.Target {
	h := x.GetHypervisor()
	to := inband.Target{Address: h.GetFrames(), Form: cmp.Or(inband.Form(h.GetFramesForm()), inband.Ethernet), VMs: map[law.VM][4]byte{}}
	if to.Form != inband.IPID {
		return to
	}
	for _, g := range x.GetGuests() {
		for _, r := range g.GetAddresses() {
			if p := r.Law(); p.Addr().Is4() && p.IsSingleIP() {
				to.VMs[law.VM(g.GetVm())] = p.Addr().As4()
				break
			}
		}
	}
	return to
}
