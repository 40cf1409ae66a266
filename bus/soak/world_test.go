package soak

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/bus"
	"weir/bus/pki"
	"weir/controller"
	"weir/datapath/testnet"
	"weir/internal/testlog"
)

const (
	uplinkBps    = 50e6
	uplinkBuffer = 250_000
	storeBytes   = 24 << 20 // of the file system of a server of the bus
)

// node is a machine on the management network: a namespace, a link, a process.
type node struct {
	w       *world
	name    string // of its identity
	ns      *testnet.Namespace
	address string
	role    string
	config  func() string // of the process that starts next
	cmd     *exec.Cmd
	clock   *clock        // of the process
	done    chan struct{} // closed when the process has ended
	log     testlog.Log
	started int // how many times
}

// world is a hypervisor with a VM that sends, an agent, controllers, and the bus.
type world struct {
	*testnet.Hypervisor
	tb       testing.TB
	dir      string
	mgmt     *testnet.Namespace // the switch of the management network
	ca       *pki.CA
	nodes    map[string]*node
	servers  []*node
	controls []*node
	agent    *node
	ovs      *testnet.OpenVSwitch // nil: a cable
	windows  map[int]string       // window that a run of a controller grants -> the controller's name
	worldOptions
}

type worldOptions struct {
	external bool   // three servers of the bus and two controllers; otherwise one controller with the bus in its process
	messages string // how the grants of the law probe go; "": by the bus, and the law is steady
	laws     string // of the controller's file, in place of probe
	uplink   string // further keys of the agent's host.uplink
	host     string // further lines of the agent's host
	single   bool   // packets of one segment at an uplink that nothing shapes but the agent
}

// newWorld builds it. With one controller and the law steady, Open vSwitch forwards between hypervisor and peers, if this machine has it.
func newWorld(tb testing.TB, o worldOptions) *world {
	tb.Helper()
	openVSwitch := !o.external && o.messages == "" && testnet.HasOpenVSwitch() == nil
	path := testnet.PathOptions{UplinkBps: uplinkBps, UplinkLimit: uplinkBuffer, GSO: !openVSwitch, ChecksumOffload: !openVSwitch}
	if o.single {
		path = testnet.PathOptions{}
	}
	w := &world{
		Hypervisor: testnet.NewHypervisor(tb, 1, 1, path),
		tb:         tb, dir: tb.TempDir(), mgmt: testnet.NewNamespace(tb), nodes: map[string]*node{}, windows: map[int]string{}, worldOptions: o,
	}
	w.ca = &pki.CA{Dir: filepath.Join(w.dir, "ca")}
	if err := w.ca.Create(); err != nil {
		tb.Fatal(err)
	}
	w.mgmt.Must(tb, func() error {
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		if err := netlink.LinkAdd(br); err != nil {
			return err
		}
		return netlink.LinkSetUp(br)
	})
	if o.external {
		for i := range 3 {
			w.servers = append(w.servers, w.add("bus", fmt.Sprint("b", i+1), i+1, testnet.NewNamespace(tb)))
		}
	}
	for i := range 2 {
		if i > 0 && !o.external {
			break
		}
		ns := w.Peer // frames pass no router
		if o.messages == "" {
			ns = testnet.NewNamespace(tb)
		}
		w.controls = append(w.controls, w.add("controller", fmt.Sprint("c", i+1), 11+i, ns))
	}
	w.agent = w.add("agent", "h7", 21, w.Host)
	for _, n := range w.servers {
		w.files(n)
	}
	for _, n := range append(w.controls, w.agent) {
		w.files(n)
	}
	tb.Cleanup(func() {
		for _, n := range w.nodes {
			n.kill()
			if said := n.log.String(); tb.Failed() {
				tb.Logf("%s:\n%s", n.name, said[max(0, len(said)-3000):])
			}
		}
	})
	for _, n := range append(append(w.servers, w.controls...), w.agent) {
		n.start()
	}
	if openVSwitch {
		w.insertSwitch()
		testnet.Until(tb, "the controller's flows at the Open vSwitch", w.controls[0].forwards)
	}
	return w
}

