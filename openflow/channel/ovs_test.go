package channel

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weir/datapath/testnet"
	"weir/openflow"
)

const ovsSchema = "/usr/share/openvswitch/vswitch.ovsschema"

// vswitch is an Open vSwitch of the test's own: its files, its namespace, its processes.
type vswitch struct {
	t   *testing.T
	ns  *testnet.Namespace
	dir string
}

func newVSwitch(t *testing.T) *vswitch {
	t.Helper()
	for _, program := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("Open vSwitch is not here (%v): install openvswitch-switch", err)
		}
	}
	v := &vswitch{t: t, ns: testnet.NewNamespace(t), dir: t.TempDir()}
	v.ns.Must(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	v.run("ovsdb-tool", "create", v.file("conf.db"), ovsSchema)
	v.start("ovsdb-server", v.file("conf.db"), "--remote=punix:"+v.file("db.sock"), "--unixctl="+v.file("ovsdb.ctl"))
	v.vsctl("--no-wait", "init")
	v.start("ovs-vswitchd", "unix:"+v.file("db.sock"), "--unixctl="+v.file("vswitchd.ctl"))
	v.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure",
		"other-config:datapath-id=00000000000000aa", "--", "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=internal")
	return v
}

func (v *vswitch) file(name string) string { return filepath.Join(v.dir, name) }

func (v *vswitch) command(program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "OVS_RUNDIR="+v.dir, "OVS_LOGDIR="+v.dir, "OVS_DBDIR="+v.dir, "OVS_SYSCONFDIR="+v.dir)
	c.Dir = v.dir
	return c
}

func (v *vswitch) run(program string, args ...string) {
	v.t.Helper()
	out, err := v.command(program, args...).CombinedOutput()
	if err != nil {
		v.t.Fatalf("%s %s: %v\n%s\n%s", program, strings.Join(args, " "), err, out, v.log())
	}
}

// vsctl returns when the switch has done it.
func (v *vswitch) vsctl(args ...string) {
	v.t.Helper()
	v.run("ovs-vsctl", append([]string{"--db=unix:" + v.file("db.sock"), "--retry", "--timeout=60"}, args...)...)
}

// start runs a daemon in the namespace, until the test's end.
func (v *vswitch) start(program string, args ...string) {
	v.t.Helper()
	c := v.command(program, append(args, "--no-chdir", "-vconsole:off", "-vsyslog:off", "--log-file="+v.file(program+".log"))...)
	v.ns.Must(v.t, c.Start) // a child is in its parent thread's namespace
	v.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = c.Wait()
		if v.t.Failed() {
			v.t.Log(v.log())
		}
	})
}

