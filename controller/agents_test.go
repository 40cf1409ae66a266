package controller

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/bus"
	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/datapath/testnet"
	"weir/law"
	"weir/law/flows"
	"weir/law/inventory"
	"weir/law/telemetry"
	"weir/policy/store"
)

// answering grants each VM of the inventory a window as large as the backlog of the last report, and records events.
type answering struct {
	mu    sync.Mutex
	said  []string
	vms   map[law.VM]law.Host
	flows []law.Flow // granted, too
}

func (l *answering) note(format string, a ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, fmt.Sprintf(format, a...))
}

func (l *answering) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.said, text)
}

func (l *answering) Wake() time.Duration { return 0 }

func (l *answering) Step(_ time.Duration, e law.Event, out []law.Action) []law.Action {
	switch e := e.(type) {
	case *inventory.Switch:
		l.note("switch %d: %d ports, the first %s at %v", e.At, len(e.Ports), e.Ports[0].Name, e.Ports[0].Rate)
	case *inventory.Host:
		var vms []law.VM
		for n, h := range l.vms {
			if h == e.At {
				delete(l.vms, n)
			}
		}
		for _, vm := range e.VMs {
			if g := vm.Guarantee; g.Weight > 0 {
				l.note("VM %d of %v: rate %v, weight %d, cap %v", vm.Number, e.Rate, g.Rate, g.Weight, g.Cap)
			}
			vms = append(vms, vm.Number)
			l.vms[vm.Number] = e.At
		}
		l.note("host %d: %v", e.At, vms)
	case *inventory.SwitchLeft:
		l.note("switch %d left", e.At)
	case *inventory.HostLeft:
		l.note("host %d left", e.At)
	case *telemetry.Arrivals:
		pair := e.Ports[0].Pairs[0]
		l.note("switch %d: %d SYN at port %d, of %v to %v", e.At, e.Ports[0].Counts.SYN, e.Ports[0].N, pair.Source, pair.Destination)
	case *flows.Declared:
		l.note("declared %v: %d B, value %d, number %d, in time %v", e.Flow.Src, e.Bytes, e.Value, e.Number, e.Left > 0 && e.Left <= time.Hour)
	case *flows.Began:
		l.note("began at %d: %v", e.At.N, e.Flow.Src)
	case *flows.Progress:
		for _, s := range e.Sent {
			l.note("sent at %d: %v, %d B", s.Port, s.Flow.Src, s.Bytes)
		}
	case *flows.Ended:
		l.note("ended at %d: %v", e.At.N, e.Flow.Src)
	case *telemetry.Telemetry:
		for vm := range l.vms {
			out = append(out, law.Grant{Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: vm}}, Value: e.Ports[0].BacklogBytes, Lease: time.Second})
		}
		for _, f := range l.flows {
			out = append(out, law.Grant{Kind: law.WindowGrant, Key: law.Key{Flow: f}, Value: 9999, Lease: time.Second})
		}
	}
	return out
}

// busKit is a controller with a bus of its own, and agents that a test plays.
type busKit struct {
	t   testing.TB
	ca  *pki.CA
	dir string
	cfg *Config
	url string
	law *answering
}

