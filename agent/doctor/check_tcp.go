package doctor

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"weir/law"
)

// mtu compares the ports with each other and with what stands on them.
func (j *judge) mtu() {
	before := len(j.found)
	byMaster := map[string][]*Device{}
	var order []string
	for _, d := range j.ports {
		if len(byMaster[d.Master]) == 0 {
			order = append(order, d.Master)
		}
		byMaster[d.Master] = append(byMaster[d.Master], d)
	}
	for _, master := range order {
		j.sameMTU(master, byMaster[master])
	}
	for i := range j.f.Devices {
		j.tunnelMTU(&j.f.Devices[i])
	}
	var jumbo []string
	for _, d := range j.ports {
		if d.MTU > 1600 {
			jumbo = append(jumbo, fmt.Sprintf("%s (%d)", d.Name, d.MTU))
		}
	}
	if len(jumbo) > 0 {
		j.add(Finding{
			Area: AreaMTU, Check: "mtu.jumbo", Level: Note, Text: "jumbo packets on " + some(jumbo) + ": no window goes below a segment, so fewer flows keep the queue at its target",
			Remedy: "choose buffer and target_fraction for segments of that length",
		})
	}
	if len(j.found) == before && len(j.ports) > 0 {
		j.add(Finding{Area: AreaMTU, Check: "mtu.same", Level: OK, Text: fmt.Sprintf("all ports have an MTU of %d", j.ports[0].MTU)})
	}
}

// sameMTU compares ports that packets pass between.
func (j *judge) sameMTU(master string, ports []*Device) {
	var seen []string
	differ := false
	for _, d := range ports {
		seen = append(seen, fmt.Sprintf("%s %d", d.Name, d.MTU))
		differ = differ || d.MTU != ports[0].MTU
	}
	if !differ {
		return
	}
	kind := ports[0].MasterKind
	switch {
	case kind == "bridge" || kind == "openvswitch":
		j.add(Finding{
			Area: AreaMTU, Check: "mtu.mismatch", Subject: master, Level: Problem,
			Text:   "ports of one " + kind + " differ: " + some(seen) + ": packets that are too long for a port are dropped there without an error, and TCP stalls",
			Remedy: "ip link set PORT mtu N: one MTU for all ports and for the machines behind them",
		})
	case master == "":
		j.add(Finding{
			Area: AreaMTU, Check: "mtu.mismatch", Level: Note, Text: "ports differ: " + some(seen) + ": routes between them rely on path MTU discovery",
			Remedy: "let ICMP 'fragmentation needed' (IPv6: 'packet too big') pass",
		})
	}
}

// overhead is what a tunnel or a VLAN adds to a packet, at least, in bytes above IPv4.
var overhead = map[string]int{
	"vxlan": 50, "geneve": 50, "gretap": 38, "gre": 24, "ipip": 20, "sit": 20, "wireguard": 60, "macsec": 32, "vlan": 0,
}

func (j *judge) tunnelMTU(d *Device) {
	lower := j.device(d.Lower)
	add, known := overhead[d.Kind]
	if lower == nil || !known || slices.Contains(fallbacks, d.Name) || d.MTU+add <= lower.MTU {
		return
	}
	j.add(Finding{
		Area: AreaMTU, Check: "mtu.tunnel", Subject: d.Name, Level: Problem,
		Text:   fmt.Sprintf("its MTU %d and the %d bytes that a %s adds are more than %s carries (%d): packets are fragmented or dropped", d.MTU, add, d.Kind, lower.Name, lower.MTU),
		Remedy: fmt.Sprintf("ip link set %s mtu %d, or a larger MTU on %s", shell(d.Name), lower.MTU-add, shell(lower.Name)),
	})
}

// tcp judges what this namespace's own connections do; those that only pass have their hosts' settings.
func (j *judge) tcp() {
	add := func(check string, level Level, text, remedy string) {
		j.add(Finding{Area: AreaTCP, Check: check, Level: level, Text: text, Remedy: remedy})
	}
	t := &j.f.TCP
	if v, known := j.sysctl("net.ipv4.tcp_window_scaling"); known && v == "0" {
		add("tcp.window_scaling", Note, "tcp_window_scaling=0: windows of this host's connections end at 64 KB; Weir holds them, but a long path is slow without it",
			"sysctl -w net.ipv4.tcp_window_scaling=1")
	}
	j.receiveWindow(add)
	if v, known := j.sysctl("net.ipv4.tcp_shrink_window"); known && v != "0" {
		add("tcp.shrink_window", Note, "tcp_shrink_window=1: this host's receivers take windows back by themselves, as Weir does; senders here bear both", "")
	}
	switch v, known := j.sysctl("net.ipv4.tcp_ecn"); {
	case !known:
	case v == "0":
		add("tcp.ecn", Note, "tcp_ecn=0: this host's connections refuse ECN, so marking does not reach them; Weir's windows need none", "for marking: sysctl -w net.ipv4.tcp_ecn=1 at the guests")
	case v == "2":
		add("tcp.ecn", OK, "tcp_ecn=2: this host accepts ECN and does not ask for it; Weir's windows need none, marking needs 1 at the guests", "")
	case v == "1":
		add("tcp.ecn", OK, "tcp_ecn=1: this host's connections negotiate ECN", "")
	default:
		add("tcp.ecn", Note, "tcp_ecn="+v+": connections may negotiate AccECN, which uses a reserved bit: scale: shim leaves those alone", "scale: learn (the default) is not concerned")
	}
	if v, known := j.sysctl("net.core.default_qdisc"); known {
		add("tcp.default_qdisc", OK, "new devices get "+v+" (net.core.default_qdisc)", "")
	}
	if v, known := j.sysctl("net.bridge.bridge-nf-call-iptables"); known && v == "1" && j.bridged() {
		add("tcp.bridge_nf", Note, "bridged packets also pass iptables (bridge-nf-call-iptables=1): each costs more, and rules may drop some",
			"sysctl -w net.bridge.bridge-nf-call-iptables=0, unless rules rely on it (Docker's and Kubernetes' may)")
	}
	j.mixedVLANs(add)
	if v, known := j.sysctl("net.mptcp.enabled"); known && v == "1" {
		text := "MPTCP may be used: each subflow is a flow of its own, so a connection with several through one port has several shares"
		if t.MPTCPSockets > 0 {
			add("tcp.mptcp", Note, plural(t.MPTCPSockets, "MPTCP socket")+" here. "+text, "ip mptcp limits set subflows 0 at hosts whose share must be one")
		} else {
			add("tcp.mptcp", OK, "no MPTCP socket here; of hosts behind the ports this cannot be seen. "+text, "")
		}
	}
	if t.Signed > 0 {
		add("tcp.signed", Note, plural(t.Signed, "socket")+" with TCP-MD5 (BGP, say): their segments cannot be rewritten: weir switch --signed says what happens to them", "")
	}
	if t.SignedAO > 0 {
		add("tcp.signed", Note, "TCP-AO is in use here: their segments cannot be rewritten: weir switch --signed says what happens to them", "")
	}
	if n := j.f.Host.Namespaces; n > 0 {
		add("tcp.namespaces", Note, plural(n, "named network namespace")+" besides: devices and settings are each one's own", "ip netns exec NAMESPACE weir doctor")
	}
}

