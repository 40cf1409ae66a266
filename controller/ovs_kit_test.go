package controller

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/internal/testroot"
)

// testMain is set in the environment of the process that runs the controller.
const testMain = "WEIR_TEST_CONTROLLER"

// testPause in its environment has it stop itself when it has first taken the lease, before it draws a generation id.
const testPause = "WEIR_TEST_PAUSE"

func TestMain(m *testing.M) {
	if file := os.Getenv(testMain); file != "" {
		beController(file)
	}
	if name := os.Getenv(testHostile); name != "" {
		beHostile(name)
	}
	os.Exit(m.Run())
}

// racks is a network of Open vSwitch bridges in one namespace, leaves and spines, and of hosts in a namespace each. One process
// runs all bridges, to save resources. Veth pairs join them, as between machines.
type racks struct {
	tb                      testing.TB // of the whole test, which its processes outlive no further
	leaves, spines, perLeaf int

	*testnet.OpenVSwitch
	fabric     *testnet.Namespace
	hosts      []*host
	controller *testnet.Process
}

type host struct {
	ns   *testnet.Namespace
	ip   net.IP
	mac  net.HardwareAddr
	port attach.PortRef
	echo *net.UDPConn
}

// newRacks builds the network, without controller.
func newRacks(tb testing.TB, leaves, spines, perLeaf int) *racks {
	testroot.Need(tb, "namespaces and Open vSwitch")
	r := &racks{tb: tb, leaves: leaves, spines: spines, perLeaf: perLeaf, fabric: testnet.NewNamespace(tb)}
	r.fabric.Must(tb, r.makeCables)
	for l := 1; l <= leaves; l++ {
		for h := 1; h <= perLeaf; h++ {
			r.addHost(tb, l, h)
		}
	}
	r.knowAddresses(tb)
	r.OpenVSwitch = testnet.NewOpenVSwitch(tb, r.fabric)
	r.makeBridges(tb)
	return r
}

// knowAddresses has all hosts know each other's MAC address, except the first of each rack, which ask for it.
func (r *racks) knowAddresses(tb testing.TB) {
	for i, a := range r.hosts {
		for _, b := range r.hosts {
			if i%r.perLeaf != 0 && a != b {
				testnet.Know(tb, a.port, b.mac, b.ip)
			}
		}
	}
}

func leafHost(l, h int) string  { return fmt.Sprintf("l%dh%d", l, h) }
func leafSpine(l, s int) string { return fmt.Sprintf("l%ds%d", l, s) }
func spineLeaf(s, l int) string { return fmt.Sprintf("s%dl%d", s, l) }

func (r *racks) makeCables() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for l := 1; l <= r.leaves; l++ {
		for s := 1; s <= r.spines; s++ {
			if err := veth(leafSpine(l, s), spineLeaf(s, l), -1); err != nil {
				return err
			}
		}
	}
	return nil
}

// veth makes a pair, both ends up, the second in another namespace if fd says so.
func veth(name, peer string, fd int) error {
	v := netlink.NewVeth(netlink.LinkAttrs{Name: name})
	v.PeerName = peer
	if fd >= 0 {
		v.PeerNamespace = netlink.NsFd(fd)
	}
	if err := netlink.LinkAdd(v); err != nil {
		return fmt.Errorf("veth %s-%s: %w", name, peer, err)
	}
	ends := []string{name}
	if fd < 0 {
		ends = append(ends, peer)
	}
	for _, end := range ends {
		if err := testnet.NoChecksumOffload(end); err != nil {
			return err
		}
		link, err := netlink.LinkByName(end)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return nil
}

func (r *racks) addHost(tb testing.TB, l, h int) {
	n := &host{ns: testnet.NewNamespace(tb), ip: net.IPv4(10, 0, byte(l), byte(h))}
	n.ns.Sysctl(tb, "net.ipv6.conf.default.disable_ipv6", "1")
	n.ns.Sysctl(tb, "net.ipv6.conf.all.disable_ipv6", "1")
	var far *os.File
	n.ns.Must(tb, func() (err error) {
		far, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer far.Close()
	r.fabric.Must(tb, func() error { return veth(leafHost(l, h), "eth0", int(far.Fd())) })
	// A host would ask for an address again after half a minute, and nobody answers while the controller is away.
	n.ns.Sysctl(tb, "net.ipv4.neigh.eth0.base_reachable_time_ms", "7200000")
	n.ns.Must(tb, func() error {
		if err := testnet.NoChecksumOffload("eth0"); err != nil {
			return err
		}
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: n.ip, Mask: net.CIDRMask(16, 32)}}); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		n.mac, n.port = link.Attrs().HardwareAddr, attach.PortRef{Name: leafHost(l, h), Ifindex: link.Attrs().Index, Enter: n.ns.Enter}
		n.echo, err = net.ListenUDP("udp4", &net.UDPAddr{IP: n.ip, Port: 7})
		return err
	})
	tb.Cleanup(func() { _ = n.echo.Close() })
	go func() {
		var b [64]byte
		for {
			k, from, err := n.echo.ReadFromUDPAddrPort(b[:])
			if err != nil && k == 0 {
				return
			}
			_, _ = n.echo.WriteToUDPAddrPort(b[:k], from)
		}
	}()
	r.hosts = append(r.hosts, n)
}