func newBusKit(t testing.TB) *busKit {
	t.Helper()
	k := &busKit{t: t, dir: t.TempDir(), law: &answering{vms: map[law.VM]law.Host{}}}
	k.ca = &pki.CA{Dir: filepath.Join(k.dir, "ca")}
	if err := k.ca.Create(); err != nil {
		t.Fatal(err)
	}
	address := testnet.FreeAddress(t) // the bus has it after a restart, too
	k.url = "tls://" + address
	file := filepath.Join(k.dir, "c.yaml")
	text := fmt.Sprintf("kind: Controller\nname: bus%d\nlisten: 127.0.0.1:0\nmetrics: {listen: \"\"}\ngeneration: %s/generation\nbus: {listen: %q, server_keys: %q, keys: %q, buckets: 4}\n",
		os.Getpid(), k.dir, address, k.enrol("bus/b1"), k.enrol("controller/c1"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if k.cfg, err = Load(file, nil); err != nil {
		t.Fatal(err)
	}
	k.cfg.Laws = []Law{{Name: "answering", New: func() (law.Law, error) { return k.law, nil }}}
	return k
}

// enrol makes the files of an identity and returns their directory.
func (k *busKit) enrol(id string) string {
	k.t.Helper()
	who, err := pki.ParseIdentity(id)
	if err != nil {
		k.t.Fatal(err)
	}
	var addresses []string
	if who.Role == pki.Bus {
		addresses = []string{"127.0.0.1"}
	}
	out := filepath.Join(k.dir, strings.ReplaceAll(id, "/", "-"))
	if _, err := k.ca.Enrol(who, out, addresses, 0); err != nil {
		k.t.Fatal(err)
	}
	return out
}

// run runs the controller until stop is called, or the test ends.
func (k *busKit) run() (stop func()) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	k.cfg.Ready = func(net.Addr) { close(ready) }
	go func() { ended <- Run(ctx, k.cfg) }()
	select {
	case <-ready:
	case err := <-ended:
		k.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			k.t.Error(err)
		}
	})
	k.t.Cleanup(stop)
	// The tests' agents report once. Real ones do so again.
	k.until("the controller is on the bus", func() bool { return k.status().Bus.Connected })
	return stop
}

func (k *busKit) status() *Status {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	s, err := ReadStatus(ctx, k.cfg.Name, Here)
	if err != nil {
		k.t.Fatal(err)
	}
	return s
}

// played is an agent that a test plays.
type played struct {
	*bus.Agent
	grants chan []law.Grant
	plans  chan *weirv1.PortPlan
}

func (k *busKit) agent(name string) *played {
	k.t.Helper()
	p := &played{grants: make(chan []law.Grant, 4096), plans: make(chan *weirv1.PortPlan, 4096)}
	dir := k.enrol("agent/" + name)
	begun := time.Now()
	a, err := bus.NewAgent(bus.AgentConfig{
		Client: bus.ClientConfig{URLs: []string{k.url}, Files: pki.In(dir, name)}, Buckets: 4, Terms: bus.TermFile{Path: filepath.Join(dir, "term")},
		Clock: func() time.Duration { return time.Since(begun) + time.Second }, Obey: p.obey,
	})
	if err != nil {
		k.t.Fatal(err)
	}
	p.Agent = a
	k.t.Cleanup(a.Close)
	k.until("the agent is connected", a.Conn().Connected)
	return p
}

func (p *played) obey(c *weirv1.Command, g []law.Grant) {
	if c.GetPlan() != nil {
		p.plans <- c.GetPlan()
	}
	if len(g) > 0 {
		p.grants <- g
	}
}

func (k *busKit) until(what string, ok func() bool) {
	k.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			status := k.status().Bus
			k.law.mu.Lock()
			defer k.law.mu.Unlock()
			k.t.Fatalf("%s: not within 30 s; the law saw %q; the bus: %+v", what, k.law.said, status)
		}
	}
}

func (p *played) report(t *testing.T, backlog uint64) {
	t.Helper()
	if err := p.SendTelemetry(&weirv1.Telemetry{Switch: 3, IntervalNs: 1e6, Ports: []*weirv1.PortReport{{Port: 1, BacklogBytes: backlog}}}); err != nil {
		t.Fatal(err)
	}
}

func (p *played) hosts(t *testing.T, host uint32, serial uint64, vms ...uint32) {
	t.Helper()
	var guests []*weirv1.Guest
	for _, n := range vms {
		guests = append(guests, &weirv1.Guest{Vm: n, Addresses: []*weirv1.Range{weirv1.NewRange(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 32))}})
	}
	parts, err := (&weirv1.Inventory{Serial: serial, Guests: guests}).Split()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SendEvents(&weirv1.Events{Host: host, State: p.State("1.2"), Inventory: parts[0]}); err != nil {
		t.Fatal(err)
	}
}