// add makes a machine of the control plane.
func (w *world) add(role, name string, last int, ns *testnet.Namespace) *node {
	w.tb.Helper()
	n := &node{w: w, name: name, role: role, ns: ns, address: fmt.Sprint("10.99.0.", last)}
	w.nodes[name] = n
	who, err := pki.ParseIdentity(role + "/" + name)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.enrol(who, n)
	w.connect(n)
	return n
}

// connect makes a machine's link to the management network.
func (w *world) connect(n *node) {
	w.tb.Helper()
	there := namespaceFile(w.tb, n.ns)
	defer there.Close()
	w.mgmt.Must(w.tb, func() error {
		br, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: n.name, MasterIndex: br.Attrs().Index}, PeerName: "mgmt0", PeerNamespace: netlink.NsFd(there.Fd())}
		return errors.Join(netlink.LinkAdd(l), up(n.name))
	})
	n.ns.Must(w.tb, func() error {
		l, err := netlink.LinkByName("mgmt0")
		if err != nil {
			return err
		}
		ip := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(n.address), Mask: net.CIDRMask(24, 32)}}
		return errors.Join(netlink.AddrAdd(l, ip), up("mgmt0"), up("lo"), unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	})
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func (w *world) enrol(who pki.Identity, n *node) {
	w.tb.Helper()
	enrol := func(id pki.Identity, addresses ...string) {
		if _, err := w.ca.Enrol(id, n.path(string(id.Role)), addresses, 0); err != nil {
			w.tb.Fatal(err)
		}
	}
	if who.Role != pki.Bus {
		enrol(who)
	}
	if who.Role != pki.Agent {
		enrol(pki.Identity{Role: pki.Bus, Name: n.name}, n.address)
	}
}

func (n *node) path(name string) string { return filepath.Join(n.w.dir, n.name, name) }

// urls are those of the servers of the bus.
func (w *world) urls() string {
	var out []string
	for _, n := range w.servers {
		out = append(out, "tls://"+n.address+":4222")
	}
	if !w.external {
		out = append(out, "tls://"+w.controls[0].address+":4222")
	}
	return strings.Join(out, ",")
}

