package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// programs judges what else reads or steers packets on the ports: in the order in which a packet that
// leaves meets it.
func (j *judge) programs() {
	quiet := true
	for i := range j.f.Devices {
		d := &j.f.Devices[i]
		chosen := slices.Contains(j.ports, d)
		before := len(j.found)
		j.xdp(d, chosen)
		if chosen {
			j.egress(d)
			j.ingress(d)
		}
		j.filters(d, chosen)
		quiet = quiet && len(j.found) == before
	}
	j.egressHooks()
	if quiet && len(j.f.Bypass.EgressHooks) == 0 && !j.hidden(seePrograms, seeDevices) {
		j.add(Finding{Area: AreaPrograms, Check: "programs", Level: OK, Text: "no other program of tcx, tc or XDP on these ports"})
	}
}

// hidden reports whether any of these could not be read.
func (j *judge) hidden(what ...string) bool {
	return slices.ContainsFunc(j.f.Unseen, func(u Unseen) bool { return slices.Contains(what, u.What) })
}

func (p *Program) String() string {
	if p.Name == "" {
		return fmt.Sprintf("program %d", p.ID)
	}
	return fmt.Sprintf("%s (%d)", p.Name, p.ID)
}

// egressHooks reports chains of nftables before tcx.
func (j *judge) egressHooks() {
	for _, h := range j.f.Bypass.EgressHooks {
		j.add(Finding{
			Area: AreaPrograms, Check: "programs.nft_egress", Subject: h.Table + " " + h.Name, Level: Note,
			Text:   "chain of nftables at egress of " + some(h.Devices) + ": packets pass it before Weir's program, and what it drops, copies or forwards is not Weir's",
			Remedy: "nft list table netdev " + shell(h.Table),
		})
	}
}

func list(programs []Program) string {
	var out []string
	for i := range programs {
		out = append(out, programs[i].String())
	}
	return some(out)
}

func (j *judge) egress(d *Device) {
	if len(d.Egress) == 0 {
		return
	}
	n := Finding{Area: AreaPrograms, Check: "programs.egress", Subject: d.Name, Level: OK, port: d.Name}
	ours := slices.IndexFunc(d.Egress, func(p Program) bool { return p.Ours })
	switch {
	case ours > 0:
		n.Level, n.asks = Problem, attaching
		n.Text = fmt.Sprintf("at egress, in order: %s: those before Weir's may end the chain, so that it never sees a packet", list(d.Egress))
		n.Remedy = "restart weir switch, which attaches at the head, after the other; or attach the other at the tail (its own settings)"
	case ours == 0 && len(d.Egress) == 1:
		n.Text = "at egress: Weir's own program alone"
	case ours == 0:
		n.Text = fmt.Sprintf("at egress, in order: %s: Weir's is first, and passes packets on", list(d.Egress))
	default:
		n.Level = Note
		n.Text = fmt.Sprintf("at egress, in order: %s: Weir will attach before them, and passes packets on", list(d.Egress))
		n.Remedy = "start weir switch after them; one that attaches at the head later would run before Weir's (weir status shows that)"
	}
	j.add(n)
}

func (j *judge) ingress(d *Device) {
	others := slices.DeleteFunc(slices.Clone(d.Ingress), func(p Program) bool { return p.Ours })
	if len(others) == 0 {
		return
	}
	j.add(Finding{
		Area: AreaPrograms, Check: "programs.ingress", Subject: d.Name, Level: Note, port: d.Name,
		Text:   fmt.Sprintf("at ingress: %s: what it redirects to another device still passes that one's egress, but not with bpf_redirect_peer (container networks do that)", list(others)),
		Remedy: "compare the packets of weir status with those of ip -s link once attached",
	})
}

func (j *judge) xdp(d *Device, chosen bool) {
	if d.XDP == nil || d.XDP.Ours {
		return
	}
	n := Finding{Area: AreaPrograms, Check: "programs.xdp", Subject: d.Name, Level: Note, port: d.Name}
	n.Text = fmt.Sprintf("XDP program %s (%s): it sees packets before the kernel does, and may drop or send back some", d.XDP, d.XDPMode)
	n.Remedy = "packets that it drops or sends back do not reach Weir; nothing to do if it only filters"
	if d.XDP.Redirects {
		n.Text = fmt.Sprintf("XDP program %s (%s) has a map to redirect by: packets so forwarded leave by no egress hook", d.XDP, d.XDPMode)
		n.Remedy = "off for those packets: forward by the kernel what Weir is to hold (ip link set " + shell(d.Name) + " xdp off, if it is not needed)"
		n.Level = Problem
		if chosen {
			n.asks = attaching
		}
	}
	j.add(n)
}

