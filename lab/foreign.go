package lab

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"weir/experiment"
	"weir/lab/netstack"
)

// The TCP of a guest whose stack is netstack runs in this process (package netstack). The kernel of its namespace
// does not have the guest's address, so it is silent: it drops packets for that address.

const foreignStack = "netstack"

// useStacks determines for which of its profiles each guest is netstack. A profile may have one stack for the
// sending side and another for the receiving side.
func (p *plan) useStacks() error {
	said := map[*node]map[int]string{}
	for _, item := range p.cfg.Items {
		g := p.cfg.Profiles[item.Profile]
		from := cmp.Or(g.Stack, "linux")
		for _, pair := range item.Pairs {
			for _, side := range [][2]string{{pair.Src, from}, {pair.Dst, cmp.Or(g.ToStack, from)}} {
				name, stack := side[0], side[1]
				n := p.byName[name]
				if n == nil {
					continue
				}
				if said[n] == nil {
					said[n] = map[int]string{}
				}
				if other := said[n][item.Profile]; other != "" && other != stack {
					return fmt.Errorf("guest %s would need the stacks %s and %s at once: it sends and receives data, "+
						"but guests.stack is %s and guests.to_stack %s: use other guests for one of the traffic items",
						name, min(stack, other), max(stack, other), from, g.ToStack)
				}
				said[n][item.Profile] = stack
			}
		}
	}
	for n, stacks := range said {
		for profile, stack := range stacks {
			if stack == foreignStack {
				n.foreign = append(n.foreign, profile)
			}
		}
	}
	return nil
}

// isForeign reports whether n is netstack for a profile; in a lab without a run no guest is, because no process
// would be its stack.
func (l *Lab) isForeign(n *node, profile int) bool {
	if !slices.Contains(n.foreign, profile) {
		return false
	}
	if !l.netstack {
		l.unmet.add(n.name, "guests.stack", foreignStack, "netstack works only in a run; without a run this guest's TCP is Linux's")
	}
	return l.netstack
}

// kernelProfiles returns the profiles with traffic for which n's TCP is Linux's.
func (l *Lab) kernelProfiles(n *node) []int {
	return slices.DeleteFunc(slices.Clone(n.profiles), func(profile int) bool {
		return l.netstack && slices.Contains(n.foreign, profile)
	})
}

// startForeign starts netstack for the profiles of n that have it.
func (l *Lab) startForeign(n *node) error {
	for profile := range l.plan.cfg.Profiles {
		if !l.isForeign(n, profile) {
			continue
		}
		queue, err := l.wayOut(n)
		if err != nil {
			return err
		}
		if err := n.w.do(func() error { return l.openForeign(n, profile, queue) }); err != nil {
			return err
		}
	}
	return nil
}

// openForeign starts netstack for a profile of guest n, on n's thread.
func (l *Lab) openForeign(n *node, profile int, queue *netstack.Queue) error {
	settings := netstackSettings(l.plan.cfg.Profiles[profile])
	for _, u := range settings.Unmet() {
		l.unmet.add(n.name, "guests."+u.Key, u.Value, u.Reason)
	}
	eth := n.ports[0]
	guest, err := netstack.Open(netstack.Config{
		Ifindex: eth.ifindex, MAC: eth.mac, MTU: mtu, Addr: n.addr(profile),
		Next: l.plan.nextHop(n), Settings: settings, Queue: queue,
	})
	if err != nil {
		return err
	}
	if n.guests == nil {
		n.guests = map[int]*netstack.Guest{}
	}
	n.guests[profile] = guest
	return nil
}

// wayOut returns the queue through which guest n leaves its host: its own, or its hypervisor's; nil if there is
// none.
func (l *Lab) wayOut(n *node) (queue *netstack.Queue, err error) {
	p := l.plan.routerPort(n).far
	if p.rate == 0 {
		return nil, nil
	}
	err = p.node.w.do(func() error {
		queue, err = netstack.OpenQueue(p.ifindex, int64(p.rate))
		return err
	})
	return queue, err
}

// netstackSettings converts a profile's settings to netstack's. Settings that are not set keep netstack's
// defaults.
func netstackSettings(g experiment.Guests) netstack.Settings {
	s := netstack.Defaults()
	s.CC = cmp.Or(g.CC, s.CC)
	if g.ECN != nil {
		s.ECN = *g.ECN
	}
	if g.InitialWindow != nil {
		s.InitialWindow = *g.InitialWindow
	}
	if g.RTOMin != nil {
		s.RTOMin = g.RTOMin.Std()
	}
	if g.InitialRTO != nil && *g.InitialRTO > 0 {
		s.InitialRTO = g.InitialRTO.Std()
	}
	if g.DelayedACK != nil {
		s.DelayedACK = *g.DelayedACK
	}
	if g.SACK != nil {
		s.SACK = *g.SACK
	}
	return s
}

// nextHop returns a function for the next hop of guest n's packets: the same as guestNeighbours sets in a kernel.
func (p *plan) nextHop(n *node) func(netip.Addr) (net.HardwareAddr, bool) {
	if p.routed {
		mac := p.routerPort(n).mac
		return func(netip.Addr) (net.HardwareAddr, bool) { return mac, true }
	}
	type place struct{ subnet, host byte }
	macs := map[place]net.HardwareAddr{}
	for _, g := range p.guests() {
		macs[place{byte(g.subnet), byte(g.host)}] = g.ports[0].mac
	}
	return func(a netip.Addr) (net.HardwareAddr, bool) {
		ip := a.As4()
		mac, ok := macs[place{ip[2], ip[3]}]
		return mac, ok
	}
}

// Guest returns the netstack of a node for one of the configuration's guest profiles; nil if the TCP is Linux's.
func (l *Lab) Guest(node string, profile int) *netstack.Guest {
	if n := l.plan.byName[node]; n != nil {
		return n.guests[profile]
	}
	return nil
}

// troubleOfGuests returns what went wrong in netstack guests and not in the network, one line each: packets that
// this process lost or cannot count, and connections that stopped.
func (l *Lab) troubleOfGuests() (lines, stopped []string) {
	stuck := 0
	for _, n := range l.plan.guests() {
		lost := 0
		for _, g := range n.guests {
			trouble, err := g.Trouble()
			if err != nil {
				lines = append(lines, fmt.Sprintf("netstack at %s: its losses cannot be read: %v", n.name, err))
			}
			lost += trouble.Lost
			stuck += trouble.Stuck
		}
		if lost > 0 {
			lines = append(lines, fmt.Sprintf("netstack at %s: this process was too slow and lost %d packets: "+
				"the run is not valid; repeat it on a less busy machine", n.name, lost))
		}
	}
	if stuck > 0 {
		stopped = append(stopped, fmt.Sprintf("netstack: %d connections stopped permanently with data to send, because of a defect in netstack's "+
			"loss recovery or its cubic: repeat the run, with guests.cc reno or a larger buffer", stuck))
	}
	return lines, stopped
}

// closeForeign ends every netstack of the lab.
func (l *Lab) closeForeign() error {
	var errs []error
	for _, n := range l.plan.guests() {
		for _, g := range n.guests {
			errs = append(errs, g.Close())
		}
		n.guests = nil
	}
	return errors.Join(errs...)
}
