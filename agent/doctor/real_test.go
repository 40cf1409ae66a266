package doctor

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/testnet"
)

// machine is a namespace with a /sys and a BPF file system of its own, which only its thread sees.
type machine struct {
	*testnet.Namespace
	t *testing.T
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{testnet.NewNamespace(t), t}
	m.Must(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
			return err
		}
		return unix.Mount("bpf", bpffs, "bpf", 0, "")
	})
	return m
}

// link makes a device, and gives its number.
func (m *machine) link(l netlink.Link) (index int) {
	m.t.Helper()
	m.Must(m.t, func() error {
		if err := netlink.LinkAdd(l); err != nil {
			return err
		}
		made, err := netlink.LinkByName(l.Attrs().Name)
		if err != nil {
			return err
		}
		index = made.Attrs().Index
		return netlink.LinkSetUp(made)
	})
	return index
}

// pair makes a veth pair, up at both ends: the first end, NAME, has several queues.
func (m *machine) pair(name string, master int) (index int) {
	m.t.Helper()
	a := netlink.NewLinkAttrs()
	a.Name, a.NumTxQueues, a.NumRxQueues, a.MasterIndex = name, 4, 4, master
	index = m.link(&netlink.Veth{LinkAttrs: a, PeerName: name + "p"})
	m.Must(m.t, func() error {
		peer, err := netlink.LinkByName(name + "p")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(peer)
	})
	return index
}

// examine gathers on the machine and judges.
func (m *machine) examine(ports ...string) *Report {
	m.t.Helper()
	g := &gatherer{root: "/", o: Options{Ports: ports, Agent: agent()}, inline: true}
	var f *Facts
	m.Must(m.t, func() error {
		f = g.gather(m.t.Context())
		return nil
	})
	return Check(f, g.o)
}

// finding is the one of a check about a subject whose text holds something.
func finding(t *testing.T, r *Report, check, subject, says string) Finding {
	t.Helper()
	for _, n := range r.Findings {
		if n.Check == check && n.Subject == subject && strings.Contains(n.Text, says) {
			return n
		}
	}
	var bad strings.Builder
	for _, n := range r.Findings {
		if n.Level != OK || n.Check == check {
			fmt.Fprintf(&bad, "\n%+v", n)
		}
	}
	t.Errorf("no finding %s of %q that says %q in%s", check, subject, says, &bad)
	return Finding{}
}

// pass is a program of somebody else's that does nothing. Those of XDP have a map to redirect by.
func pass(t *testing.T, kind ebpf.ProgramType, name string) *ebpf.Program {
	t.Helper()
	code := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	if kind == ebpf.XDP {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.DevMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		const xdpPass = 2
		code = asm.Instructions{asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, Name: name, License: "Dual BSD/GPL", Instructions: code})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// A switch of many parts, as the kernel really shows it.
func TestReal_Switch(t *testing.T) {
	m := newMachine(t)
	a := netlink.NewLinkAttrs()
	a.Name = "br0"
	bridge := m.link(&netlink.Bridge{LinkAttrs: a})
	shaped, many := m.pair("swp1", bridge), m.pair("swp2", bridge)
	a = netlink.NewLinkAttrs()
	a.Name = "vx0"
	m.link(&netlink.Vxlan{LinkAttrs: a, VxlanId: 7, VtepDevIndex: shaped, Port: 4789})
	m.Must(t, func() error {
		if err := netlink.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: shaped, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
			Rate:       100e6 / 8, Limit: 125_000, Buffer: netlink.Xmittime(100e6/8, 10_000),
		}); err != nil {
			return err
		}
		return netlink.QdiscReplace(&netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: many, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(2, 0)}, QdiscType: "mq",
		})
	})
	r := m.examine()
	if n := finding(t, r, "port.role", "swp1", "port of bridge br0"); n.Level != OK || !strings.Contains(n.Text, "queues 4 out, 4 in, MTU 1500") {
		t.Errorf("%+v", n)
	}
	if n := finding(t, r, "port.queue", "swp1", "100Mbit/s, buffer 125KB"); n.Level != OK {
		t.Errorf("%+v", n)
	}
	if n := finding(t, r, "port.queue", "swp2", "mq has a queue for each"); n.Level != Problem || !strings.Contains(n.Remedy, "root tbf") {
		t.Errorf("mq of somebody's: %+v", n)
	}
	// Unlike the far end, whose queue is the kernel's own choice.
	if n := finding(t, r, "port.queue", "swp2p", "no queue at all"); !strings.Contains(n.Remedy, "shape: RATE") {
		t.Errorf("no queue: %+v", n)
	}
	finding(t, r, "tcp.tunnel", "swp1", "vx0 (vxlan)")
	finding(t, r, "kernel.bpffs", "", "is mounted")
	if c := answer(r, Switching); c.Can != Changes || !strings.Contains(c.Why, "on swp1") || !strings.Contains(c.Why, "swp2") {
		t.Errorf("%+v", c)
	}
	if r.Fine() {
		t.Error("fine, with a port without a queue")
	}

	one := m.examine("swp1")
	if c := answer(one, Switching); c.Can != Yes || !strings.Contains(c.Why, "on swp1; flows are limited only if") {
		t.Errorf("%+v", c)
	}
	if !one.Fine() {
		t.Errorf("not fine: %+v", one.Findings)
	}
	if n := finding(t, m.examine("br0"), "port.role", "br0", "the bridge itself"); !strings.Contains(n.Remedy, "swp1, swp2") {
		t.Errorf("%+v", n)
	}
}

