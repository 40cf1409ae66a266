package doctor

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"weir/agent/switchd"
)

// Options selects the ports and the configuration to check.
type Options struct {
	// Ports are names of devices, or patterns (path.Match). None: every device that can be a port.
	Ports []string
	// Config is the configuration for which the ports are checked; nil: the defaults. Without Ports, its ports are checked.
	Config  *switchd.Config
	Version string // of Weir
	// Agent is `weir switch` as this build has it, with its law.
	Agent *switchd.Agent
}

// ports are the names and patterns that are wanted: those given, else those of the configuration.
func (o *Options) ports() []string {
	if len(o.Ports) > 0 || o.Config == nil {
		return o.Ports
	}
	var out []string
	for _, r := range o.Config.Ports {
		out = append(out, r.Match...)
	}
	return out
}

// CheckPattern refuses what is neither a device's name nor a pattern.
func CheckPattern(port string) error {
	if _, err := path.Match(port, ""); err != nil || port == "" {
		return fmt.Errorf("port %q: neither a name nor a pattern", port)
	}
	return nil
}

// Check makes the report on a machine from its facts.
func Check(f *Facts, o Options) *Report {
	o.Ports = o.ports()
	j := &judge{f: f, o: o, level: OK}
	j.kernel()
	if !j.hidden(seeProcess) {
		j.rights()
	}
	for _, d := range j.choose() {
		j.port(d)
	}
	j.programs()
	j.bypass()
	j.mtu()
	j.tcp()
	j.tunnels()
	j.memory()
	j.state()
	j.unseen()
	slices.SortStableFunc(j.found, func(a, b Finding) int {
		return cmp.Compare(slices.Index(areas, a.Area), slices.Index(areas, b.Area))
	})
	host := f.Host
	host.Name, host.Release = clean(host.Name), clean(host.Release)
	return &Report{
		Schema: reportSchema, Weir: o.Version, Host: host, Level: j.level, Summary: j.summary(), Findings: j.found,
	}
}

// judge goes through the facts and collects findings.
type judge struct {
	f     *Facts
	o     Options
	ports []*Device // that were chosen, and that a switch can be on
	found []Finding
	level Level
}

// add adds a finding. It makes all text that comes from the machine safe to print.
func (j *judge) add(n Finding) {
	n.Subject, n.Text, n.Remedy = clean(n.Subject), clean(n.Text), clean(n.Remedy)
	j.level = worse(j.level, n.Level)
	j.found = append(j.found, n)
}

// sysctl is a setting of the namespace.
func (j *judge) sysctl(name string) (value string, known bool) {
	value, known = j.f.TCP.Sysctls[name]
	return strings.Join(strings.Fields(value), " "), known
}

// device finds one by its name.
func (j *judge) device(name string) *Device {
	for i := range j.f.Devices {
		if j.f.Devices[i].Name == name {
			return &j.f.Devices[i]
		}
	}
	return nil
}

// members are the devices that have a bridge, a bond or a VRF as their master.
func (j *judge) members(master string) (out []*Device) {
	for i := range j.f.Devices {
		if j.f.Devices[i].Master == master {
			out = append(out, &j.f.Devices[i])
		}
	}
	return out
}

func names(devices []*Device) []string {
	var out []string
	for _, d := range devices {
		out = append(out, d.Name)
	}
	return out
}

// choose returns the wanted devices, or those that can be ports. It adds a finding for each wanted device that is missing.
func (j *judge) choose() (chosen []*Device) {
	if len(j.o.Ports) == 0 {
		for i := range j.f.Devices {
			if d := &j.f.Devices[i]; j.place(d).attach && d.Up {
				chosen = append(chosen, d)
			}
		}
		if len(chosen) == 0 && !j.hidden(seeDevices) {
			j.add(Finding{
				Area: AreaPorts, Check: "port.none", Level: Problem, Text: "no device here can be a port: none is up, or all are loopbacks, bridges and tunnels",
				Remedy: "run it in the network namespace of the switch (ip netns exec NAMESPACE weir doctor)", bars: attaching,
			})
		}
		return chosen
	}
	for _, p := range j.o.Ports {
		found := false
		for i := range j.f.Devices {
			d := &j.f.Devices[i]
			if ok, err := path.Match(p, d.Name); d.Name != p && (err != nil || !ok) {
				continue
			}
			found = true
			if !slices.Contains(chosen, d) {
				chosen = append(chosen, d)
			}
		}
		if !found && !j.hidden(seeDevices) {
			j.add(Finding{
				Area: AreaPorts, Check: "port.missing", Subject: p, Level: Problem, Text: "no such device in this network namespace; weir switch refuses it, or waits for it (--wait, -f)",
				Remedy: "check the spelling, or run it in the port's namespace (ip netns exec NAMESPACE weir doctor)", port: p, asks: attaching,
			})
		}
	}
	return chosen
}

