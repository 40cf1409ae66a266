package lab

import (
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/datapath/testnet"
	"weir/experiment"
	"weir/experiment/result"
	"weir/internal/nic"
	"weir/law"
)

// sentByPort reads from the kernel how many bytes every shaped port has sent.
func sentByPort(t *testing.T, l *Lab) map[string]uint64 {
	t.Helper()
	sent := map[string]uint64{}
	for _, p := range l.Ports() {
		q := rootQdisc(t, l, p)
		sent[p.Name] = q.Attrs().Statistics.Basic.Bytes
	}
	return sent
}

func rootQdisc(t *testing.T, l *Lab, p Port) netlink.Qdisc {
	t.Helper()
	var root netlink.Qdisc
	err := l.Enter(p.Node, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		link, err := h.LinkByIndex(p.Ifindex)
		if err != nil {
			return err
		}
		list, err := h.QdiscList(link)
		for _, q := range list {
			if q.Attrs().Parent == netlink.HANDLE_ROOT {
				root = q
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestPortsAreShapedAsAsked(t *testing.T) {
	g := dumbbell(1, true)
	g.host("fast", "switch", 1000*mbit)
	g.Links[len(g.Links)-1].Buffer = law.Limit{N: 83, Packets: true}
	l := up(t, "shape", g.config())
	want := map[string]struct {
		rate, limit uint64
		burst       uint32
	}{
		"switch->receiver1": {25e6, 125000, 5000},
		"switch->sender1":   {25e6, 125000, 5000},
		"receiver1->switch": {25e6, 1514000, 5000},
		"switch->fast":      {125e6, 83 * 1500, 25000},
		"fast->switch":      {125e6, 1514000, 25000},
		"sender1->switch":   {25e6, 1514000, 5000},
	}
	ports := l.Ports()
	if len(ports) != len(want) {
		t.Errorf("%d shaped ports, want %d: links inside a host are not shaped", len(ports), len(want))
	}
	cookies := map[uint64]string{}
	for _, p := range ports {
		w, ok := want[p.Name]
		if !ok {
			t.Errorf("port %q: not expected", p.Name)
			continue
		}
		tbf, ok := rootQdisc(t, l, p).(*netlink.Tbf)
		if !ok {
			t.Errorf("%s: root is %T", p.Name, rootQdisc(t, l, p))
			continue
		}
		if tbf.Rate != w.rate || uint64(tbf.Limit) != w.limit {
			t.Errorf("%s: rate %d B/s limit %d, want %d and %d", p.Name, tbf.Rate, tbf.Limit, w.rate, w.limit)
		}
		if burst := netlink.Xmitsize(tbf.Rate, tbf.Buffer); burst != w.burst {
			t.Errorf("%s: burst %d, want %d", p.Name, burst, w.burst)
		}
		if uint64(p.Buffer) != w.limit {
			t.Errorf("%s: says buffer %d", p.Name, p.Buffer)
		}
		if node, ok := cookies[p.NetnsCookie]; ok && node != p.Node || p.NetnsCookie == 0 {
			t.Errorf("%s: cookie %d is also of %s", p.Name, p.NetnsCookie, node)
		}
		cookies[p.NetnsCookie] = p.Node
		if p.OfSwitch != (p.Node == "switch") {
			t.Errorf("%s: OfSwitch %v at node %s", p.Name, p.OfSwitch, p.Node)
		}
	}
}

// A port's rate changes in the existing queue, and 0 restores the link's rate.
func TestPort_RateChanges(t *testing.T) {
	l := up(t, "rate", dumbbell(1, false).config())
	var port Port
	for _, p := range l.Ports() {
		if p.Name == "sender1->switch" {
			port = p
		}
	}
	own := rootQdisc(t, l, port).(*netlink.Tbf)
	for _, rate := range []law.Rate{20e6, 4e6, 0, law.Rate(own.Rate)*8 + 1} {
		if err := l.setRate(l.plan.byName["sender1"].ports[0], rate); err != nil {
			t.Fatal(err)
		}
		want := uint64(rate) / 8
		if rate == 0 || want > own.Rate {
			want = own.Rate
		}
		is := rootQdisc(t, l, port).(*netlink.Tbf)
		if is.Rate != want || is.Limit != own.Limit || is.Handle != own.Handle {
			t.Errorf("asked for %v: %d B/s, limit %d, handle %x; want %d, %d, %x", rate, is.Rate, is.Limit, is.Handle, want, own.Limit, own.Handle)
		}
	}
}

// A queue must have the frames of the line, and a port must be found by its name.
func TestPortsHaveNamesAndWholeFrames(t *testing.T) {
	l := up(t, "frames", dumbbell(1, true).config())
	for _, n := range l.plan.nodes {
		for _, p := range n.ports {
			err := l.Enter(n.name, func() error {
				h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
				if err != nil {
					return err
				}
				defer h.Close()
				link, err := h.LinkByName(p.name)
				if err != nil {
					return err
				}
				if a := link.Attrs(); a.Name != p.ifname || a.MTU != 1500 || a.OperState != netlink.OperUp {
					t.Errorf("%s: ifname %s mtu %d state %v", p.name, a.Name, a.MTU, a.OperState)
				}
				e, err := nic.Open()
				if err != nil {
					return err
				}
				defer e.Close()
				features, err := e.Features(p.ifname)
				if err != nil {
					return err
				}
				for _, f := range []string{"tx-tcp-segmentation", "tx-generic-segmentation", "rx-gro", "tx-udp-segmentation"} {
					if features[f].On {
						t.Errorf("%s: %s is on", p.name, f)
					}
				}
				if !features["tx-checksum-ip-generic"].On {
					t.Errorf("%s: checksum offload is off", p.name)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
	}
}

func TestSocketsHaveTheirProfile(t *testing.T) {
	paper := experiment.Guests{
		Stack: "linux", CC: "reno", ECN: ptr(true), InitialWindow: ptr(3), RTOMin: ptr(law.Duration(20 * time.Millisecond)),
		DelayedACK: ptr(false), SACK: ptr(true),
	}
	for _, g := range []*graphBuilder{dumbbell(1, false), leafSpine(2, 1, true)} {
		l := up(t, "socket", g.config(cubic(), paper))
		guests := l.plan.guests()
		from, to := guests[0].name, guests[1].name
		for profile, want := range l.plan.cfg.Profiles {
			err := dial(l, from, to, profile, func(client, server *net.TCPConn) error {
				for _, c := range []*net.TCPConn{client, server} {
					checkSocket(t, c, want)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			checkRoute(t, l, from, profile, want)
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	}
}

// checkSocket asks the kernel for the actual settings of a connection.
func checkSocket(t *testing.T, c *net.TCPConn, want experiment.Guests) {
	t.Helper()
	err := control(c, func(fd int) error {
		cc, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		if err != nil {
			return err
		}
		if cc = strings.TrimRight(cc, "\x00"); cc != want.CC {
			t.Errorf("congestion control %q, want %q", cc, want.CC)
		}
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return err
		}
		const optSACK, optECN = 2, 8 // TCPI_OPT_SACK, TCPI_OPT_ECN
		if got := info.Options&optECN != 0; got != *want.ECN {
			t.Errorf("ECN %v, want %v", got, *want.ECN)
		}
		if got := info.Options&optSACK != 0; got != *want.SACK {
			t.Errorf("SACK %v, want %v", got, *want.SACK)
		}
		if int(info.Snd_cwnd) != *want.InitialWindow {
			t.Errorf("window %d after the handshake, want %d", info.Snd_cwnd, *want.InitialWindow)
		}
		// RTO = srtt + max(4 rttvar, rto_min), up to the kernel's tick of at most 10 ms.
		us := func(n uint32) time.Duration { return time.Duration(n) * time.Microsecond }
		least := us(info.Rtt) + max(us(4*info.Rttvar), want.RTOMin.Std())
		if rto := us(info.Rto); rto < least || rto > least+20*time.Millisecond {
			t.Errorf("RTO %v, want a little above %v", rto, least)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func checkRoute(t *testing.T, l *Lab, node string, profile int, want experiment.Guests) {
	t.Helper()
	err := l.Enter(node, func() error {
		routes, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Dst: profileNet(profile)}, netlink.RT_FILTER_DST)
		if err != nil {
			return err
		}
		if len(routes) != 1 {
			t.Errorf("%d routes for profile %d", len(routes), profile)
			return nil
		}
		if quick := routes[0].QuickACK == 1; quick != !*want.DelayedACK {
			t.Errorf("quickack %v, delayed ACKs asked for: %v", quick, *want.DelayedACK)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNoSACKIsSetForTheMachine(t *testing.T) {
	none := cubic()
	none.SACK = ptr(false)
	l := up(t, "sack", dumbbell(1, false).config(none))
	err := dial(l, "sender1", "receiver1", 0, func(client, _ *net.TCPConn) error {
		checkSocket(t, client, none)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeSetIsUnmet(t *testing.T) {
	none, odd := cubic(), cubic()
	none.SACK = ptr(false)
	none.InitialRTO = ptr(law.Duration(3 * time.Second))
	odd.CC = "nosuchcc"
	odd.RTOMin = ptr(law.Duration(1500 * time.Microsecond))
	cfg := dumbbell(2, false).config(cubic(), none, odd)
	pair := []experiment.Pair{{Src: "sender1", Dst: "receiver1"}}
	cfg.Items = []experiment.Item{{Profile: 0, Pairs: pair}, {Profile: 1, Pairs: pair}}
	l := up(t, "unmet", cfg)
	want := []string{
		"guests.cc nosuchcc on receiver1 and 2 more: this kernel offers ",
		"guests.initial_rto 3s on receiver1 and 1 more: it is set per machine",
		"guests.rto_min 1500us on receiver1 and 2 more: the kernel has whole milliseconds; 1ms is used",
		"guests.sack false on receiver1 and 1 more: it is set per machine",
	}
	lines := l.Unmet()
	if len(lines) != len(want) {
		t.Fatalf("unmet %q, want %d lines", lines, len(want))
	}
	for i, w := range want {
		if !strings.HasPrefix(lines[i], w) {
			t.Errorf("unmet %q, want %q...", lines[i], w)
		}
	}
	for i, u := range l.unmet.list() {
		key, _, _ := strings.Cut(want[i], " ")
		severity := map[bool]result.Severity{true: result.Fatal, false: result.Warning}[key == "guests.cc"]
		if u.Key != key || u.Severity != severity || u.Text != lines[i] {
			t.Errorf("%+v, want %s, %s", u, key, severity)
		}
	}
	// Only the refused algorithm is lost, not the other metrics.
	err := dial(l, "sender1", "receiver1", 2, func(c, _ *net.TCPConn) error {
		return control(c, func(fd int) error {
			info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
			if err == nil && info.Snd_cwnd != 10 {
				t.Errorf("window %d, want 10", info.Snd_cwnd)
			}
			return err
		})
	})
	if err != nil {
		t.Error(err)
	}
}

func TestInitialRTOsByNamespace(t *testing.T) {
	slow := cubic()
	slow.InitialRTO = ptr(law.Duration(3 * time.Second))
	cfg := dumbbell(2, false).config(cubic(), slow)
	cfg.Items = []experiment.Item{{Profile: 1, Pairs: []experiment.Pair{{Src: "sender2", Dst: "receiver1"}}}}
	l := up(t, "rto", cfg)
	got := l.InitialRTOs()
	if len(got) != 2 || got[l.NetnsCookie("sender2")] != 3*time.Second || got[l.NetnsCookie("receiver1")] != 3*time.Second {
		t.Errorf("initial RTOs %v, want 3s at sender2 (%d) and receiver1 (%d)", got, l.NetnsCookie("sender2"), l.NetnsCookie("receiver1"))
	}
}

// A flow that begins behind a queue has its first window in flight, although its packets in a bridge's queue count as its own device's.
func TestGuest_FillsItsWindowBehindAQueue(t *testing.T) {
	g := &graphBuilder{}
	g.sw("switch")
	for _, host := range []string{"sender1", "sender2", "receiver1"} {
		g.host(host, "switch", 20*mbit)
	}
	l := up(t, "behind", g.config())
	const first = 10 // segments
	var others atomic.Int64
	behind := func() (err error) {
		testnet.Until(t, "a flow behind a queue has its first window in flight", func() (filled bool) {
			err = dial(l, "sender2", "receiver1", 0, func(client, server *net.TCPConn) error {
				if testnet.ReadTCPInfo(t, client).Min_rtt < 5000 { // us: the queue is not long yet
					return nil
				}
				return sending(client, server, func() error {
					for i := testnet.ReadTCPInfo(t, client); !filled && i.Bytes_acked <= 1; i = testnet.ReadTCPInfo(t, client) {
						filled = i.Unacked >= first-1
					}
					return nil
				})
			})
			return filled || err != nil
		})
		return err
	}
	if err := without(t, l, "sender1", "receiver1", &others, behind); err != nil {
		t.Error(err)
	}
}

func TestNamespacesHaveTheirSettings(t *testing.T) {
	l := up(t, "sysctl", leafSpine(2, 1, true).config())
	for node, want := range map[string]map[string]string{
		"leaf1.server1": {
			"net/ipv4/tcp_no_metrics_save": "1", "net/ipv4/tcp_syn_linear_timeouts": "0", "net/ipv4/tcp_ecn": "2",
			"net/ipv6/conf/eth0/disable_ipv6": "1", "net/ipv4/tcp_rmem": "4096\t131072\t6291456",
		},
		"leaf1":            {"net/ipv4/ip_forward": "1", "net/ipv4/fib_multipath_hash_policy": "1", "net/ipv4/conf/p1/rp_filter": "0"},
		"leaf1.server1.hv": {"net/ipv4/ip_forward": "0", "net/ipv6/conf/br0/disable_ipv6": "1", "net/bridge/bridge-nf-call-iptables": "0"},
	} {
		err := l.Enter(node, func() error {
			for name, value := range want {
				got, err := os.ReadFile("/proc/sys/" + name)
				if os.IsNotExist(err) && strings.Contains(name, "bridge-nf") {
					continue // br_netfilter is not loaded
				}
				if err != nil {
					return err
				}
				if strings.TrimSpace(string(got)) != value {
					t.Errorf("%s: %s is %q, want %q", node, name, strings.TrimSpace(string(got)), value)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Only the network limits a sender: its packets in a switch's queue must not count as its own (the kernel's small
// queues would then keep every queue short, and nothing would ever be lost).
func TestOneFlowFillsABuffer(t *testing.T) {
	g := dumbbell(1, false)
	g.Links[0].Rate = 1000 * mbit // of sender1
	g.Links[1].Rate = 100 * mbit  // of receiver1
	reno := cubic()
	reno.CC = "reno" // its slow start ends with a loss, for any round trips of the machine
	l := up(t, "fill", g.config(reno))
	const size = 6e6
	err := dial(l, "sender1", "receiver1", 0, func(client, server *net.TCPConn) error {
		go func() {
			_, _ = client.Write(make([]byte, size)) // the reader reports errors
			_ = client.CloseWrite()
		}()
		if err := server.SetReadDeadline(time.Now().Add(testnet.Patience)); err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, server)
		if n != size {
			t.Errorf("%d bytes arrived of %d", n, int(size))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range l.Ports() {
		drops := rootQdisc(t, l, p).Attrs().Statistics.Queue.Drops
		if (p.Name == "switch->receiver1") != (drops > 0) {
			t.Errorf("%s dropped %d", p.Name, drops)
		}
	}
}