// Programs of others, in the order in which they run.
func TestReal_Programs(t *testing.T) {
	m := newMachine(t)
	index := m.pair("swp1", 0)
	first, second := pass(t, ebpf.SchedCLS, "theirs_first"), pass(t, ebpf.SchedCLS, "theirs_second")
	old, fast := pass(t, ebpf.SchedCLS, "theirs_old"), pass(t, ebpf.XDP, "theirs_fast")
	m.Must(t, func() error {
		for _, p := range []*ebpf.Program{second, first} {
			l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = l.Close() })
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: first, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		x, err := link.AttachXDP(link.XDPOptions{Interface: index, Program: fast, Flags: link.XDPGenericMode})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = x.Close() })
		clsact := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)}, QdiscType: "clsact"}
		if err := netlink.QdiscAdd(clsact); err != nil {
			return err
		}
		if err := netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
			Fd:          old.FD(), Name: "old.o:[classifier]", DirectAction: true,
		}); err != nil {
			return err
		}
		return netlink.FilterAdd(&netlink.U32{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Protocol: unix.ETH_P_ALL, Priority: 1},
			ClassId:     netlink.MakeHandle(1, 1),
		})
	})
	r := m.examine("swp1")
	n := finding(t, r, "programs.egress", "swp1", "Weir will attach before them")
	if i, k := strings.Index(n.Text, "theirs_first"), strings.Index(n.Text, "theirs_second"); i < 0 || k < i {
		t.Errorf("order: %s", n.Text)
	}
	finding(t, r, "programs.ingress", "swp1", "theirs_first")
	finding(t, r, "programs.clsact", "swp1", "bpf old.o:[classifier]: they run after")
	finding(t, r, "programs.clsact", "swp1", "u32: they drop or redirect packets first")
	if n := finding(t, r, "programs.xdp", "swp1", "theirs_fast"); n.Level != Problem || !strings.Contains(n.Text, "generic") {
		t.Errorf("%+v", n)
	}
}

