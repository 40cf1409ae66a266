package doctor

import (
	"strings"
	"testing"
)

func plain(kind string) func(*Facts, *Device) {
	return func(_ *Facts, p *Device) {
		p.Root, p.Verdict = Qdisc{Kind: kind, Default: true}, &Verdict{Refusal: "it keeps no backlog"}
	}
}

func TestCheck_Queues(t *testing.T) {
	for _, r := range []row{
		{what: "a NIC of many queues", check: "port.queue", subject: "swp1", level: Problem, says: "mq has a queue for each", remedy: "shape: 9800Mbit",
			spoil: func(_ *Facts, p *Device) {
				p.Root, p.Verdict, p.Children = Qdisc{Kind: "mq", Default: true}, nil, []string{"fq_codel", "fq_codel"}
			}, swtch: Changes, mark: Changes},
		{what: "its one lock", check: "port.one_lock", subject: "swp1", level: Note, says: "4 send queues", spoil: plain("mq"), swtch: Changes, mark: Changes},
		{what: "mapped queues", check: "port.one_lock", subject: "swp1", level: Note, says: "mapped to 4",
			spoil: func(f *Facts, p *Device) { plain("mq")(f, p); p.XPS = 4 }, swtch: Changes, mark: Changes},
		{what: "mqprio of somebody's", check: "port.queue", subject: "swp1", level: Problem, says: "put there by somebody", remedy: "tc qdisc replace dev swp1 root tbf rate 9800Mbit",
			spoil: func(_ *Facts, p *Device) { p.Root, p.Verdict = Qdisc{Kind: "mqprio"}, nil }, swtch: Changes, mark: Changes},
		{what: "pfifo_fast", check: "port.queue", subject: "swp1", level: Problem, says: "for each CPU", remedy: "shape:", spoil: plain("pfifo_fast"), swtch: Changes, mark: Changes},
		{what: "no queue, no speed", check: "port.queue", subject: "swp1", level: Problem, says: "no queue at all", remedy: "shape: RATE",
			spoil: func(f *Facts, p *Device) { plain("noqueue")(f, p); p.SpeedMbit = 0 }, swtch: Changes, mark: Changes},
		{what: "fq_codel", check: "port.queue", subject: "swp1", level: Problem, says: "drops or marks by a law of its own", remedy: "rate and buffer", spoil: plain("fq_codel"), swtch: Changes, mark: Changes},
		{what: "fq", check: "port.queue", subject: "swp1", level: Problem, says: "paces", spoil: plain("fq"), swtch: Changes, mark: Changes},
		{what: "bfifo", check: "port.queue", subject: "swp1", level: Problem, says: "has no rate", spoil: plain("bfifo"), swtch: Changes, mark: Changes},
		{what: "Weir's shaper, left", check: "port.shape_left", subject: "swp1", level: Problem, says: "no more", remedy: "--purge", spoil: func(_ *Facts, p *Device) { p.Root.Ours = true }},
		{what: "Weir's shaper", check: "port.queue", subject: "swp1", level: OK, says: "Weir's own shaper (shape) keeps the queue: 9800Mbit/s, buffer 1MB, target 200KB",
			spoil: func(f *Facts, p *Device) {
				p.Root.Ours = true
				f.Switches = []Switch{{Name: "default", Alive: true, Ports: []SwitchPort{{Name: "swp1", Local: true}}}}
			}},
		{what: "htb", check: "port.queue", subject: "swp1", level: OK, says: "htb keeps the queue: 9800Mbit/s, buffer 1MB, target 200KB", spoil: func(_ *Facts, p *Device) { p.Root = Qdisc{Kind: "htb"} }},
		{what: "htb without a class", check: "port.queue", subject: "swp1", level: Problem, says: "would not take it: it keeps no backlog", remedy: "default class", spoil: plain("htb"), swtch: Changes, mark: Changes},
		{what: "a queue not judged", check: "port.queue", subject: "swp1", level: Note, says: "not known", spoil: func(_ *Facts, p *Device) { p.Verdict = nil }, swtch: Unknown, mark: Unknown},
		{what: "to be shaped", check: "port.queue", subject: "swp1", level: OK, says: "will have a shaper of Weir's own: 9800Mbit/s",
			spoil: func(f *Facts, p *Device) {
				plain("mq")(f, p)
				*p.Verdict = *f.Devices[3].Verdict
				p.Verdict.ShapeBits = 9_800_000_000
			}},
		{what: "a small bucket", check: "port.burst", subject: "swp1", level: Problem, says: "1KB is smaller than a packet (MTU 1500)", remedy: "burst",
			spoil: func(_ *Facts, p *Device) { p.Root.Bursts = 1000 }, swtch: Changes, mark: Changes},
		{what: "a small bucket of Weir's shaper", check: "port.burst", subject: "swp1", level: Problem, says: "1KB is smaller than a packet (MTU 1500)", remedy: "burst",
			spoil: func(_ *Facts, p *Device) { p.Root.Bursts, p.Verdict.ShapeBits = 1000, 9_800_000_000 }, swtch: Changes, mark: Changes},
		{what: "a fast shaper", check: "port.shaped_above_speed", subject: "swp1", level: Problem, says: "in the NIC", remedy: "rate 9800Mbit",
			spoil: func(_ *Facts, p *Device) { p.Verdict.RateBits = 10_000_000_000 }, swtch: Changes, mark: Changes},
		{what: "no buffer", check: "port.buffer", subject: "swp1", level: Problem, says: "less than two segments",
			spoil: func(_ *Facts, p *Device) { p.Verdict.BufferBytes, p.Verdict.PipeBytes = 5_000, 1_300 }, swtch: Changes, mark: Changes},
		// (200 KB + 306 KB) / 1460
		{what: "a buffer", check: "port.buffer", subject: "swp1", level: OK, says: "up to 346 flows", spoil: func(*Facts, *Device) {}},
		{what: "large super-packets", check: "port.gso", subject: "swp1", level: Note, says: "lumps", remedy: "gso_max_size",
			spoil: func(_ *Facts, p *Device) { p.Verdict.TargetBytes = 25_000; p.Offloads["tx-tcp-segmentation"] = true }},
	} {
		r.run(t)
	}
}