// attaching are the abilities that need a port.
var attaching = []Ability{Switching, Observing, Marking, Edging}

// queueing are those that need the length of its queue.
var queueing = []Ability{Switching, Observing, Marking}

// place is the role of a device in the network, and whether Weir can attach to it.
type place struct {
	role   string
	attach bool
	// instead: what to name in its place, if attach is false.
	instead string
	level   Level
}

// tunnelKinds hide TCP from the device that they stand on.
var tunnelKinds = []string{
	"vxlan", "geneve", "gre", "gretap", "ip6gre", "ip6gretap", "erspan", "ip6erspan", "ipip", "sit", "ip6tnl",
	"vti", "vti6", "xfrm", "wireguard", "gtp", "bareudp", "ovpn", "l2tpeth", "macsec", "amt",
}

// fallbacks are devices that the kernel makes by itself with a tunnel's module.
var fallbacks = []string{
	"tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip6tnl0", "ip6gre0", "ip_vti0", "ip6_vti0",
}

func (d *Device) isTunnel() bool {
	return slices.Contains(tunnelKinds, d.Kind) && !slices.Contains(fallbacks, d.Name)
}

// place returns the place of a device. The kind counts first, because it decides where packets go.
func (j *judge) place(d *Device) place {
	switch {
	case d.Parking:
		return place{role: "Weir's parking, where packets wait", instead: "the ports that traffic passes", level: Note}
	case d.Loopback:
		return place{role: "loopback", instead: "the ports that traffic passes", level: Note}
	case slices.Contains(fallbacks, d.Name) && d.Kind != "":
		return place{role: "a tunnel's fallback device", instead: "the tunnel's own device", level: Note}
	}
	switch d.Kind {
	case "dummy", "ifb", "nlmon", "vcan", "can":
		return place{role: "a " + d.Kind + " device", instead: "the ports that traffic passes", level: Note}
	case "bridge", "vrf", "openvswitch":
		return place{role: "the " + d.Kind + " itself", instead: j.insteadMembers(d, "its ports"), level: Problem}
	case "bond", "team":
		return place{role: "a " + d.Kind + ": queues are those of its links", instead: j.insteadMembers(d, "its links"), level: Problem}
	case "vlan":
		if !keepsQueue(d.Root.Kind) {
			return place{role: "a VLAN, whose packets queue on the device below", instead: j.below(d), level: Problem}
		}
		return place{role: "VLAN with a shaper of its own on " + d.Lower, attach: true}
	case "macvlan", "ipvlan":
		return place{role: "a " + d.Kind + ", whose packets queue on the device below", instead: j.below(d), level: Problem}
	case "macvtap", "ipvtap":
		return place{role: "a " + d.Kind + " of a VM: traffic to the VM leaves by no device, so its acknowledgements cannot be changed", instead: "a tap in a bridge for the VM", level: Blocked}
	case "netkit":
		return place{role: "a netkit device: packets go straight into the container", instead: "the uplink", level: Problem}
	}
	if d.NoEthernet {
		return place{role: "a device without Ethernet headers, which Weir's programs read", instead: "the ports at the other end of what passes here", level: Blocked}
	}
	if d.isTunnel() {
		return place{role: "tunnel (" + d.Kind + ")", attach: slices.Contains(j.o.Ports, d.Name) || keepsQueue(d.Root.Kind), instead: j.below(d), level: Note}
	}
	return place{role: j.role(d), attach: true}
}

func (j *judge) insteadMembers(d *Device, what string) string {
	if m := names(j.members(d.Name)); len(m) > 0 {
		return what + " (" + some(m) + ")"
	}
	return what
}

func (j *judge) below(d *Device) string {
	if d.Lower == "" {
		return "the device below, in its own namespace"
	}
	if lower := j.device(d.Lower); lower != nil && (lower.Kind == "bond" || lower.Kind == "team") {
		return j.insteadMembers(lower, "the links of "+lower.Name)
	}
	return d.Lower
}

// role returns the role of a device that can be a port.
func (j *judge) role(d *Device) string {
	what := "port"
	switch {
	case d.Kind == "tun" || d.Kind == "tuntap":
		what = "port of a VM (tap)"
	case d.Kind == "veth" && d.PeerAway:
		what = "port of a container or another namespace"
	}
	switch {
	case d.MasterKind == "bond" || d.MasterKind == "team":
		return "link of " + d.Master
	case d.MasterKind == "bridge":
		return what + " of bridge " + d.Master
	case d.MasterKind == "openvswitch":
		return what + " of Open vSwitch"
	case d.Kind == "" && j.f.TCP.Forwarding && d.Addresses > 0:
		return "routed port"
	case d.Kind == "" && what == "port":
		return "uplink of this host"
	}
	return what
}