func (j *judge) bridged() bool {
	return slices.ContainsFunc(j.ports, func(d *Device) bool { return d.MasterKind == "bridge" })
}

// mixedVLANs reports a VLAN of a bridge whose packets leave one port with a tag and another without.
func (j *judge) mixedVLANs(add func(check string, level Level, text, remedy string)) {
	type vlan struct {
		bridge string
		id     uint16
	}
	tagged := map[vlan]string{}
	for _, d := range j.ports {
		for _, id := range d.Tagged {
			tagged[vlan{d.Master, id}] = d.Name
		}
	}
	reported := map[string]bool{}
	for _, d := range j.ports {
		for _, id := range d.Untagged {
			other, mixed := tagged[vlan{d.Master, id}]
			if !mixed || reported[d.Master] {
				continue
			}
			reported[d.Master] = true
			add("tcp.vlans", Note, fmt.Sprintf("bridge %s: VLAN %d leaves %s with a tag and %s without: with vlans: separate (the default) a connection between such ports counts as two and is not limited", d.Master, id, other, d.Name),
				"weir switch --vlans ignore, if no tenants in different VLANs have the same addresses")
		}
	}
}

// receiveWindow reports how windows of this host's connections are scaled: net/ipv4, tcp_select_initial_window.
func (j *judge) receiveWindow(add func(check string, level Level, text, remedy string)) {
	rmem, known := j.sysctl("net.ipv4.tcp_rmem")
	f := strings.Fields(rmem)
	if !known || len(f) != 3 {
		return
	}
	most, err := strconv.ParseUint(f[2], 10, 63)
	if err != nil {
		return
	}
	if v, known := j.sysctl("net.core.rmem_max"); known {
		if n, err := strconv.ParseUint(v, 10, 63); err == nil {
			most = max(most, n)
		}
	}
	scale := min(max(bits.Len64(most)-16, 0), 14)
	text := fmt.Sprintf("receive buffers up to %v: this host announces a window scale of %d, a step of %v", size(most), scale, law.Bytes(1)<<scale)
	if scale >= 11 {
		add("tcp.rmem", Note, text+"; Weir rounds windows up to a step, so many flows hold more than their share", "a smaller third value of net.ipv4.tcp_rmem, and net.core.rmem_max")
		return
	}
	add("tcp.rmem", OK, text, "")
}

// tunnels judges what hides TCP from the ports.
func (j *judge) tunnels() {
	byLower, ethernet := map[string][]string{}, map[string]bool{}
	var order []string
	for i := range j.f.Devices {
		d := &j.f.Devices[i]
		if !d.isTunnel() {
			continue
		}
		if len(byLower[d.Lower]) == 0 {
			order = append(order, d.Lower)
		}
		byLower[d.Lower] = append(byLower[d.Lower], d.Name+" ("+d.Kind+")")
		ethernet[d.Lower] = ethernet[d.Lower] || !d.NoEthernet
	}
	for _, lower := range order {
		from := "the ports that it leaves by"
		if lower != "" {
			from = lower
		}
		remedy := "to hold it, name the ports behind the tunnel's ends, at the hosts"
		if ethernet[lower] {
			remedy = "to hold it, name the tunnel's device as a port, with shape: RATE, if it carries Ethernet; or the ports behind its ends"
		}
		j.add(Finding{
			Area: AreaTCP, Check: "tcp.tunnel", Subject: lower, Level: Note,
			Text:   "tunnels hide the TCP inside from " + from + ": " + some(byLower[lower]) + ": it passes and is counted (weir status: in tunnels)",
			Remedy: remedy,
		})
	}
	if n := j.f.TCP.SAs; n > 0 {
		j.add(Finding{
			Area: AreaTCP, Check: "tcp.ipsec", Level: Note, Text: plural(n, "IPsec security association") + ": encrypted packets pass without a limit, and AH signs the window",
			Remedy: "nothing to do: it is counted and left alone",
		})
	}
	if len(order) == 0 && j.f.TCP.SAs == 0 && !j.hidden(seeDevices, seeTCP) {
		j.add(Finding{Area: AreaTCP, Check: "tcp.tunnel", Level: OK, Text: "no tunnel ends here"})
	}
}