func TestCheck_Devices(t *testing.T) {
	kind := func(k string) func(*Facts, *Device) {
		return func(_ *Facts, p *Device) { p.Kind, p.Root, p.Verdict = k, Qdisc{Kind: "noqueue", Default: true}, nil }
	}
	one := []string{"swp1"}
	for _, r := range []row{
		{what: "no such port", ports: []string{"swp[12]", "eth7"}, check: "port.missing", subject: "eth7", level: Problem, says: "waits for it (--wait", spoil: func(*Facts, *Device) {}},
		{what: "no ports", check: "port.none", level: Problem, says: "no device", remedy: "ip netns exec",
			spoil: func(f *Facts, _ *Device) { f.Devices = f.Devices[:2] }, swtch: No, mark: No, edge: No},
		{what: "a bridge", ports: []string{"br0"}, check: "port.role", subject: "br0", level: Problem, remedy: "its ports (swp1, swp2)",
			spoil: func(*Facts, *Device) {}, swtch: No, mark: No, edge: No},
		{what: "loopback", ports: []string{"lo", "swp*"}, check: "port.role", subject: "lo", level: Note, spoil: func(*Facts, *Device) {}},
		{what: "a bond", ports: []string{"bond0"}, check: "port.role", subject: "bond0", level: Problem, remedy: "its links (swp1)",
			spoil: func(f *Facts, p *Device) {
				p.Master, p.MasterKind = "bond0", "bond"
				f.Devices = append(f.Devices, Device{Name: "bond0", Kind: "bond", Up: true, Carrier: true, MTU: 1500})
			}, swtch: No, mark: No, edge: No},
		{what: "a link", ports: one, check: "port.role", subject: "swp1", level: OK, says: "link of bond0, driver ixgbe at 0000:03:00.0, 10Gbit/s, queues 4 out, 4 in, MTU 1500",
			spoil: func(_ *Facts, p *Device) { p.Master, p.MasterKind = "bond0", "bond" }},
		{what: "a VLAN", ports: one, check: "port.role", subject: "swp1", level: Problem, remedy: "name in its place: eth5",
			spoil: func(f *Facts, p *Device) { kind("vlan")(f, p); p.Lower = "eth5" }, swtch: No, mark: No, edge: No},
		{what: "a shaped VLAN", ports: one, check: "port.role", subject: "swp1", level: OK, says: "shaper of its own on eth5",
			spoil: func(_ *Facts, p *Device) { p.Kind, p.Lower = "vlan", "eth5" }},
		{what: "a macvlan of another namespace", ports: one, check: "port.role", subject: "swp1", level: Problem, remedy: "in its own namespace", spoil: kind("macvlan"), swtch: No, mark: No, edge: No},
		{what: "a macvtap", ports: one, check: "port.role", subject: "swp1", level: Blocked, says: "leaves by no device", remedy: "tap", spoil: kind("macvtap"), swtch: No, mark: No, edge: No},
		{what: "netkit", ports: one, check: "port.role", subject: "swp1", level: Problem, spoil: kind("netkit"), swtch: No, mark: No, edge: No},
		{what: "a dummy", ports: []string{"swp*"}, check: "port.role", subject: "swp1", level: Note, spoil: kind("dummy")},
		{what: "a tap", check: "port.role", subject: "swp1", level: OK, says: "port of a VM (tap) of bridge br0", spoil: func(_ *Facts, p *Device) { p.Kind = "tun" }},
		{what: "a container's", check: "port.role", subject: "swp1", level: OK, says: "container", spoil: func(_ *Facts, p *Device) { p.Kind, p.PeerAway = "veth", true }},
		{what: "Open vSwitch's", check: "port.role", subject: "swp1", level: OK, says: "port of Open vSwitch", spoil: func(_ *Facts, p *Device) { p.Master, p.MasterKind = "ovs-system", "openvswitch" }},
		{what: "a router's", check: "port.role", subject: "swp1", level: OK, says: "routed port",
			spoil: func(f *Facts, p *Device) { f.TCP.Forwarding, p.Addresses, p.Master, p.MasterKind = true, 1, "", "" }},
		{what: "a tunnel asked for", ports: one, check: "port.queue", subject: "swp1", level: Problem, remedy: "shape:", spoil: kind("vxlan"), swtch: Changes, mark: Changes},
		{what: "no Ethernet", ports: one, check: "port.role", subject: "swp1", level: Blocked, says: "without Ethernet headers",
			spoil: func(_ *Facts, p *Device) { p.Kind, p.NoEthernet = "tun", true }, swtch: No, mark: No, edge: No},
		{what: "no carrier", check: "port.link", subject: "swp1", level: Note, says: "without a carrier", spoil: func(_ *Facts, p *Device) { p.Carrier = false }},
		{what: "down", ports: one, check: "port.link", subject: "swp1", level: Note, says: "down", spoil: func(_ *Facts, p *Device) { p.Up = false }},
		{what: "LRO", check: "port.lro", subject: "swp1", level: Problem, remedy: "ethtool -K swp1 lro off", spoil: func(_ *Facts, p *Device) { p.Offloads["rx-lro"] = true }, swtch: Changes, mark: Changes},
		{what: "LRO of a host", check: "port.lro", subject: "swp1", level: Note,
			spoil: func(_ *Facts, p *Device) { p.Offloads["rx-lro"], p.Master, p.MasterKind = true, "", "" }},
		{what: "IPsec in the NIC", check: "port.esp", subject: "swp1", level: Note,
			spoil: func(f *Facts, p *Device) { p.Offloads["esp-hw-offload"] = true; f.TCP.SAs = 2 }},
		{what: "SR-IOV", check: "port.sriov", subject: "swp1", level: Blocked, says: "off for 8 virtual functions", remedy: "taps",
			spoil: func(_ *Facts, p *Device) { p.VFs, p.MaxVFs = 8, 64 }},
		{what: "SR-IOV unused", check: "port.sriov", subject: "swp1", level: OK, says: "none of 64", spoil: func(_ *Facts, p *Device) { p.MaxVFs = 64 }},
		{what: "a VF", check: "port.vf", subject: "swp1", level: Note, spoil: func(_ *Facts, p *Device) { p.IsVF = true }},
		{what: "a switch chip", check: "port.chip", subject: "swp1", level: Blocked, says: "off: the switch chip (ab12)", spoil: func(_ *Facts, p *Device) { p.SwitchID = "ab12" }},
		{what: "a chip's port alone", check: "port.chip", subject: "swp1", level: Note,
			spoil: func(_ *Facts, p *Device) { p.SwitchID, p.Master, p.MasterKind = "ab12", "", "" }},
	} {
		r.run(t)
	}
}