// A switch's report reaches the law, and the law's grants reach the hosts of the VMs, from the first report on.
func TestAgents_ReportToGrant(t *testing.T) {
	k := newBusKit(t)
	k.law.flows = []law.Flow{
		{Src: netip.MustParseAddrPort("10.0.0.5:80"), Dst: netip.MustParseAddrPort("10.0.0.9:999"), Proto: 6},
		{Src: netip.MustParseAddrPort("10.0.0.77:80"), Dst: netip.MustParseAddrPort("10.0.0.9:999"), Proto: 6}, // nobody's
	}
	k.run()
	sw, h1, h2 := k.agent("sw"), k.agent("h1"), k.agent("h2")
	ports, err := (&weirv1.Inventory{Serial: 1, Ports: []*weirv1.SwitchPort{{Port: 1, Name: "swp1", Rate: 1e9, BufferBytes: 85300}}}).Split()
	if err != nil {
		t.Fatal(err)
	}
	if err := sw.SendEvents(&weirv1.Events{Switch: 3, Inventory: ports[0], Arrivals: []*weirv1.Arrivals{{Port: 1, Syn: 2,
		Pairs: []*weirv1.NewPair{{Source: []byte{10, 0, 0, 1}, Destination: []byte{10, 0, 0, 9}, Kinds: 1}}}}}); err != nil {
		t.Fatal(err)
	}
	h1.hosts(t, 7, 1, 1, 5)
	h2.hosts(t, 8, 1, 2)
	for _, says := range []string{
		"switch 3: 1 ports, the first swp1 at 1Gbit", "host 7: [1 5]", "host 8: [2]", "switch 3: 2 SYN at port 1, of 10.0.0.1 to 10.0.0.9",
	} {
		k.until(says, func() bool { return k.law.has(says) })
	}
	k.until("the controller commands all agents", func() bool {
		s := k.status().Bus
		return len(s.Agents) == 3 && !slices.ContainsFunc(s.Agents, func(a AgentStatus) bool { return !a.Commands })
	})
	sw.report(t, 4321)
	want := func(p *played, grants ...law.Grant) {
		t.Helper()
		got := <-p.grants
		slices.SortFunc(got, func(a, b law.Grant) int { return int(a.Key.VM) - int(b.Key.VM) + int(a.Value) - int(b.Value) })
		for i := range got {
			if got[i].Cause == 0 {
				t.Errorf("%+v does not name the event that it answers", got[i])
			}
			got[i].Cause = 0
		}
		if d := cmp.Diff(grants, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
			t.Errorf("grants, want and got:\n%s", d)
		}
	}
	of := func(vm law.VM) law.Grant {
		return law.Grant{Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: vm}}, Value: 4321, Lease: time.Second}
	}
	byFlow := law.Grant{Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: 5}, Flow: k.law.flows[0]}, Value: 9999, Lease: time.Second}
	want(h1, of(1), of(5), byFlow)
	want(h2, of(2))
	s := k.status().Bus
	if s.Grants[grantSent] != 4 || s.Grants[grantNowhere] != 1 || s.Agents[0].Version != "1.2" || s.Agents[0].VMs != 2 || s.Agents[2].Switch != law.Switch(3).String() {
		t.Errorf("status: %+v", s)
	}
}

// An agent with both roles reports two inventories. The laws get each of them once, although it sends them again.
func TestAgents_BothRoles(t *testing.T) {
	k := newBusKit(t)
	k.run()
	both := k.agent("both")
	ports, err := (&weirv1.Inventory{Serial: 9, Ports: []*weirv1.SwitchPort{{Port: 1, Name: "swp1"}}}).Split()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		both.hosts(t, 7, 4, 1)
		if err := both.SendEvents(&weirv1.Events{Switch: 3, Inventory: ports[0]}); err != nil {
			t.Fatal(err)
		}
	}
	both.hosts(t, 7, 5, 1, 2)
	k.until("the newest inventory", func() bool { return k.law.has("host 7: [1 2]") })
	k.law.mu.Lock()
	defer k.law.mu.Unlock()
	if want := []string{"host 7: [1]", "switch 3: 1 ports, the first swp1 at 0kbit", "host 7: [1 2]"}; !slices.Equal(k.law.said, want) {
		t.Errorf("the law saw %q, want %q", k.law.said, want)
	}
}

