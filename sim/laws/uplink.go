//go:build cgo

package laws

import (
	"fmt"
	"time"

	"weir/experiment"
	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
	"weir/sim/control"
	"weir/sim/event"
	"weir/sim/network"
)

// uplink is a hypervisor where a half of a controller's law decides about the rates of its VMs. It carries out windows of the
// controller, and rates of the law.
type uplink struct {
	c     *controlled
	site  *control.Site
	has   *inventory.Host
	vms   map[law.VM]*hostVM
	order []law.VM
	timer event.Event
	last  event.Time
	sent  telemetry.Sent
}

// putUplinks makes every guest a VM, and every port to the network an uplink with the law's half there. It returns what the agents
// report to the controller at first.
func (c *controlled) putUplinks(r *experiment.Run, params any) (inventories []law.Event, err error) {
	by := map[*network.Port]*uplink{}
	for i, node := range r.Config.Graph.Nodes {
		id := network.NodeID(i)
		if node.Kind != experiment.Guest {
			continue
		}
		nic := c.net.NIC(id) // before AddVM, which makes a guest's wire a port
		u := by[nic]
		if u == nil {
			u = &uplink{c: c, has: &inventory.Host{At: law.Host(id + 1), Rate: nic.Rate}, vms: map[law.VM]*hostVM{}}
			by[nic] = u
			c.uplinks = append(c.uplinks, u)
		}
		vm := guestOf(id)
		for _, g := range r.Config.Guarantees {
			if g.VM == node.Name {
				vm.Guarantee = inventory.Guarantee{Rate: g.Rate, Weight: g.Weight}
			}
		}
		u.has.VMs = append(u.has.VMs, vm)
	}
	for _, u := range c.uplinks {
		for _, vm := range u.has.VMs {
			id := hostOf(vm.Addresses[0].Addr())
			enforcer, err := c.hosts.AddVM(vm.Number, id)
			if err != nil {
				return nil, err
			}
			u.vms[vm.Number] = enforcer.(*hostVM)
			u.order = append(u.order, vm.Number)
		}
		l, err := c.spec.New(law.Uplink, params, &law.Topology{RTT: r.Config.RTT})
		if err != nil {
			return nil, err
		}
		name := c.net.Name(hostOf(u.has.VMs[0].Addresses[0].Addr()))
		if u.site, err = c.messenger.Add(control.SiteOptions{Name: name, Law: l, Enforcer: u}); err != nil {
			return nil, err
		}
		for _, vm := range u.order {
			c.sites[vm] = u.site
		}
		inventories = append(inventories, u.has)
	}
	return inventories, nil
}

// begin gives the law its VMs, and begins to report what they send.
func (u *uplink) begin() {
	u.site.Event(u.has)
	u.timer.Init(u)
	u.last = u.c.net.Queue.Now()
	u.c.net.Queue.Set(&u.timer, u.last+event.Time(u.c.every))
}

// Enforce carries out a grant of the controller or of the law here. Marks are an event for the law.
func (u *uplink) Enforce(now event.Time, a law.Action) error {
	g, ok := a.(law.Grant)
	if !ok {
		return fmt.Errorf("%T at a host", a)
	}
	if g.Kind == law.MarksGrant {
		u.site.Event(&telemetry.Marked{VM: g.Key.VM, Marks: g.Value})
		return nil
	}
	v := u.vms[g.Key.VM]
	if v == nil {
		return fmt.Errorf("grant for VM %d, which is not at this host", g.Key.VM)
	}
	return v.Enforce(now, g)
}

// Happen is the time to look at what the VMs sent.
func (u *uplink) Happen(_ *event.Event, now event.Time) {
	u.sent.T, u.sent.VMs = time.Duration(now-u.last), u.sent.VMs[:0]
	u.last = now
	for _, number := range u.order {
		v := u.vms[number]
		if v.sent > 0 {
			u.sent.VMs = append(u.sent.VMs, telemetry.VMSent{VM: number, Packets: v.sent})
		}
		v.sent = 0
	}
	u.c.net.Queue.Set(&u.timer, now+event.Time(u.c.every))
	u.site.Event(&u.sent)
}
