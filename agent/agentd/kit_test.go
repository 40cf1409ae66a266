package agentd_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/agent/agentd"
	"weir/agent/switchd"
	"weir/agent/switchd/fairq"
	"weir/agent/switchd/lossrepair"
	"weir/bus"
	"weir/bus/inband"
	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/datapath/attach"
	"weir/datapath/testnet"
	"weir/internal/testlog"
	"weir/law"
	"weir/law/gcc"
	"weir/law/hygenicc"
)

const (
	fileVariable  = "WEIR_TEST_AGENT" // the file of an agent that the test binary then is
	overVariable  = "WEIR_TEST_AGENT_TAKE_OVER"
	purgeVariable = "WEIR_TEST_AGENT_PURGE"
	agentName     = "h7"
	buckets       = 4
)

// TestMain is also the agent that tests start and kill, and a program of a VM.
func TestMain(m *testing.M) {
	if source := os.Getenv(declareVariable); source != "" {
		if err := declare(source); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if file := os.Getenv(fileVariable); file != "" {
		if err := runAgent(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// switchLaws are the laws that a switch's file can name.
func switchLaws() *switchd.Agent { return switchd.New(fairq.Law{}, lossrepair.Law{}) }

func runAgent(file string) error {
	c, err := agentd.Load(file)
	if err != nil {
		return err
	}
	if os.Getenv(purgeVariable) != "" {
		return agentd.Purge(c)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	c.Options = agentd.Options{
		TakeOver: os.Getenv(overVariable) != "", Version: "test", Hangup: hangups, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Laws: switchLaws(), Specs: law.Specs{gcc.Spec(), hygenicc.Spec()},
	}
	c.OneProcessor()
	return agentd.Run(ctx, c)
}

// machine is a hypervisor with an agent, and a controller's end of the bus.
type machine struct {
	*testnet.Hypervisor
	t    testing.TB
	dir  string
	file string
	log  *testlog.Log

	ca     *pki.CA
	server *bus.Server
	at     string // its address
	runner *bus.Runner
	frames *inband.Messenger // nil: grants go by the bus

	mu     sync.Mutex
	events []*weirv1.Events
	origin *weirv1.Origin // of the agent's last report
}

// newMachine builds a hypervisor with a controller. Its namespace has a BPF file system of its own at the usual place, and
// reaches the bus at 127.0.0.1:4222.
func newMachine(t testing.TB, guests int, o testnet.PathOptions) *machine {
	t.Helper()
	m := &machine{Hypervisor: testnet.NewHypervisor(t, guests, 1, o), t: t, dir: t.TempDir(), log: &testlog.Log{}}
	m.file = filepath.Join(m.dir, "agent.yaml")
	t.Cleanup(func() {
		if t.Failed() {
			said := m.log.String()
			t.Logf("the log:\n%s", said[max(0, len(said)-8000):])
		}
	})
	m.Host.Must(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, ""); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	m.ca = &pki.CA{Dir: filepath.Join(m.dir, "ca")}
	if err := m.ca.Create(); err != nil {
		t.Fatal(err)
	}
	m.enrol("agent/" + agentName)
	m.startBus()
	m.startController()
	return m
}

func (m *machine) enrol(id string) pki.Files {
	m.t.Helper()
	who, err := pki.ParseIdentity(id)
	if err != nil {
		m.t.Fatal(err)
	}
	var addresses []string
	if who.Role == pki.Bus {
		addresses = []string{"127.0.0.1"}
	}
	out := filepath.Join(m.dir, strings.ReplaceAll(id, "/", "-"))
	if _, err := m.ca.Enrol(who, out, addresses, 0); err != nil {
		m.t.Fatal(err)
	}
	return pki.In(out, who.Name)
}

// startServer starts the server of the bus, or starts it again.
func (m *machine) startServer() {
	m.t.Helper()
	var err error
	m.server, err = bus.StartServer(bus.ServerConfig{Listen: cmp.Or(m.at, "127.0.0.1:0"), Files: m.enrol("bus/b1"), Store: m.t.TempDir(), Log: m.logger("bus")})
	if err != nil {
		m.t.Fatal(err)
	}
	m.at = strings.TrimPrefix(m.server.URL(), "tls://")
	m.t.Cleanup(m.stopServer)
}

func (m *machine) stopServer() {
	if m.server != nil {
		m.server.Close()
		m.server = nil
	}
}

// startBus starts the bus, with a way to it from the hypervisor.
func (m *machine) startBus() {
	m.t.Helper()
	m.startServer()
	var l net.Listener
	m.Host.Must(m.t, func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(m.t.Context(), "tcp", "127.0.0.1:4222")
		return err
	})
	m.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go m.forward(near)
		}
	}()
}

func (m *machine) forward(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", m.at)
	if err != nil {
		return
	}
	defer far.Close()
	go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
	_, _ = io.Copy(near, far)
}

func (m *machine) logger(of string) *slog.Logger {
	return slog.New(slog.NewTextHandler(m.log, nil)).With("of", of)
}

// startController starts a controller that holds all buckets soon.
func (m *machine) startController() {
	m.t.Helper()
	cfg := bus.RunnerConfig{
		Client:  bus.ClientConfig{URLs: []string{"tls://" + m.at}, Files: m.enrol("controller/c1"), Log: m.logger("controller")},
		Buckets: buckets, Term: bus.TermFile{Path: filepath.Join(m.dir, "term")}, Alone: true,
		Events: func(agent string, e *weirv1.Events) {
			if agent != agentName {
				return
			}
			if e.GetInventory().GetHypervisor() != nil {
				m.frames.Set(agentName, bus.FramesOf(e.GetInventory()))
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.events = append(m.events, e)
			m.origin = e.GetOrigin()
		},
	}
	if m.frames != nil {
		cfg.Frames = m.frames
	}
	var err error
	if m.runner, err = bus.NewRunner(cfg); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(m.stopController)
}

func (m *machine) stopController() {
	if m.runner != nil {
		m.runner.Close()
		m.runner = nil
	}
}

// newest returns the newest message of the agent for which wanted returns true; nil: none.
func (m *machine) newest(wanted func(*weirv1.Events) bool) *weirv1.Events {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.events) - 1; i >= 0; i-- {
		if wanted(m.events[i]) {
			return m.events[i]
		}
	}
	return nil
}

// guests returns the VMs of the newest inventory.
func (m *machine) guests() (out []uint32) {
	e := m.newest(func(e *weirv1.Events) bool { return e.GetHost() != 0 && e.GetInventory() != nil })
	for _, g := range e.GetInventory().GetGuests() {
		out = append(out, g.GetVm())
	}
	return out
}

// command commands the agent, and reports whether the command was sent.
func (m *machine) command(grants ...law.Grant) bool {
	m.mu.Lock()
	origin := m.origin
	m.mu.Unlock()
	return origin != nil && m.runner.Command(agentName, origin, grants) == nil
}

// keep renews grants ten times in their lease of a second, until the function that it returns is called.
func (m *machine) keep(grants ...law.Grant) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		every := time.NewTicker(100 * time.Millisecond)
		defer every.Stop()
		for {
			m.command(grants...)
			select {
			case <-end:
				return
			case <-every.C:
			}
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { close(end); <-ended }) }
	m.t.Cleanup(stop)
	return stop
}