// ofctl asks a bridge through its management socket, not through the controller.
func (r *racks) ofctl(tb testing.TB, command, bridge string, more ...string) string {
	tb.Helper()
	args := append([]string{"-O", "OpenFlow13", command, "unix:" + r.Path(bridge+".mgmt")}, more...)
	out, err := r.Env(exec.Command("ovs-ofctl", args...)).CombinedOutput()
	if err != nil {
		tb.Fatalf("ovs-ofctl %v: %v: %s", args, err, out)
	}
	return string(out)
}

// bridges are leaf1, ..., spine1, ...; their datapath ids are 1, ... and 101, ...
func (r *racks) bridges() (names []string) {
	for l := range r.leaves {
		names = append(names, fmt.Sprintf("leaf%d", l+1))
	}
	for s := range r.spines {
		names = append(names, fmt.Sprintf("spine%d", s+1))
	}
	return names
}

func (r *racks) makeBridges(tb testing.TB) {
	var args []string
	add := func(words ...string) { args = append(append(args, "--"), words...) }
	port := func(bridge, name string, number int) {
		add("add-port", bridge, name)
		add("set", "interface", name, "ofport_request="+strconv.Itoa(number))
	}
	for _, b := range r.bridges() {
		id := strings.TrimPrefix(b, "leaf")
		if s, is := strings.CutPrefix(b, "spine"); is {
			id = fmt.Sprintf("1%02s", s)
		}
		k, err := strconv.Atoi(id)
		if err != nil {
			tb.Fatal(err)
		}
		add("add-br", b)
		add("set", "bridge", b, "datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure", fmt.Sprintf("other-config:datapath-id=%016x", k))
	}
	for l := 1; l <= r.leaves; l++ {
		for h := 1; h <= r.perLeaf; h++ {
			port(fmt.Sprintf("leaf%d", l), leafHost(l, h), h)
		}
		for s := 1; s <= r.spines; s++ {
			port(fmt.Sprintf("leaf%d", l), leafSpine(l, s), r.perLeaf+s)
			port(fmt.Sprintf("spine%d", s), spineLeaf(s, l), l)
		}
	}
	r.Vsctl(tb, args[1:]...)
}

// connect has all bridges connect to the controller, which may not be there yet.
func (r *racks) connect(tb testing.TB) {
	var args []string
	for _, b := range r.bridges() {
		args = append(args, "--", "set-controller", b, "tcp:127.0.0.1:6653", "--", "set", "controller", b, "max_backoff=1000")
	}
	r.Vsctl(tb, args[1:]...)
}

const testFile = `kind: Controller
name: %s
listen: %s
generation: %s/generation
poll: 100ms
metrics: {listen: ""}
`

func (r *racks) startController() { r.controller = r.start("test", "127.0.0.1:6653", "") }

// start starts a controller; more is added to its file.
func (r *racks) start(name, listen, more string, env ...string) *testnet.Process {
	tb := r.tb
	file := r.Path(name + ".yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, testFile+more, name, listen, r.Dir), 0o600); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), testMain+"="+file), env...)
	c := testnet.Start(tb, r.fabric, cmd)
	tb.Cleanup(func() {
		c.Kill()
		if tb.Failed() {
			tb.Logf("controller %s:\n%s", name, c.Log)
		}
	})
	return c
}

// status asks the controller, which may take long on a busy machine; nil: it does not answer yet.
func (r *racks) status(tb testing.TB) *Status { return r.statusOf(tb, "test") }

func (r *racks) statusOf(tb testing.TB, name string) (s *Status) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := ReadStatus(ctx, name, r.fabric.Enter)
	if err != nil {
		return nil
	}
	return s
}

// settled waits until all switches are there, with all links, and everything is confirmed.
func (r *racks) settled(tb testing.TB, links int) (s *Status) {
	tb.Helper()
	testnet.Until(tb, "all switches and links", func() bool {
		s = r.status(tb)
		return s != nil && s.Forward.Settled && len(s.Forward.Switches) == r.leaves+r.spines && len(s.Forward.Links) == links && s.Well()
	})
	return s
}

// sent counts the frames that went into a device of the switches.
func (r *racks) sent(tb testing.TB, name string) (frames uint64) {
	tb.Helper()
	r.fabric.Must(tb, func() error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			frames = link.Attrs().Statistics.TxPackets
		}
		return err
	})
	return frames
}

func (r *racks) setCable(tb testing.TB, name string, up bool) {
	tb.Helper()
	r.fabric.Must(tb, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(link)
		}
		return netlink.LinkSetDown(link)
	})
}