// filters judges the classifiers of tc; those in hardware matter on every device, for they steer packets
// past all others.
func (j *judge) filters(d *Device, chosen bool) {
	kinds := func(of func(Filter) bool) (out []string) {
		for _, f := range d.Filters {
			if of(f) {
				text := f.Kind
				if f.Name != "" {
					text += " " + f.Name
				}
				out = append(out, text)
			}
		}
		return slices.Compact(out)
	}
	if hw := kinds(func(f Filter) bool { return f.InHW || f.SkipsSW }); len(hw) > 0 {
		j.add(Finding{
			Area: AreaPrograms, Check: "programs.hardware", Subject: d.Name, Level: Problem, port: d.Name, asks: attaching,
			Text:   "the NIC carries out filters of tc itself: " + some(hw) + ": packets that match are forwarded or dropped without the kernel",
			Remedy: "off for those packets: ethtool -K " + shell(d.Name) + " hw-tc-offload off (Open vSwitch: other_config:hw-offload=false)",
		})
	}
	if !chosen {
		return
	}
	if out := kinds(func(f Filter) bool { return f.Egress }); len(out) > 0 {
		j.add(Finding{
			Area: AreaPrograms, Check: "programs.clsact", Subject: d.Name, Level: OK, port: d.Name,
			Text: "filters at egress (clsact): " + some(out) + ": they run after Weir's program and see the windows that it wrote",
		})
	}
	if in := kinds(func(f Filter) bool { return !f.Egress && !f.Root }); len(in) > 0 {
		j.add(Finding{
			Area: AreaPrograms, Check: "programs.clsact", Subject: d.Name, Level: Note, port: d.Name,
			Text:   "filters at ingress (clsact): " + some(in) + ": they drop or redirect packets first",
			Remedy: "policing at ingress ruins TCP more than any queue: tc -s filter show dev " + shell(d.Name) + " ingress",
		})
	}
	if root := kinds(func(f Filter) bool { return f.Root }); len(root) > 0 {
		j.add(Finding{
			Area: AreaPrograms, Check: "programs.classes", Subject: d.Name, Level: Note, port: d.Name,
			Text:   "filters choose classes in its queue discipline (" + some(root) + "): Weir takes the queue as one, of the default class",
			Remedy: "give rate and buffer in the configuration if most traffic goes to another class",
		})
	}
}

// bypass judges what moves packets past the kernel on the whole machine.
func (j *judge) bypass() {
	b, before := &j.f.Bypass, len(j.found)
	add := func(check string, level Level, text, remedy string) {
		j.add(Finding{Area: AreaBypass, Check: check, Level: level, Text: text, Remedy: remedy})
	}
	var dpdk []string
	for _, d := range b.UserDrivers {
		dpdk = append(dpdk, d.Bus+" ("+d.Driver+")")
	}
	if len(dpdk) > 0 {
		add("bypass.user_driver", Blocked, "off on "+some(dpdk)+": a process or a VM drives this network hardware, no kernel hook sees it",
			"Weir holds what passes kernel devices only: bind it to its kernel driver (dpdk-devbind.py -b), or hold its flows at the next switch")
	}
	if len(b.DPDK) > 0 {
		add("bypass.dpdk", Problem, "DPDK processes are running ("+some(b.DPDK)+"): ports that they drive are off", "name only ports that the kernel drives")
	}
	if len(b.VhostUser) > 0 {
		add("bypass.vhost_user", Blocked, "off for VMs on vhost-user sockets ("+some(b.VhostUser)+"): their switch moves packets in memory, past the kernel",
			"give those VMs taps (vhost-net), or limit their flows at the next switch")
	}
	if len(b.VDPA) > 0 {
		add("bypass.vdpa", Blocked, "off for VMs on vDPA devices ("+some(b.VDPA)+"): the NIC moves their packets", "give those VMs taps (vhost-net)")
	}
	if len(b.Daemons) > 0 {
		add("bypass.daemon", Note, "running here: "+some(b.Daemons)+": its user-space ports are off, those of the kernel are not",
			"Open vSwitch: ovs-vsctl get bridge BRIDGE datapath_type; netdev is user space: its AF_PACKET ports pass Weir's hook, its DPDK and AF_XDP ports do not")
	}
	if b.XDPSockets > 0 {
		add("bypass.af_xdp", Problem, plural(b.XDPSockets, "AF_XDP socket")+" here: packets that they send pass no hook", "off for their packets; nothing to do if they only receive")
	}
	j.flowtables(add)
	j.direct(add)
	if b.VhostNet {
		add("bypass.vhost_net", OK, "vhost-net serves VMs: packets to a VM pass the egress of its tap, where Weir can be", "")
	}
	if len(j.found) == before && !j.hidden(seeBypass) {
		add("bypass", OK, "no DPDK, vhost-user, vDPA, AF_XDP or flow offload seen: packets pass the kernel", "")
	}
}

// direct are devices whose packets reach their VM or container without leaving by any device.
func (j *judge) direct(add func(check string, level Level, text, remedy string)) {
	byKind := map[string][]string{}
	for i := range j.f.Devices {
		d := &j.f.Devices[i]
		byKind[d.Kind] = append(byKind[d.Kind], d.Name)
	}
	if taps := slices.Concat(byKind["macvtap"], byKind["ipvtap"]); len(taps) > 0 {
		add("bypass.macvtap", Blocked, "off for data that VMs on "+some(taps)+" send: their acknowledgements come from the wire straight to the VM and leave by no device",
			"give those VMs taps in a bridge, or limit their flows at the next switch")
	}
	if own := slices.Concat(byKind["macvlan"], byKind["ipvlan"]); len(own) > 0 {
		add("bypass.macvlan", Note, "data that "+some(own)+" send is not limited here: its acknowledgements come from the wire directly to them; data that they send to each other is not limited either",
			"use veth pairs in a bridge, or limit their flows at the next switch")
	}
	if kits := byKind["netkit"]; len(kits) > 0 {
		add("bypass.netkit", Note, "packets to "+some(kits)+" (netkit) may be put straight into the container", "name the uplink as a port, and compare weir status with ip -s link")
	}
}

func (j *judge) flowtables(add func(check string, level Level, text, remedy string)) {
	for _, t := range j.f.Bypass.Flowtables {
		name := t.Table + " " + t.Name + " (" + some(t.Devices) + ")"
		if t.Hardware {
			add("bypass.flowtable", Problem, "nftables flowtable "+name+" with flags offload: the NIC forwards its flows without the kernel",
				"off for those flows: take 'flags offload' out of the flowtable")
			continue
		}
		add("bypass.flowtable", OK, "nftables flowtable "+name+": it skips the IP stack, and its packets still pass Weir's hook at the port that they leave by", "")
	}
}

// joined lists what is there, without what is not.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}