// header begins a file of the agent.
func (m *machine) header() string {
	return fmt.Sprintf("kind: Agent\nversion: 1\nbus: {urls: [\"tls://127.0.0.1:4222\"], keys: %s, buckets: %d}\nstate: %s\nmetrics: {listen: \"\"}\n",
		filepath.Join(m.dir, "agent-"+agentName), buckets, filepath.Join(m.dir, "agent.term"))
}

// hostFile is a file with the role host and these guests. more are keys of the uplink.
func (m *machine) hostFile(more string, guests ...int) string {
	f := m.header() + "host:\n  number: 7\n  uplink: {port: up0" + more + "}\n  vms:\n"
	for _, i := range guests {
		f += m.vm(i)
	}
	return f
}

func (m *machine) vm(i int) string {
	return fmt.Sprintf("    - {vm: %d, name: web%d, port: vm%d, mac: %q, addresses: [%s, \"%s\", \"fe80::/64\"], labels: {tenant: a}}\n", i+1, i+1, i, m.MACs[i], testnet.GuestIPv4(i), testnet.GuestIPv6(i))
}

func (m *machine) write(file string) {
	m.t.Helper()
	if err := os.WriteFile(m.file, []byte(file), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// window is a window grant for a VM and a peer.
func window(vm law.VM, peer net.IP, bytes uint64) law.Grant {
	return law.Grant{Owner: 1, Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: vm, Peer: addr(peer)}}, Value: bytes, Lease: time.Minute}
}

// inside is guest i's end of its device.
func (m *machine) inside(i int) attach.PortRef {
	m.t.Helper()
	p := attach.PortRef{Name: "guest", Enter: m.Guests[i].Enter}
	m.Guests[i].Must(m.t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			p.Ifindex = l.Attrs().Index
		}
		return err
	})
	return p
}