// The inventory of an agent is in the store of policies, where an operator's commands read it.
func TestAgents_InventoryIsStored(t *testing.T) {
	k := newBusKit(t)
	k.run()
	k.agent("h1").hosts(t, 7, 1, 1, 5)
	dir := k.enrol("operator/op")
	conn, err := bus.Dial(bus.ClientConfig{URLs: []string{k.url}, Files: pki.In(dir, "op")})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	k.until("the operator is connected", conn.Connected)
	k.until("the host is in the store", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		kv, err := store.Bus(ctx, conn, 0)
		if err != nil {
			return false // the controller makes it
		}
		list, _, err := store.New(kv, store.Author{Identity: "operator/op"}).Inventory(ctx)
		return err == nil && len(list) == 1 && list[0].Name == "h1" && list[0].Host != nil && list[0].Host.ID == 7 && len(list[0].Host.VMs) == 2
	})
}

// An agent cannot take another's switch, host or VM. A VM that moves is the new host's as soon as the old one gives it up or
// is silent.
func TestAgents_Claims(t *testing.T) {
	k := newBusKit(t)
	k.run()
	h1, h2, liar := k.agent("h1"), k.agent("h2"), k.agent("liar")
	h1.hosts(t, 7, 1, 1, 2)
	k.until("the first host", func() bool { return k.law.has("host 7: [1 2]") })
	h2.hosts(t, 8, 1, 2, 3) // has VM 2, too
	k.until("the second host without the first one's VM", func() bool { return k.law.has("host 8: [3]") })
	liar.hosts(t, 7, 1, 1)
	k.until("a refusal", func() bool { return k.status().Bus.NoEffect["claimed"] > 0 })
	h1.hosts(t, 7, 2, 1) // VM 2 has moved
	k.until("the VM has moved", func() bool { return k.law.has("host 7: [1]") && k.law.has("host 8: [2 3]") })
	liar.hosts(t, 9, 2, 9)
	k.until("a refusal of another number", func() bool { return k.status().Bus.NoEffect["host"] > 0 })
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the second host and the switch live, and the first is silent
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				_ = h2.SendEvents(&weirv1.Events{Host: 8, State: h2.State("")})
			}
		}
	}()
	k.until("the first host is silent", func() bool { return k.law.has("host 7 left") })
	liar.hosts(t, 7, 3, 1) // now it can have the number: nobody else is there
	k.until("its turn", func() bool {
		k.law.mu.Lock()
		defer k.law.mu.Unlock()
		return k.law.said[len(k.law.said)-1] == "host 7: [1]"
	})
}

// After a restart the controller knows the agents again and commands them, without their help.
func TestAgents_ControllerRestarts(t *testing.T) {
	k := newBusKit(t)
	stop := k.run()
	sw, h1 := k.agent("sw"), k.agent("h1")
	send := func() {
		sw.report(t, 5000)
		h1.hosts(t, 7, 1, 1)
	}
	k.until("a grant", func() bool { send(); return len(h1.grants) > 0 })
	term := h1.State("").GetTerms()[0].GetTerm()
	stop()
	for len(h1.grants) > 0 {
		<-h1.grants
	}
	k.run()
	k.until("connected again", func() bool { return sw.Conn().Connected() && h1.Conn().Connected() })
	k.until("a grant of the next controller", func() bool { send(); return len(h1.grants) > 0 })
	if after := h1.State("").GetTerms()[0].GetTerm(); after <= term {
		t.Errorf("term %d after a restart, and %d before", after, term)
	}
}

// A file with a bus is checked before anything starts.
func TestBusOfAFile(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	for _, row := range []struct{ text, says string }{
		{"bus: {keys: K}\n", "c.yaml:2: bus: neither listen nor urls is given; listen: 127.0.0.1:4222 runs the bus in this process"},
		{"bus: {urls: [nats://10.0.0.1:1], keys: K}\n", `c.yaml:2: bus.urls: "nats://10.0.0.1:1" is no address of the bus; such as tls://10.0.0.5:4222`},
		{"bus:\n  listen: 127.0.0.1:0\n  keys: K\n", "c.yaml:3: bus.listen: the bus needs a certificate of its own; server_keys: the directory made by weir bus enrol bus/NAME --address ADDRESS"},
		{"bus:\n  urls: [tls://10.0.0.5:4222]\n  keys: " + none + "\n", "c.yaml:4: bus.keys: look for a certificate: open " + none + ": no such file or directory"},
	} {
		_, err := loadLaws(t, row.text)
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%q:\n%v\nshould be\n%s", row.text, err, row.says)
		}
	}
}