// FairQ on a port, found by its name and by its pins: alive, then without its process.
func TestReal_State(t *testing.T) {
	m := newMachine(t)
	index := m.pair("swp1", 0)
	m.Must(t, func() error {
		return netlink.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
			Rate:       100e6 / 8, Limit: 125_000, Buffer: netlink.Xmittime(100e6/8, 10_000),
		})
	})
	finding(t, m.examine("swp1"), "weir.switch", "", "no switch is pinned")
	var f *fairq.Attachment
	m.Must(t, func() error {
		const dir = bpffs + "/weir/switch/mine"
		var err error
		f, err = fairq.Attach([]fairq.Port{{
			PortRef: attach.PortRef{Name: "swp1", Ifindex: index},
			Law:     fairq.Law{TargetBytes: 25_000, BufferBytes: 125_000, Tick: 50 * time.Microsecond, Period: 500 * time.Microsecond},
		}}, fairq.Config{Pin: dir, Version: "v9"})
		return err
	})
	// Only changes are read: the last heartbeat is valid for a second.
	look := func() (r *Report) {
		m.Must(t, func() error {
			facts, g := &Facts{}, &gatherer{o: Options{Agent: agent()}, root: "/", inline: true}
			g.process()(facts)
			g.devices()(facts)
			g.switches()(facts)
			r = Check(facts, Options{Ports: []string{"swp1"}})
			return nil
		})
		return r
	}
	var r *Report
	testnet.Until(t, "it is running", func() bool { // a reading may take longer than a heartbeat is valid
		m.Must(t, f.Heartbeat)
		r = look()
		return slices.ContainsFunc(r.Findings, func(n Finding) bool { return n.Check == "weir.switch" && n.Level == OK })
	})
	if n := finding(t, r, "weir.switch", "mine", "running on swp1"); n.Level != OK || !strings.Contains(n.Text, "v9") {
		t.Errorf("%+v", n)
	}
	finding(t, r, "programs.egress", "swp1", "Weir's own program alone")
	testnet.Until(t, "the last heartbeat is over a second ago", func() bool {
		r = look()
		return slices.ContainsFunc(r.Findings, func(n Finding) bool { return n.Check == "weir.switch" && n.Level == Problem })
	})
	if n := finding(t, r, "weir.switch", "mine", "stale"); !strings.Contains(n.Remedy, "--purge --name mine") {
		t.Errorf("%+v", n)
	}
	m.Must(t, func() error { return f.Close() })
}

// Looking changes nothing: devices, queues, programs and pins are as before.
func TestReal_ChangesNothing(t *testing.T) {
	m := newMachine(t)
	m.pair("swp1", 0)
	state := func() (s []string) {
		m.Must(t, func() error {
			links, err := netlink.LinkList()
			if err != nil {
				return err
			}
			for _, l := range links {
				s = append(s, l.Attrs().Name, fmt.Sprint(l.Attrs().RawFlags&unix.IFF_UP, l.Attrs().MTU, l.Attrs().MasterIndex))
			}
			all, err := listQdiscs()
			for i := range 10 {
				for _, q := range all[i] {
					s = append(s, q.kind)
				}
			}
			s = append(s, (&gatherer{root: "/"}).names(bpffs)...)
			return err
		})
		return s
	}
	before := state()
	m.examine()
	if after := state(); !slices.Equal(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}

// The doctor reads the kernel's counts of MPTCP, TCP-MD5 and IPsec, and finds a VM's macvtap.
func TestReal_Sockets(t *testing.T) {
	m := newMachine(t)
	index := m.pair("swp1", 0)
	a := netlink.NewLinkAttrs()
	a.Name, a.ParentIndex = "vm0", index
	m.link(&netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE}})
	const multipath = 262
	m.Must(t, func() error {
		many, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, multipath)
		if err != nil {
			return fmt.Errorf("MPTCP socket: %w", err)
		}
		t.Cleanup(func() { _ = unix.Close(many) })
		if err := unix.Listen(many, 1); err != nil { // only then it is counted
			return err
		}
		signed, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(signed) })
		key := unix.TCPMD5Sig{Keylen: 3, Key: [80]byte{1, 2, 3}}
		key.Addr.Family = unix.AF_INET
		key.Addr.Data[2] = 127
		if err := unix.SetsockoptTCPMD5Sig(signed, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &key); err != nil {
			return fmt.Errorf("TCP-MD5: %w", err)
		}
		if err := unix.Bind(signed, &unix.SockaddrInet4{}); err != nil {
			return err
		}
		return unix.Listen(signed, 1)
	})
	encrypts := true
	m.Must(t, func() error {
		err := netlink.XfrmStateAdd(&netlink.XfrmState{
			Src: net.IPv4(10, 0, 0, 1), Dst: net.IPv4(10, 0, 0, 2), Proto: netlink.XFRM_PROTO_ESP, Mode: netlink.XFRM_MODE_TUNNEL, Spi: 1,
			Aead: &netlink.XfrmStateAlgo{Name: "rfc4106(gcm(aes))", Key: make([]byte, 20), ICVLen: 128},
		})
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPROTONOSUPPORT) { // no ESP in this kernel
			encrypts, err = false, nil
		}
		return err
	})
	r := m.examine("swp1")
	finding(t, r, "tcp.mptcp", "", "1 MPTCP socket here")
	finding(t, r, "tcp.signed", "", "1 socket with TCP-MD5")
	if encrypts {
		finding(t, r, "tcp.ipsec", "", "1 IPsec security association")
	} else if slices.ContainsFunc(r.Findings, func(n Finding) bool { return n.Check == "tcp.ipsec" || n.Check == "unseen" && n.Subject == "IPsec" }) {
		t.Errorf("without IPsec: %+v", r.Findings)
	}
	if n := finding(t, r, "bypass.macvtap", "", "vm0"); n.Level != Blocked {
		t.Errorf("%+v", n)
	}
	if n := finding(t, m.examine("vm0"), "port.role", "vm0", "leaves by no device"); n.Level != Blocked {
		t.Errorf("%+v", n)
	}
}