func TestCheck_Programs(t *testing.T) {
	ours, theirs := Program{ID: 1, Name: "weir_fairq", Ours: true}, Program{ID: 2, Name: "cil_to_netdev"}
	for _, r := range []row{
		{what: "another program", check: "programs.egress", subject: "swp1", level: Note, says: "cil_to_netdev (2): Weir will attach before", spoil: func(_ *Facts, p *Device) { p.Egress = []Program{theirs} }},
		{what: "before ours", check: "programs.egress", subject: "swp1", level: Problem, says: "cil_to_netdev (2), weir_fairq (1): those before", remedy: "restart weir switch",
			spoil: func(f *Facts, p *Device) {
				p.Egress = []Program{theirs, ours}
				f.Switches = []Switch{{Name: "default", Alive: true, Ports: []SwitchPort{{Name: "swp1", Local: true}}}}
			}, swtch: Changes, mark: Changes, edge: Changes},
		{what: "after ours", check: "programs.egress", subject: "swp1", level: OK, says: "Weir's is first",
			spoil: func(f *Facts, p *Device) {
				p.Egress = []Program{ours, theirs}
				f.Switches = []Switch{{Name: "default", Alive: true, Ports: []SwitchPort{{Name: "swp1", Local: true}}}}
			}},
		{what: "ingress", check: "programs.ingress", subject: "swp1", level: Note, says: "bpf_redirect_peer", spoil: func(_ *Facts, p *Device) { p.Ingress = []Program{{ID: 3}} }},
		{what: "XDP", check: "programs.xdp", subject: "swp1", level: Note, says: "guard (4) (generic)", spoil: func(_ *Facts, p *Device) { p.XDP, p.XDPMode = &Program{ID: 4, Name: "guard"}, "generic" }},
		{what: "XDP that redirects", check: "programs.xdp", subject: "swp1", level: Problem, says: "no egress hook", remedy: "ip link set swp1 xdp off",
			spoil: func(_ *Facts, p *Device) { p.XDP = &Program{ID: 4, Redirects: true} }, swtch: Changes, mark: Changes, edge: Changes},
		{what: "filters", check: "programs.clsact", subject: "swp1", level: OK, says: "bpf old.o: they run after", spoil: func(_ *Facts, p *Device) { p.Filters = []Filter{{Kind: "bpf", Name: "old.o", Egress: true}} }},
		{what: "policing", check: "programs.clsact", subject: "swp1", level: Note, says: "u32", spoil: func(_ *Facts, p *Device) { p.Filters = []Filter{{Kind: "u32"}} }},
		{what: "classes", check: "programs.classes", subject: "swp1", level: Note, says: "u32", spoil: func(_ *Facts, p *Device) { p.Filters = []Filter{{Kind: "u32", Root: true}} }},
		{what: "filters in the NIC", check: "programs.hardware", subject: "swp1", level: Problem, says: "flower", remedy: "hw-tc-offload off",
			spoil: func(_ *Facts, p *Device) { p.Filters = []Filter{{Kind: "flower", InHW: true}} }, swtch: Changes, mark: Changes, edge: Changes},
	} {
		r.run(t)
	}
}

