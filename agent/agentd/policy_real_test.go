package agentd_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/bus"
	"weir/controller"
	"weir/datapath/testnet"
	"weir/law"
	"weir/law/fairq"
	"weir/law/gcc"
	"weir/law/sicc"
	"weir/policy"
	"weir/policy/store"
)

// system is a machine whose agent obeys a whole controller, with an operator.
type system struct {
	*machine
	reader *policy.Reader
	specs  law.Specs
	store  *store.Store
}

// newSystem replaces the machine's controller by one that enforces policies.
func newSystem(t *testing.T, m *machine) *system {
	t.Helper()
	m.stopController()
	s := &system{machine: m, specs: law.Specs{fairq.Spec(), sicc.Spec(), gcc.Spec()}}
	s.reader = policy.NewReader(s.specs)
	m.enrol("controller/c2")
	file := filepath.Join(m.dir, "controller.yaml")
	text := fmt.Sprintf("kind: Controller\nname: agentd%d\nlisten: 127.0.0.1:0\nmetrics: {listen: \"\"}\ngeneration: %s/generation\nbus: {urls: [\"tls://%s\"], keys: %s, buckets: %d}\n",
		os.Getpid(), m.dir, m.at, filepath.Join(m.dir, "controller-c2"), buckets)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := controller.Load(file, s.specs)
	if err != nil {
		t.Fatal(err)
	}
	c.Log = m.logger("controller")
	ready, ended := make(chan struct{}), make(chan error, 1)
	c.Ready = func(net.Addr) { close(ready) }
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- controller.Run(ctx, c) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conn, err := bus.Dial(bus.ClientConfig{URLs: []string{"tls://" + m.at}, Files: m.enrol("operator/op")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	testnet.Until(t, "the store", func() bool {
		call, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		kv, err := store.Bus(call, conn, 0)
		if err == nil {
			s.store = store.New(kv, store.Author{Identity: "operator/op"})
		}
		return err == nil
	})
	return s
}

// change applies policies without kind and version, and deletes others.
func (s *system) change(remove []string, texts ...string) {
	s.t.Helper()
	var all []store.Text
	for _, text := range texts {
		text = "kind: Policy\nversion: 1\n" + text
		p, err := s.reader.Parse("p.yaml", []byte(text))
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, store.Text{Name: p.Name, Text: []byte(text)})
	}
	snap, err := s.store.Read(s.t.Context())
	if err == nil {
		_, err = s.store.Commit(s.t.Context(), snap, store.Apply, all, remove)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// shown is what `weir policy get` shows: the condition of each policy, with the reason.
func (s *system) shown() string {
	s.t.Helper()
	snap, err := s.store.Read(s.t.Context())
	nodes, _, err2 := s.store.Inventory(s.t.Context())
	lives, _, err3 := s.store.Lives(s.t.Context())
	if err != nil || err2 != nil || err3 != nil {
		s.t.Fatal(err, err2, err3)
	}
	v := policy.View{Specs: s.specs, Policies: snap.Parse(s.reader), Inventory: nodes, Lives: lives, Change: snap.Change, Now: time.Now()}
	var out []string
	for _, p := range v.State().Policies {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", p.Name, p.Condition, p.Reason)))
	}
	return strings.Join(out, "; ")
}

func (s *system) shows(want string) {
	s.t.Helper()
	got := ""
	testnet.Until(s.t, want, func() bool {
		got = s.shown()
		return got == want || got != "" && want != "" && strings.HasPrefix(got, want+" at ")
	})
}

// rateOf waits until the kernel limits VM 1 to a rate; 0: it does not.
func (s *system) rateOf(want uint64) {
	s.t.Helper()
	s.until(fmt.Sprintf("VM 1 is limited to %d bit/s", want), func(st *agentd.Status) bool {
		got := uint64(0)
		for _, g := range st.Host.VMs[0].Grants {
			if g.Kind == "rate" {
				got = g.Value
			}
		}
		return got == want
	})
}

// Policies of the store are enforced in the kernel of a machine: the cap of a VM at the uplink, and the law of a port. An edit
// and the end of a policy lose no packet, and what is shown is what holds.
func TestPolicies_InTheKernel(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	m.dummy(true)
	host := strings.TrimPrefix(m.hostFile(", rate: 200Mbit", 0), m.header())
	file := m.header() + host + "switch:\n  number: 3\n  laws: policy\n  ports: [{port: d0, number: 2, peer: " + agentName + "}]\n"
	m.start(file)
	s := newSystem(t, m)
	const cap30 = "name: vm\nselect: {vms: {names: [web1]}}\nguarantee: {cap: 30Mbit}\n"
	const queue = "name: port\nselect: {ports: {names: ['h7/*']}}\nlaws: {fairq: {}}\n"
	s.change(nil, cap30, queue)
	s.rateOf(30e6)
	m.enforces("all")
	s.shows("port enforced; vm enforced")
	stop := m.numbered()
	s.change(nil, strings.ReplaceAll(cap30, "30M", "20M"), strings.ReplaceAll(queue, "{}", "{target_fraction: 0.4}")+"enforce: {percent: 25}\n")
	s.rateOf(20e6)
	m.enforces("part")
	s.shows("port enforced; vm enforced")
	s.change(nil, strings.ReplaceAll(cap30, "30M", "20M")+"laws: {sicc: {}}\n")
	s.shows("port enforced; vm enforced")
	s.change([]string{"vm"})
	s.rateOf(0)
	sent, came := stop()
	if lost := sent - came; lost > 0 {
		t.Errorf("%d of %d packets were lost", lost, sent)
	}
	m.dummy(false)
	s.shows("port off it selects no port, host or VM of the inventory")
}

// A cap at a host whose uplink has no rate cannot be enforced, and is shown so. A rate that no law shares is degraded.
func TestPolicies_WithoutALimiter(t *testing.T) {
	m := newMachine(t, 1, testnet.PathOptions{})
	m.start(m.hostFile("", 0))
	s := newSystem(t, m)
	s.change(nil, "name: vm\nselect: {vms: {names: [web1]}}\nguarantee: {cap: 30Mbit}\n")
	s.shows("vm off at vm h7/web1: the rate of the host's uplink is not known, so nothing can be guaranteed")
}

// Guarantees of the store reach the classes of the kernel by the law at the host: a least rate, then weights, then none again. A host
// without such a law is shown as degraded, and what it takes from the plan before is shown, too.
func TestPolicies_Guarantees(t *testing.T) {
	m := newMachine(t, 2, testnet.PathOptions{GSO: true, ChecksumOffload: true})
	file := m.hostFile(", rate: 200Mbit", 0, 1)
	a := m.start(file)
	s := newSystem(t, m)
	const gold = "name: gold\nselect: {vms: {names: [web1]}}\nlaws: {gcc: {}}\nguarantee: "
	s.change(nil, gold+"{rate: 120Mbit}\n")
	s.shows("gold degraded at vm h7/web1: its host has no law that shares the uplink: set host.laws in the agent's file. Of the guarantee only the cap is enforced")
	a.kill()
	m.start(strings.Replace(file, "  vms:", "  laws: {gcc: {}}\n  vms:", 1))
	s.shows("gold enforced")
	for i := range 2 {
		streams := m.Path(i).NewStreams(t, testnet.PeerIPv4(0), 1)
		testnet.Until(t, "the stream runs", func() bool { streams.Progress(t, 1e4); return true })
	}
	s.classes(120, 80)
	s.change(nil, gold+"{weight: 3}\n")
	s.classes(150, 50)
	s.change(nil, gold+"{rate: 40Mbit, weight: 4}\n")
	s.classes(160, 40)
	s.excess(law.ExcessQueue, law.ExcessQueue)
	s.change(nil, gold+"{rate: 40Mbit, weight: 4, excess: drop}\n")
	s.excess(law.ExcessDrop, law.ExcessQueue)
	s.classes(160, 40)
	s.change([]string{"gold"})
	s.classes(100, 100)
	s.excess(law.ExcessQueue, law.ExcessQueue)
}

// excess waits until the host does so with packets above the rates of VMs 1 and 2.
func (s *system) excess(of ...string) {
	s.t.Helper()
	s.until(fmt.Sprintf("excess of the VMs: %v", of), func(st *agentd.Status) bool {
		for i, want := range of {
			if c := st.Host.VMs[i].Counts; c == nil || c.Excess != want {
				return false
			}
		}
		return true
	})
}

// classes waits until the kernel limits VMs 1 and 2 to these rates in Mbit/s, within the 2 % that a class may differ.
func (s *system) classes(mbit ...float64) {
	s.t.Helper()
	s.until(fmt.Sprintf("the VMs have %v Mbit/s", mbit), func(st *agentd.Status) bool {
		for i, want := range mbit {
			c := st.Host.VMs[i].Counts
			if c == nil || float64(c.Rate) < 0.98*want*1e6 || float64(c.Rate) > 1.02*want*1e6 {
				return false
			}
		}
		return true
	})
}