func (v *vswitch) log() string {
	b, err := os.ReadFile(v.file("ovs-vswitchd.log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-1500):])
}

// controller serves in the switch's namespace.
func (v *vswitch) controller(config Config) (port string, h *recorder) {
	v.t.Helper()
	h = newRecorder()
	config.Handler = h
	return v.serve(config), h
}

// serve likewise, with the handler of the configuration.
func (v *vswitch) serve(config Config) (port string) {
	v.t.Helper()
	config.Log = slog.New(slog.NewTextHandler(v.t.Output(), nil))
	s, err := NewServer(config)
	if err != nil {
		v.t.Fatal(err)
	}
	var l net.Listener
	v.ns.Must(v.t, func() (err error) {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	v.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			v.t.Error(err)
		}
	})
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// certificates returns the switch its own and whom to trust, and the controller's files.
func (v *vswitch) certificates() *authority {
	a := newAuthority(v.t, "ours")
	a.sign("controller", &x509.Certificate{})
	a.sign("switch", &x509.Certificate{})
	v.vsctl("set-ssl", a.file("switch.key"), a.file("switch.pem"), a.file("ca.pem"))
	return a
}

// up waits for the next connection of the switch.
func (v *vswitch) up(h *recorder) *Conn {
	v.t.Helper()
	select {
	case c := <-h.ups:
		return c
	case <-time.After(time.Minute):
		v.t.Fatalf("the switch does not come:\n%s", v.log())
		return nil
	}
}

func TestOpenVSwitch(t *testing.T) {
	v := newVSwitch(t)
	a := v.certificates()
	t.Run("TCP", func(t *testing.T) {
		port, h := v.controller(Config{})
		v.vsctl("set-controller", "br0", "tcp:127.0.0.1:"+port)
		talk(t, v.up(h))
	})
	t.Run("TLS", func(t *testing.T) {
		config, err := ServerTLS(a.files("controller"), nil)
		if err != nil {
			t.Fatal(err)
		}
		port, h := v.controller(Config{TLS: config})
		v.vsctl("set-controller", "br0", "ssl:127.0.0.1:"+port)
		c := v.up(h)
		if name := c.Certificate().Subject.CommonName; name != "ours switch" {
			t.Errorf("certificate of %s", name)
		}
		talk(t, c)
	})
	t.Run("TCP, dialled", func(t *testing.T) {
		v.vsctl("set-controller", "br0", "ptcp:16653:127.0.0.1")
		talk(t, v.dial("tcp4", "127.0.0.1:16653", Config{}))
	})
	t.Run("TLS, dialled", func(t *testing.T) {
		v.vsctl("set-controller", "br0", "pssl:16654:127.0.0.1")
		config, err := ClientTLS(a.files("controller"), "")
		if err != nil {
			t.Fatal(err)
		}
		talk(t, v.dial("tcp4", "127.0.0.1:16654", Config{TLS: config}))
	})
	t.Run("management socket", func(t *testing.T) {
		talk(t, v.dial("unix", v.file("br0.mgmt"), Config{}))
	})
}

func (v *vswitch) dial(network, address string, config Config) *Conn {
	v.t.Helper()
	config.Log = slog.New(slog.NewTextHandler(v.t.Output(), nil))
	var c *Conn
	v.ns.Must(v.t, func() (err error) {
		c, err = Dial(context.Background(), network, address, config)
		return err
	})
	v.t.Cleanup(func() {
		c.Close()
		<-c.gone
	})
	return c
}

// talk asks Open vSwitch all that this package knows to ask.
func talk(t *testing.T, c *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if c.DatapathID() != 0xaa || c.Features().Tables != 254 {
		t.Errorf("features %v", c.features.String())
	}
	m, err := c.Request(ctx, &openflow.EchoRequest{Data: []byte("hello")})
	if err != nil || string(m.(*openflow.EchoReply).Data) != "hello" {
		t.Errorf("echo: %v, %v", m, err)
	}
	ports, err := c.Multipart(ctx, &openflow.MultipartRequest{Type: openflow.MultipartPortDesc})
	if err != nil || len(ports) != 1 {
		t.Fatalf("ports: %v, %v", ports, err)
	}
	if text := ports[0].String(); !strings.Contains(text, "p1") || !strings.Contains(text, "br0") {
		t.Errorf("ports: %s", text)
	}
	polled := make(chan int, 1)
	if err := c.Poll(askPorts, func(body []byte, _ bool, err error) {
		it, err2 := openflow.IteratePortStats(body)
		if err != nil || err2 != nil {
			t.Error(err, err2)
		}
		polled <- it.Len()
	}); err != nil {
		t.Fatal(err)
	}
	if n := <-polled; n != 2 {
		t.Errorf("counters of %d ports, want 2", n)
	}
	flow := &openflow.FlowMod{
		Cookie: 77, Priority: 5, BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
		Match:        openflow.Match{openflow.EthType(0x88b5)},
		Instructions: openflow.Instructions{openflow.InstructionApplyActions{Actions: openflow.Actions{openflow.ActionOutput{Port: 1}}}},
	}
	if err := c.Apply(ctx, flow); !errors.Is(err, ErrNotMaster) {
		t.Errorf("a flow before MASTER: %v", err)
	}
	// The switch keeps the highest id of all connections so far: each transport's test begins above it.
	generation := uint64(time.Now().UnixNano())
	for _, role := range []openflow.Role{openflow.RoleSlave, openflow.RoleEqual, openflow.RoleMaster} {
		if err := c.SetRole(ctx, role, generation); err != nil {
			t.Fatalf("role %s: %v", role, err)
		}
	}
	if err := c.Apply(ctx, flow); err != nil {
		t.Errorf("a flow: %v", err)
	}
	bad := *flow
	bad.Instructions = openflow.Instructions{openflow.InstructionGotoTable{TableID: 0}} // not forwards
	var refused *RemoteError
	if err := c.Apply(ctx, flow, &bad, flow); !errors.As(err, &refused) || refused.Message.ErrorType != openflow.ErrorBadInstruction {
		t.Errorf("a bad flow: %v", err)
	}
	flows, err := c.Multipart(ctx, &openflow.MultipartRequest{Type: openflow.MultipartFlow, Body: &openflow.FlowStatsRequest{
		TableID: openflow.TableAll, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny, Cookie: 77, CookieMask: ^uint64(0),
	}})
	if err != nil || len(flows) != 1 || len(flows[0].Body.(openflow.FlowStatsReply)) != 1 {
		t.Errorf("flows: %v, %v", flows, err)
	}
	if c.Err() != nil || c.Stats().Undecodable+c.Stats().Strange+c.Stats().Unknown != 0 {
		t.Errorf("%v, %+v", c.Err(), c.Stats())
	}
}

// TestOpenVSwitch_TwoControllers: only one is obeyed, the other one ends its connection by itself.
func TestOpenVSwitch_TwoControllers(t *testing.T) {
	v := newVSwitch(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	portA, hA := v.controller(Config{})
	portB, hB := v.controller(Config{})
	v.vsctl("--id=@a", "create", "controller", `target="tcp:127.0.0.1:`+portA+`"`, "max_backoff=1000", // 8 s otherwise
		"--", "--id=@b", "create", "controller", `target="tcp:127.0.0.1:`+portB+`"`, "max_backoff=1000",
		"--", "set", "bridge", "br0", "controller=[@a,@b]")
	a, b := v.up(hA), v.up(hB)
	flow := &openflow.FlowMod{BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny}
	if err := a.SetRole(ctx, openflow.RoleMaster, 10); err != nil {
		t.Fatal(err)
	}
	if err := a.Apply(ctx, flow); err != nil {
		t.Error(err)
	}
	if err := b.SetRole(ctx, openflow.RoleMaster, 11); err != nil {
		t.Fatal(err)
	}
	<-a.Done() // by a message of Open vSwitch, or by the connection's own question
	var why *CloseError
	if !errors.As(a.Err(), &why) || why.Cause != CauseStale && why.Cause != CauseRoleLost {
		t.Errorf("the first controller: %v", a.Err())
	}
	t.Log(a.Err())
	if _, err := a.Send(flow); err == nil {
		t.Error("the first controller still sends")
	}
	// It comes again with its old id: the switch calls that stale, keeps it EQUAL and would obey it.
	a = v.up(hA)
	if err := a.SetRole(ctx, openflow.RoleMaster, 10); err == nil {
		t.Error("a stale id was confirmed")
	}
	<-a.Done()
	if !errors.As(a.Err(), &why) || why.Cause != CauseStale {
		t.Errorf("the stale controller: %v", a.Err())
	}
	if err := b.Apply(ctx, flow); err != nil {
		t.Errorf("the second controller: %v", err)
	}
}

// TestOpenVSwitch_Changes hands a switch over a hundred times, each time at a random moment of a stream of flow-mods.
// Once the new controller is confirmed and has emptied the table, no flow of the old one appears in it.
func TestOpenVSwitch_Changes(t *testing.T) {
	v := newVSwitch(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	all := openflow.FlowMod{TableID: openflow.TableAll, Command: openflow.FlowDelete, BufferID: openflow.NoBuffer,
		OutPort: openflow.PortAny, OutGroup: openflow.GroupAny}
	become := func(generation uint64) *Conn {
		c := v.dial("unix", v.file("br0.mgmt"), Config{})
		if err := c.SetRole(ctx, openflow.RoleMaster, generation); err != nil {
			t.Fatalf("generation %d, seed %d: %v", generation, seed, err)
		}
		return c
	}
	master := become(1)
	for generation := uint64(2); generation <= 101; generation++ {
		old, sent, stopped := master, make(chan int), make(chan error)
		go func() {
			flow := openflow.FlowMod{Cookie: generation - 1, BufferID: openflow.NoBuffer, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny}
			for i := 0; ; i++ {
				flow.Priority = uint16(i)
				_, err := old.Send(&flow)
				select {
				case sent <- i:
				default:
				}
				if err != nil && !errors.Is(err, ErrQueueFull) {
					stopped <- err
					return
				}
			}
		}()
		for after := random.IntN(300); <-sent < after; {
		}
		master = become(generation)
		if err := master.Apply(ctx, &all); err != nil {
			t.Fatal(err)
		}
		if err := <-stopped; !errors.As(err, new(*CloseError)) {
			t.Errorf("generation %d: the old controller stopped for %v", generation, err)
		}
		<-old.gone
		flows, err := master.Multipart(ctx, &openflow.MultipartRequest{Type: openflow.MultipartFlow, Body: &openflow.FlowStatsRequest{
			TableID: openflow.TableAll, OutPort: openflow.PortAny, OutGroup: openflow.GroupAny,
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range flows {
			if n := len(p.Body.(openflow.FlowStatsReply)); n > 0 {
				t.Fatalf("generation %d, seed %d: %d flows of the old controller after the change", generation, seed, n)
			}
		}
	}
}