func TestCheck_Bypass(t *testing.T) {
	for _, r := range []row{
		{what: "DPDK's NICs", check: "bypass.user_driver", level: Blocked, says: "off on 0000:3b:00.0 (vfio-pci)", remedy: "dpdk-devbind",
			spoil: func(f *Facts, _ *Device) { f.Bypass.UserDrivers = []UserDevice{{"0000:3b:00.0", "vfio-pci"}} }},
		{what: "a DPDK process", check: "bypass.dpdk", level: Problem, says: "rte", spoil: func(f *Facts, _ *Device) { f.Bypass.DPDK = []string{"rte"} }},
		{what: "vhost-user", check: "bypass.vhost_user", level: Blocked, says: "/run/vhost1", spoil: func(f *Facts, _ *Device) { f.Bypass.VhostUser = []string{"/run/vhost1"} }},
		{what: "vDPA", check: "bypass.vdpa", level: Blocked, says: "vdpa0", spoil: func(f *Facts, _ *Device) { f.Bypass.VDPA = []string{"vdpa0"} }},
		{what: "a user-space switch", check: "bypass.daemon", level: Note, says: "ovs-vswitchd", remedy: "datapath_type", spoil: func(f *Facts, _ *Device) { f.Bypass.Daemons = []string{"ovs-vswitchd"} }},
		{what: "AF_XDP", check: "bypass.af_xdp", level: Problem, says: "2 AF_XDP sockets", spoil: func(f *Facts, _ *Device) { f.Bypass.XDPSockets = 2 }},
		{what: "a flowtable", check: "bypass.flowtable", level: OK, says: "fw ft (swp1, swp2)",
			spoil: func(f *Facts, _ *Device) {
				f.Bypass.Flowtables = []Flowtable{{Table: "fw", Name: "ft", Devices: []string{"swp1", "swp2"}}}
			}},
		{what: "a flowtable in the NIC", check: "bypass.flowtable", level: Problem, says: "flags offload",
			spoil: func(f *Facts, _ *Device) { f.Bypass.Flowtables = []Flowtable{{Name: "ft", Hardware: true}} }},
		{what: "vhost-net", check: "bypass.vhost_net", level: OK, says: "egress of its tap", spoil: func(f *Facts, _ *Device) { f.Bypass.VhostNet = true }},
		{what: "nothing", check: "bypass", level: OK, says: "pass the kernel", spoil: func(*Facts, *Device) {}},
	} {
		r.run(t)
	}
}

