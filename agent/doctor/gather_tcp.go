package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/agent/switchd"
	"weir/datapath/attach"
)

// sysctls are those that Weir has something to say of.
var sysctls = []string{
	"net.ipv4.tcp_window_scaling", "net.ipv4.tcp_shrink_window", "net.ipv4.tcp_ecn", "net.ipv4.tcp_rmem", "net.core.rmem_max",
	"net.core.default_qdisc", "net.mptcp.enabled", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding",
}

// tcp reads what the namespace knows of TCP.
func (g *gatherer) tcp() note {
	t := TCP{Sysctls: map[string]string{}}
	for _, name := range sysctls {
		if v := g.line("proc/sys", strings.ReplaceAll(name, ".", "/")); v != "" {
			t.Sysctls[name] = v
		}
	}
	if v := g.line("proc/sys/net/bridge/bridge-nf-call-iptables"); v != "" {
		t.Sysctls["net.bridge.bridge-nf-call-iptables"] = v
	}
	t.Forwarding = t.Sysctls["net.ipv4.ip_forward"] == "1" || t.Sysctls["net.ipv6.conf.all.forwarding"] == "1"
	protocols, err := g.protocols()
	t.MPTCPSockets = protocols["MPTCP"] + protocols["MPTCPv6"]
	t.SignedAO = g.netstat("TcpExt:", "TCPAOGood")
	var errSigned, errSAs error
	if g.root == "/" {
		t.Signed, errSigned = signedSockets()
		t.SAs, errSAs = securityAssociations()
	}
	return func(f *Facts) {
		f.TCP = t
		f.unseen("sockets of MPTCP", err)
		f.unseen("sockets with TCP-MD5", errSigned)
		f.unseen("IPsec", errSAs)
	}
}

// netstat reads a counter of the namespace, from pairs of lines: names, then values.
func (g *gatherer) netstat(group, name string) (value int) {
	at := -1
	_ = g.lines(func(f []string) bool {
		switch {
		case len(f) == 0 || f[0] != group:
		case at < 0:
			at = slices.Index(f, name)
			return at >= 0
		default:
			if at < len(f) {
				value, _ = strconv.Atoi(f[at])
			}
			return false
		}
		return true
	}, "proc/thread-self/net/netstat")
	return value
}

// signedSockets counts the TCP sockets of the namespace that have a TCP-MD5 key. The keys themselves are in
// the answer: they are not looked at.
func signedSockets() (signed int, err error) {
	const (
		byFamily, message, request = 20, 72, 56 // SOCK_DIAG_BY_FAMILY; bytes of inet_diag_msg, inet_diag_req_v2
		md5                        = 18         // INET_DIAG_MD5SIG
		states                     = 1<<1 | 1<<10
		withInfo                   = 1 << 1 // INET_DIAG_INFO: keys come only along with it
	)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		ask := make([]byte, request)
		ask[0], ask[1], ask[2] = family, unix.IPPROTO_TCP, withInfo
		binary.NativeEndian.PutUint32(ask[4:], states) // established, listening
		req := nl.NewNetlinkRequest(byFamily, unix.NLM_F_DUMP)
		req.AddRawData(ask)
		seen := 0
		err = req.ExecuteIter(unix.NETLINK_INET_DIAG, byFamily, func(m []byte) bool {
			if seen++; len(m) > message {
				if attributeOf(attributes(m[message:]), md5) != nil {
					signed++
				}
			}
			return seen < entriesMax
		})
		if err != nil && !tooOld(err) && !errors.Is(err, unix.EPROTONOSUPPORT) {
			return signed, fmt.Errorf("list TCP sockets: %w", err)
		}
	}
	return signed, nil
}