// An htb is accepted if its default class exists, and its rate and buffer are shown. Without that class it is refused, as by weir
// switch.
func TestReal_HTB(t *testing.T) {
	m := newMachine(t)
	index := m.pair("swp1", 0)
	look := func() (r *Report) {
		m.Must(t, func() error {
			f, g := sane(), &gatherer{o: Options{Agent: agent()}, root: "/", inline: true}
			g.devices()(f)
			r = Check(f, Options{Ports: []string{"swp1"}})
			return nil
		})
		return r
	}
	attrs := netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	m.Must(t, func() error {
		q := netlink.NewHtb(attrs)
		q.Defcls = 9
		return netlink.QdiscReplace(q)
	})
	if n := finding(t, look(), "port.queue", "swp1", "reports no rate"); n.Level != Problem || !strings.Contains(n.Remedy, "default class") {
		t.Errorf("%+v", n)
	}
	m.Must(t, func() error {
		return netlink.ClassReplace(netlink.NewHtbClass(
			netlink.ClassAttrs{LinkIndex: index, Parent: attrs.Handle, Handle: netlink.MakeHandle(1, 9)},
			netlink.HtbClassAttrs{Rate: 50e6, Ceil: 200e6},
		))
	})
	if n := finding(t, look(), "port.queue", "swp1", "htb keeps the queue: 200Mbit/s"); n.Level != OK {
		t.Errorf("%+v", n)
	}
}

// A VM's tap is a port; a tun is not, for its packets have no Ethernet header.
func TestReal_TapAndTun(t *testing.T) {
	m := newMachine(t)
	for name, mode := range map[string]netlink.TuntapMode{"tap0": netlink.TUNTAP_MODE_TAP, "tun0": netlink.TUNTAP_MODE_TUN} {
		a := netlink.NewLinkAttrs()
		a.Name = name
		m.link(&netlink.Tuntap{LinkAttrs: a, Mode: mode})
	}
	var r *Report
	m.Must(t, func() error {
		f, g := sane(), &gatherer{o: Options{Agent: agent()}, root: "/", inline: true}
		g.devices()(f)
		r = Check(f, Options{Ports: []string{"t??0"}})
		return nil
	})
	if n := finding(t, r, "port.role", "tap0", "port of a VM (tap), driver tun"); n.Level != OK {
		t.Errorf("%+v", n)
	}
	if n := finding(t, r, "port.role", "tun0", "without Ethernet headers"); n.Level != Blocked {
		t.Errorf("%+v", n)
	}
}