func TestCheck_MTUAndTCP(t *testing.T) {
	sysctl := func(name, value string) func(*Facts, *Device) {
		return func(f *Facts, _ *Device) { f.TCP.Sysctls[name] = value }
	}
	tunnel := func(kind string, mtu int) func(*Facts, *Device) {
		return func(f *Facts, _ *Device) {
			f.Devices = append(f.Devices, Device{Name: "t0", Kind: kind, Up: true, MTU: mtu, Lower: "swp1", Root: Qdisc{Kind: "noqueue"}})
		}
	}
	for _, r := range []row{
		{what: "one bridge, two MTUs", check: "mtu.mismatch", subject: "br0", level: Problem, says: "swp1 9000, swp2 1500", remedy: "one MTU", spoil: func(_ *Facts, p *Device) { p.MTU = 9000 }},
		{what: "routed MTUs", check: "mtu.mismatch", level: Note, says: "path MTU discovery", remedy: "ICMP",
			spoil: func(f *Facts, p *Device) {
				p.MTU = 1400
				for i := range f.Devices {
					f.Devices[i].Master, f.Devices[i].MasterKind = "", ""
				}
			}},
		{what: "jumbo", ports: []string{"swp1"}, check: "mtu.jumbo", level: Note, says: "swp1 (9000)", spoil: func(_ *Facts, p *Device) { p.MTU = 9000 }},
		{what: "a tunnel too long", check: "mtu.tunnel", subject: "t0", level: Problem, says: "1500 and the 50 bytes", remedy: "ip link set t0 mtu 1450", spoil: tunnel("vxlan", 1500)},
		{what: "a tunnel that fits", check: "tcp.tunnel", subject: "swp1", level: Note, says: "t0 (geneve)", remedy: "shape", spoil: tunnel("geneve", 1450)},
		{what: "WireGuard", check: "tcp.tunnel", subject: "swp1", level: Note, says: "t0 (wireguard)", remedy: "behind the tunnel's ends",
			spoil: func(f *Facts, p *Device) {
				tunnel("wireguard", 1420)(f, p)
				f.Devices[len(f.Devices)-1].NoEthernet = true
			}},
		{what: "IPsec", check: "tcp.ipsec", level: Note, says: "4 IPsec", spoil: func(f *Facts, _ *Device) { f.TCP.SAs = 4 }},
		{what: "MPTCP", check: "tcp.mptcp", level: Note, says: "3 MPTCP sockets here", spoil: func(f *Facts, _ *Device) { f.TCP.MPTCPSockets = 3 }},
		{what: "MPTCP allowed", check: "tcp.mptcp", level: OK, says: "each subflow is a flow", spoil: func(*Facts, *Device) {}},
		{what: "BGP", check: "tcp.signed", level: Note, says: "1 socket with TCP-MD5", spoil: func(f *Facts, _ *Device) { f.TCP.Signed = 1 }},
		{what: "no scaling", check: "tcp.window_scaling", level: Note, remedy: "tcp_window_scaling=1", spoil: sysctl("net.ipv4.tcp_window_scaling", "0")},
		{what: "shrinking", check: "tcp.shrink_window", level: Note, spoil: sysctl("net.ipv4.tcp_shrink_window", "1")},
		{what: "no ECN", check: "tcp.ecn", level: Note, says: "refuse ECN", spoil: sysctl("net.ipv4.tcp_ecn", "0")},
		{what: "ECN", check: "tcp.ecn", level: OK, says: "negotiate", spoil: sysctl("net.ipv4.tcp_ecn", "1")},
		{what: "AccECN", check: "tcp.ecn", level: Note, says: "AccECN", spoil: sysctl("net.ipv4.tcp_ecn", "3")},
		{what: "a queue for all", check: "tcp.default_qdisc", level: OK, says: "fq_codel", spoil: sysctl("net.core.default_qdisc", "fq_codel")},
		{what: "iptables on bridges", check: "tcp.bridge_nf", level: Note, spoil: sysctl("net.bridge.bridge-nf-call-iptables", "1")},
		{what: "a tag at one port only", check: "tcp.vlans", level: Note, says: "VLAN 10 leaves swp1 with a tag and swp2 without", remedy: "--vlans ignore", spoil: func(f *Facts, p *Device) {
			p.Tagged = []uint16{9, 10}
			for i := range f.Devices {
				if f.Devices[i].Name == "swp2" {
					f.Devices[i].Untagged = []uint16{1, 10}
				}
			}
		}},
		{what: "usual buffers", check: "tcp.rmem", level: OK, says: "window scale of 7", spoil: func(*Facts, *Device) {}},
		{what: "large buffers", check: "tcp.rmem", level: Note, says: "window scale of 14", spoil: sysctl("net.core.rmem_max", "2147483647")},
		{what: "namespaces", check: "tcp.namespaces", level: Note, says: "2 named", spoil: func(f *Facts, _ *Device) { f.Host.Namespaces = 2 }},
	} {
		r.run(t)
	}
}