// securityAssociations counts those of IPsec, without asking for their keys.
func securityAssociations() (int, error) {
	const count = 1 // XFRMA_SAD_CNT
	req := nl.NewNetlinkRequest(nl.XFRM_MSG_GETSADINFO, 0)
	req.AddRawData(make([]byte, 4))
	answers, err := req.Execute(unix.NETLINK_XFRM, nl.XFRM_MSG_NEWSADINFO)
	if err != nil {
		if errors.Is(err, unix.EPROTONOSUPPORT) || tooOld(err) { // no IPsec here
			err = nil
		}
		return 0, err
	}
	for _, m := range answers {
		if len(m) < 4 {
			continue
		}
		if n := attributeOf(attributes(m[4:]), count); len(n) >= 4 {
			return int(binary.NativeEndian.Uint32(n)), nil
		}
	}
	return 0, nil
}

// memory reads what there is of it, and what the nearest limit leaves.
func (g *gatherer) memory() note {
	m := Memory{}
	err := g.lines(func(f []string) bool {
		if len(f) >= 2 {
			kb, _ := strconv.ParseUint(f[1], 10, 54)
			switch f[0] {
			case "MemTotal:":
				m.Total = kb * 1024
			case "MemAvailable:":
				m.Available = kb * 1024
			}
		}
		return true
	}, "proc/meminfo")
	g.cgroup(&m)
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		m.LockedLimit, m.LockedUnlimited = limit.Cur, limit.Cur == unix.RLIM_INFINITY
	}
	return func(f *Facts) {
		var errTables error
		m.Flows, m.Tables, errTables = g.o.Agent.Memory(g.o.Config, f.Host.CPUs)
		f.Memory = m
		f.unseen(seeMemory, errors.Join(err, errTables))
	}
}

// cgroup finds the limit that leaves least, from the process's control group (version 2) upwards.
func (g *gatherer) cgroup(m *Memory) {
	const depth = 32
	group := ""
	_ = g.lines(func(f []string) bool {
		if len(f) == 1 && strings.HasPrefix(f[0], "0::/") {
			group = path.Clean(strings.TrimPrefix(f[0], "0::"))
		}
		return true
	}, "proc/thread-self/cgroup")
	for range depth {
		if group == "" {
			return
		}
		dir := "sys/fs/cgroup" + group
		limit, err := strconv.ParseUint(g.line(dir, "memory.max"), 10, 63)
		used, err2 := strconv.ParseUint(g.line(dir, "memory.current"), 10, 63)
		if err == nil && err2 == nil {
			if left := limit - min(used, limit); m.CgroupLimit == 0 || left < m.CgroupLeft {
				m.CgroupLimit, m.CgroupLeft = limit, left
			}
		}
		if group == "/" {
			return
		}
		group = path.Dir(group)
	}
}

// switches reads what is pinned of Weir.
func (g *gatherer) switches() note {
	dir := path.Join(bpffs, "weir/switch")
	var out []Switch
	_, denied := os.Stat(g.path(dir)) // only root may look into some BPF file systems
	if !errors.Is(denied, fs.ErrPermission) {
		denied = nil
	}
	for _, name := range first(g.names(dir)) {
		s, err := pinnedSwitch(g.o.Agent, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM):
			denied = err
			continue
		}
		out = append(out, s)
	}
	return func(f *Facts) {
		f.Switches = out
		f.unseen(seeSwitches, denied)
	}
}

func pinnedSwitch(a *switchd.Agent, name string) (s Switch, err error) {
	s.Name = name
	v, err := a.Open(name)
	var other *attach.OtherSchema
	switch {
	case errors.As(err, &other):
		s.Other, s.Refused = true, err.Error()
		return s, nil
	case err != nil:
		s.Refused = firstLine(err)
		return s, err
	}
	defer func() { _ = v.Close() }()
	kernel, err := v.Read()
	if err != nil {
		s.Refused = firstLine(err)
		return s, err
	}
	s.Alive, s.Holder, s.Age = kernel.Alive(), kernel.Holder.String(), kernel.HeartbeatAge
	for i := range kernel.Ports {
		p := &kernel.Ports[i]
		s.Ports = append(s.Ports, SwitchPort{Name: p.Port, Program: p.ProgramID, Gone: !p.HasDevice, Local: p.Local})
	}
	return s, nil
}
