package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weir/experiment"
	"weir/law"
)

const (
	kernelInitialRTO = time.Second
	// fallbackCC is in every kernel; the host's default differs between machines.
	fallbackCC = "reno"
	featureECN = 1 // RTAX_FEATURE_ECN
	perMachine = "it is set per machine, and other traffic of this machine needs another value"
)

// guestSysctls are set in every guest's namespace, independent of the experiment. Their defaults would make a run
// depend on another one, on the machine's memory or on its distribution.
func guestSysctls(m map[string]string) {
	m["net/ipv4/tcp_no_metrics_save"] = "1"     // otherwise a run starts with the previous run's ssthresh
	m["net/ipv4/tcp_syn_linear_timeouts"] = "0" // SYNs back off exponentially, as in every paper
	m["net/ipv4/tcp_ecn"] = "2"                 // a server answers as requested; a route makes a client request ECN
	// Queues of the lab's bridges hold packets of their sender, as if they were in its own device (docs/lab.md). With small packets,
	// as for a long round trip, TCP would keep four segments there.
	m["net/ipv4/tcp_tso_rtt_log"] = "30"
	m["net/ipv4/tcp_rmem"] = "4096 131072 6291456"
	m["net/ipv4/tcp_wmem"] = "4096 16384 4194304"
	// Thousands of requests at once must not exceed a limit of the listener or use up the ports.
	m["net/core/somaxconn"] = "65535"
	m["net/ipv4/tcp_max_syn_backlog"] = "65535"
	m["net/ipv4/ip_local_port_range"] = "10000 65000"
	m["net/ipv4/tcp_tw_reuse"] = "1"
}

// setUpGuest gives a guest an address and a route for every profile of TCP settings. The route has the settings,
// so a socket has those of the address that it is bound to.
func (l *Lab) setUpGuest(h *netlink.Handle, n *node) error {
	eth := n.ports[0]
	if err := l.setSACK(n); err != nil {
		return err
	}
	l.noteInitialRTO(n)
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: eth.ifname, Index: eth.ifindex}}
	for profile := range l.plan.cfg.Profiles {
		if l.isForeign(n, profile) {
			continue
		}
		ip := net.IP(n.addr(profile).AsSlice())
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)}}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("address %v: %w", ip, err)
		}
		if err := l.addGuestRoute(h, n, profile); err != nil {
			return err
		}
	}
	if err := sendBatch(l.plan.guestNeighbours(n)); err != nil {
		return fmt.Errorf("neighbours: %w", err)
	}
	return nil
}

// guestNeighbours returns permanent entries for all destinations of n, so that no ARP is ever sent.
func (p *plan) guestNeighbours(n *node) []*nl.NetlinkRequest {
	eth := n.ports[0]
	if p.routed {
		mac := p.routerPort(n).mac
		return []*nl.NetlinkRequest{neighbour(unix.AF_INET, eth.ifindex, unix.NUD_PERMANENT, 0, gateway, mac)}
	}
	var batch []*nl.NetlinkRequest
	for _, other := range p.guests() {
		if other == n {
			continue
		}
		for profile := range p.cfg.Profiles {
			ip := net.IP(other.addr(profile).AsSlice())
			batch = append(batch, neighbour(unix.AF_INET, eth.ifindex, unix.NUD_PERMANENT, 0, ip, other.ports[0].mac))
		}
	}
	return batch
}

// routerPort returns the port of its switch that guest n is connected to, directly or through a hypervisor.
func (p *plan) routerPort(n *node) *port {
	return p.towards(p.byName[n.attached])[n][0]
}