// Names come from whoever makes devices and programs: nothing of them reaches a terminal or a shell.
func TestCheck_NamesAreMadeSafe(t *testing.T) {
	f := sane()
	for i := range f.Devices {
		if f.Devices[i].Name != "swp1" {
			continue
		}
		d := &f.Devices[i]
		d.Name, d.Driver, d.Alias = "a\x1b[2J$(id)", "x\x07\u202ey", strings.Repeat("z", 4000)+"\x9b\xff"
		d.Root, d.Verdict = Qdisc{Kind: "mqprio"}, &Verdict{Refusal: "x\x1b"}
		d.Egress = []Program{{ID: 1, Name: "p\r\nok  all is well"}}
		d.Offloads["rx-lro"] = true
	}
	f.Host.Name = "h\x1b]0;x\x07"
	var out strings.Builder
	r := Check(f, Options{})
	if err := r.Print(&out, true); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"\x1b", "\x07", "\r", "\u202e", "\x9b", "\xff", "dev a", "-K a"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("the output holds %q", bad)
		}
	}
	if !strings.Contains(out.String(), `a\x1b[2J$(id)`) || strings.Contains(out.String(), strings.Repeat("z", 1000)) {
		t.Errorf("names are not reported, or at any length:\n%s", out.String())
	}
	if c := answer(r, Switching); strings.Contains(c.Why, "\x1b") {
		t.Errorf("summary: %q", c.Why)
	}
}

func TestShell(t *testing.T) {
	for name, want := range map[string]string{
		"swp1": "swp1", "eth0.100@x": "eth0.100@x", "$(id)": "'$(id)'", "a'b": `'a'\''b'`, "a\x1b": "DEVICE", "-x": "DEVICE", "": "''",
	} {
		if got := shell(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

func TestCheck_PastTheKernelByKind(t *testing.T) {
	kind := func(k string) func(*Facts, *Device) {
		return func(f *Facts, _ *Device) {
			f.Devices = append(f.Devices, Device{Name: "x0", Kind: k, Up: true, MTU: 1500, Root: Qdisc{Kind: "noqueue"}})
		}
	}
	for _, r := range []row{
		{what: "macvtap", check: "bypass.macvtap", level: Blocked, says: "x0", remedy: "taps in a bridge", spoil: kind("macvtap")},
		{what: "ipvlan", check: "bypass.macvlan", level: Note, says: "x0", spoil: kind("ipvlan")},
		{what: "netkit", check: "bypass.netkit", level: Note, says: "x0", spoil: kind("netkit")},
		{what: "nftables at egress", check: "programs.nft_egress", subject: "fw out", level: Note, says: "at egress of swp1", remedy: "nft list table netdev fw",
			spoil: func(f *Facts, _ *Device) {
				f.Bypass.EgressHooks = []EgressHook{{Table: "fw", Name: "out", Devices: []string{"swp1"}}}
			}},
		{what: "a representor", check: "port.representor", subject: "swp1", level: Note, remedy: "hw-tc-offload off", spoil: func(_ *Facts, p *Device) { p.SwitchID, p.Represents = "ab", true }},
		{what: "TCP-AO", check: "tcp.signed", level: Note, says: "TCP-AO", spoil: func(f *Facts, _ *Device) { f.TCP.SignedAO = 9 }},
	} {
		r.run(t)
	}
}