// files prepares what a node's process reads.
func (w *world) files(n *node) {
	w.tb.Helper()
	write := func(name, text string) string {
		if err := errors.Join(os.MkdirAll(filepath.Dir(n.path(name)), 0o700), os.WriteFile(n.path(name), []byte(text), 0o600)); err != nil {
			w.tb.Fatal(err)
		}
		return n.path(name)
	}
	store := n.path("store")
	if err := os.MkdirAll(store, 0o700); err != nil {
		w.tb.Fatal(err)
	}
	list := `"` + strings.ReplaceAll(w.urls(), ",", `", "`) + `"`
	switch n.role {
	case "bus", "controller":
		n.ns.Must(w.tb, func() error { return unix.Mount("tmpfs", store, "tmpfs", 0, fmt.Sprint("size=", storeBytes)) })
	default:
		n.ns.Must(w.tb, func() error { return unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "") })
	}
	switch n.role {
	case "bus":
		cfg := bus.ServerConfig{Listen: n.address + ":4222", Cluster: n.address + ":6222", Store: store, Files: pki.In(n.path("bus"), n.name)}
		for _, other := range w.servers {
			cfg.Routes = append(cfg.Routes, other.address+":6222")
		}
		b, err := json.Marshal(cfg)
		if err != nil {
			w.tb.Fatal(err)
		}
		n.config = func() string { return string(b) }
	case "controller":
		link := fmt.Sprintf("urls: [%s], replicas: 3", list)
		if !w.external {
			link = fmt.Sprintf("listen: \"%s:4222\", server_keys: %s, store: %s", n.address, n.path("bus"), store)
		}
		if w.messages == inBand {
			link += ", messages: in-band, port: eth0"
		}
		n.config = func() string {
			window := 16384 + 4096*len(w.windows) // the unit of any window scale divides it
			w.windows[window] = n.name
			laws := fmt.Sprintf("steady: {window: %dB}", window)
			if w.messages != "" {
				laws = cmp.Or(w.laws, "probe: {interval: 5ms}")
			}
			return write("controller.yaml", fmt.Sprintf("kind: Controller\nname: soak%d-%s\nlisten: %s:6653\nmetrics: {listen: \"\"}\ngeneration: %s/generation\n"+
				"bus: {%s, keys: %s, buckets: 4}\nlaws: {%s}\n", os.Getpid(), n.name, n.address, store, link, n.path("controller"), laws))
		}
	case "agent":
		messages := cmp.Or(w.messages, "bus")
		n.config = func() string {
			return write("agent.yaml", fmt.Sprintf("kind: Agent\nversion: 1\nbus: {urls: [%s], keys: %s, buckets: 4}\nstate: %s\nmetrics: {listen: \"\"}\n"+
				"host:\n  number: 7\n  messages: %s\n  uplink: {port: up0%s}\n%s  vms:\n    - {vm: 1, port: vm0, mac: %q, addresses: [%s, \"%s\", \"fe80::/64\"]}\n",
				list, n.path("agent"), n.path("term"), messages, w.uplink, w.host, w.MACs[0], testnet.GuestIPv4(0), testnet.GuestIPv6(0)))
		}
	}
}

// start starts the node's process.
func (n *node) start() {
	n.w.tb.Helper()
	n.started++
	n.cmd, n.done = n.command(n.role, n.config()), make(chan struct{})
	n.cmd.Stdout, n.cmd.Stderr = &n.log, &n.log
	n.ns.Must(n.w.tb, func() (err error) {
		n.clock, err = startWithClock(n.cmd)
		return err
	})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(n.cmd, n.done)
}

func (n *node) command(role, argument string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, argumentVariable+"="+argument)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // the namespace's thread lives as long as the test
	return cmd
}

// kill is kill -9.
func (n *node) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.done
	n.cmd = nil
}

func (n *node) signal(s syscall.Signal) {
	n.w.tb.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.w.tb.Fatalf("%s to %s: %v", s, n.name, err)
	}
}

// window is what the run of a controller grants.
func (n *node) window() (window int) {
	for w, name := range n.w.windows {
		if name == n.name {
			window = max(window, w)
		}
	}
	return window
}

// status is what a controller knows of agents, without what differs between two controllers.
func (n *node) status() string {
	s, err := n.read()
	if err != nil || s.Bus == nil {
		return ""
	}
	out := fmt.Sprint("connected ", s.Bus.Connected)
	for _, a := range s.Bus.Agents {
		a.HeardMs, a.Term, a.Commands = 0, 0, false
		out += fmt.Sprintf(" %+v", a)
	}
	return out
}

// read asks a controller's process.
func (n *node) read() (*controller.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return controller.ReadStatus(ctx, fmt.Sprintf("soak%d-%s", os.Getpid(), n.name), n.ns.Enter)
}

// leader is the server that leads the store of leases. It waits until there is one.
func (w *world) leader() (leader *node) {
	b, err := json.Marshal(map[string]any{"Files": pki.In(w.controls[0].path("controller"), w.controls[0].name), "URLs": w.urls()})
	if err != nil {
		w.tb.Fatal(err)
	}
	testnet.Until(w.tb, "the store of leases has a leader", func() bool {
		cmd := w.agent.command("leader", string(b))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &w.agent.log
		w.Host.Must(w.tb, cmd.Start)
		_ = cmd.Wait()
		leader = w.nodes[strings.TrimSpace(out.String())]
		return leader != nil
	})
	return leader
}