// addGuestRoute adds the route of a profile. Settings that the kernel refuses are recorded and left out.
func (l *Lab) addGuestRoute(h *netlink.Handle, n *node, profile int) error {
	eth := n.ports[0]
	r := netlink.Route{
		Dst: profileNet(profile), LinkIndex: eth.ifindex, Scope: netlink.SCOPE_LINK, Src: n.addr(profile).AsSlice(),
	}
	if l.plan.routed {
		r.Scope, r.Gw, r.Flags = netlink.SCOPE_UNIVERSE, gateway, int(netlink.FLAG_ONLINK)
	}
	g := l.plan.cfg.Profiles[profile]
	l.setMetrics(&r, n, g)
	err := h.RouteAdd(&r)
	if errors.Is(err, unix.EINVAL) && r.Congctl == dctcpCC && l.claim.Owned {
		name, e := l.dctcp.register()
		if e != nil {
			l.unmet.add(n.name, "guests.cc", g.CC, "this kernel lacks it, and the kernel program was refused: "+e.Error())
		} else {
			r.Congctl = name
			err = h.RouteAdd(&r)
		}
	}
	if errors.Is(err, unix.EINVAL) && r.Congctl != "" {
		// The only valid metric that may be refused: an algorithm that this kernel lacks.
		l.unmet.add(n.name, "guests.cc", g.CC, "this kernel offers "+availableCC()+"; "+fallbackCC+" is used")
		r.Congctl = fallbackCC
		err = h.RouteAdd(&r)
	}
	if err != nil {
		return fmt.Errorf("route to %v: %w", r.Dst, err)
	}
	return nil
}

// setMetrics writes the guest's settings into the route.
func (l *Lab) setMetrics(r *netlink.Route, n *node, g experiment.Guests) {
	r.Congctl = g.CC
	if g.ECN != nil && *g.ECN {
		r.Features = featureECN
	}
	if g.InitialWindow != nil {
		r.InitCwnd = *g.InitialWindow
	}
	if g.DelayedACK != nil && !*g.DelayedACK {
		r.QuickACK = 1
	}
	if g.RTOMin != nil && *g.RTOMin > 0 {
		d := g.RTOMin.Std()
		r.RtoMin = max(1, int(d.Milliseconds())) // the kernel has whole milliseconds
		r.RtoMinLock = true                      // without the lock TCP ignores it
		if d%time.Millisecond != 0 {
			l.unmet.add(n.name, "guests.rto_min", g.RTOMin.String(),
				fmt.Sprintf("the kernel has whole milliseconds; %dms is used", r.RtoMin))
		}
	}
}

// setSACK sets the options that TCP has per namespace only: if profiles of one node differ, only one is met.
func (l *Lab) setSACK(n *node) error {
	value := ""
	for _, i := range l.kernelProfiles(n) {
		g := l.plan.cfg.Profiles[i]
		want := "1"
		if g.SACK != nil && !*g.SACK {
			want = "0"
		}
		if value == "" {
			value = want
		}
		if want != value {
			l.unmet.add(n.name, "guests.sack", fmt.Sprint(want == "1"), perMachine)
		}
	}
	if value == "" {
		return nil // no traffic uses this kernel's TCP
	}
	return setSysctls(map[string]string{"net/ipv4/tcp_sack": value})
}

// InitialRTOs returns the namespaces, by cookie, whose initial retransmission timeout differs from the kernel's 1
// s. The kernel has no setting for it: a sockops program on the lab's cgroup sets it (Cgroup, JoinCgroup). If the
// profiles of one node differ, the first that its traffic uses counts, and the others are in Unmet.
func (l *Lab) InitialRTOs() map[uint64]time.Duration {
	m := map[uint64]time.Duration{}
	for _, n := range l.plan.guests() {
		profiles := l.kernelProfiles(n)
		if len(profiles) == 0 {
			continue
		}
		if rto := l.plan.initialRTO(profiles[0]); rto != kernelInitialRTO {
			m[n.cookie] = rto
		}
	}
	return m
}

func (l *Lab) noteInitialRTO(n *node) {
	profiles := l.kernelProfiles(n)
	for _, i := range profiles {
		if rto := l.plan.initialRTO(i); rto != l.plan.initialRTO(profiles[0]) {
			l.unmet.add(n.name, "guests.initial_rto", law.Duration(rto).String(), perMachine)
		}
	}
}

func (p *plan) initialRTO(profile int) time.Duration {
	if rto := p.cfg.Profiles[profile].InitialRTO; rto != nil && *rto > 0 {
		return rto.Std()
	}
	return kernelInitialRTO
}

func availableCC() string {
	data, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return "others"
	}
	return strings.Join(strings.Fields(string(data)), ", ")
}
