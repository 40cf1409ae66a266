package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bus"
	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
	"weir/policy"
	"weir/policy/store"
)

// windowParams are those of a law that grants each VM that it knows a window, with each report of a switch.
type windowParams struct {
	Window law.Bytes `json:"window" above:"0" jsonschema_description:"of each VM"`
	Stray  uint32    `json:"stray,omitempty" jsonschema_description:"a VM that the law grants, too, also when it does not know it"`
}

type windowLaw struct {
	p   windowParams
	vms map[law.Host][]law.VM
}

func (l *windowLaw) Wake() time.Duration { return 0 }

func (l *windowLaw) Step(_ time.Duration, e law.Event, out []law.Action) []law.Action {
	grant := func(vm law.VM) {
		out = append(out, law.Grant{Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: vm}}, Value: uint64(l.p.Window), Lease: time.Second})
	}
	switch e := e.(type) {
	case *inventory.Host:
		l.vms[e.At] = nil
		for _, v := range e.VMs {
			l.vms[e.At] = append(l.vms[e.At], v.Number)
		}
	case *inventory.HostLeft:
		delete(l.vms, e.At)
	case *telemetry.Telemetry:
		for _, h := range sortedKeys(l.vms) {
			for _, vm := range l.vms[h] {
				grant(vm)
			}
		}
		if l.p.Stray != 0 {
			grant(law.VM(l.p.Stray))
		}
	}
	return out
}

// policySpecs are a law of a controller, and one of a switch's ports.
func policySpecs() law.Specs {
	return law.Specs{
		{
			Name: "window", Sites: []law.Site{law.Controller}, Claims: []law.Resource{law.ReceiveWindow}, Params: func() any { return &windowParams{Window: 3000} },
			New: func(_ law.Site, params any, _ *law.Topology) (law.Law, error) {
				return &windowLaw{*params.(*windowParams), map[law.Host][]law.VM{}}, nil
			},
		},
		{Name: "queue", Sites: []law.Site{law.SwitchPort}, Claims: []law.Resource{law.ReceiveWindow}, Params: func() any { return &windowParams{Window: 5} }},
	}
}

// policyKit is a controller that enforces policies, an operator, and agents that a test plays.
type policyKit struct {
	*busKit
	reader *policy.Reader
	conn   *bus.Conn
	stop   func() // of the controller that runs
}

func (k *policyKit) run() { k.stop = k.busKit.run() }

func newPolicyKit(t testing.TB) *policyKit {
	t.Helper()
	k := &policyKit{busKit: newBusKit(t), reader: policy.NewReader(policySpecs())}
	k.cfg.Specs, k.cfg.Laws = policySpecs(), nil
	k.run()
	dir := k.enrol("operator/op")
	var err error
	if k.conn, err = bus.Dial(bus.ClientConfig{URLs: []string{k.url}, Files: pki.In(dir, "op")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.conn.Close)
	k.until("the operator is connected", k.conn.Connected)
	return k
}

// storage returns the store, which the controller makes.
func (k *policyKit) storage() (s *store.Store) {
	k.t.Helper()
	k.until("the store", func() bool {
		ctx, cancel := context.WithTimeout(k.t.Context(), 5*time.Second)
		defer cancel()
		kv, err := store.Bus(ctx, k.conn, 0)
		if err == nil {
			s = store.New(kv, store.Author{Identity: "operator/op"})
		}
		return err == nil
	})
	return s
}

// apply applies policies, given without kind and version.
func (k *policyKit) apply(texts ...string) {
	k.t.Helper()
	var all []store.Text
	for _, text := range texts {
		text = "kind: Policy\nversion: 1\n" + text
		p, err := k.reader.Parse("p.yaml", []byte(text))
		if err != nil {
			k.t.Fatal(err)
		}
		all = append(all, store.Text{Name: p.Name, Text: []byte(text)})
	}
	k.commit(all, nil)
}

func (k *policyKit) remove(names ...string) { k.t.Helper(); k.commit(nil, names) }

func (k *policyKit) commit(texts []store.Text, remove []string) {
	k.t.Helper()
	s := k.storage()
	snap, err := s.Read(k.t.Context())
	if err == nil {
		_, err = s.Commit(k.t.Context(), snap, store.Apply, texts, remove)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// spoil replaces the head of the store, and returns the one before. nil: it becomes unreadable.
func (k *policyKit) spoil(head []byte) []byte {
	k.t.Helper()
	conn, err := bus.Dial(bus.ClientConfig{URLs: []string{k.url}, Files: pki.In(k.enrol("controller/spoils"), "spoils")})
	if err != nil {
		k.t.Fatal(err)
	}
	defer conn.Close()
	k.until("the spoiler is connected", conn.Connected)
	kv, err := store.Bus(k.t.Context(), conn, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	before, _, err := kv.Get(k.t.Context(), "head")
	if err == nil {
		err = kv.Put(k.t.Context(), "head", append([]byte("x")[:1-min(len(head), 1)], head...))
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return before
}

// view is what `weir policy` shows.
func (k *policyKit) view() *policy.View {
	k.t.Helper()
	s := k.storage()
	snap, err := s.Read(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	nodes, faults, err := s.Inventory(k.t.Context())
	lives, more, err2 := s.Lives(k.t.Context())
	if err := errors.Join(append(append(faults, more...), err, err2)...); err != nil {
		k.t.Fatal(err)
	}
	return &policy.View{Specs: policySpecs(), Policies: snap.Parse(k.reader), Inventory: nodes, Lives: lives, Change: snap.Change, Now: time.Now()}
}

// shows waits until `weir policy get` shows a condition of a policy.
func (k *policyKit) shows(name string, want policy.Condition, reason string) {
	k.t.Helper()
	var got policy.Status
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		for _, s := range k.view().State().Policies {
			if s.Name == name {
				got = s
			}
		}
		if got.Condition == want && strings.Contains(got.Reason, reason) && (reason != "" || got.Reason == "") {
			return
		}
		if time.Now().After(end) {
			k.t.Fatalf("policy %s is %+v, want %s, %q", name, got, want, reason)
		}
	}
}

// actor is an agent with both roles that reports by itself.
type actor struct {
	*played
	k      *policyKit
	number uint32 // of its host and of its switch

	mu     sync.Mutex
	guests []*weirv1.Guest
	ports  []*weirv1.SwitchPort
	plan   *weirv1.PlanState
	refuse []*weirv1.RefusedGrant
	serial uint64
	window map[uint32]uint64 // by VM: the last grant; 0: released
	rate   map[uint32]uint64
	owners map[uint32]map[uint32]bool // of window grants, by VM
	at     map[uint32]time.Time       // of the last grant of any kind
	got    *weirv1.PortPlan

	released map[uint32]int // grants, by VM
	reports  int
}

// actor begins an agent. It is silent after stop.
func (k *policyKit) actor(name string, number uint32) (a *actor, stop func()) {
	k.t.Helper()
	a = &actor{
		ports:  []*weirv1.SwitchPort{{Port: 1, Name: "first"}},
		played: k.agent(name), k: k, number: number, serial: 1, window: map[uint32]uint64{}, rate: map[uint32]uint64{}, owners: map[uint32]map[uint32]bool{},
		at: map[uint32]time.Time{}, released: map[uint32]int{}, plan: &weirv1.PlanState{},
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for n := 0; ; n++ {
			select {
			case <-end:
				return
			case g := <-a.grants:
				a.granted(g)
				continue
			case plan := <-a.plans:
				a.mu.Lock()
				a.got = plan
				a.mu.Unlock()
				continue
			case <-every.C:
			}
			if n%5 == 0 {
				a.report()
			}
			_ = a.SendTelemetry(&weirv1.Telemetry{Switch: uint64(number), IntervalNs: 2e7, Ports: []*weirv1.PortReport{{Port: 1, BacklogBytes: 1}}}) // the next one follows
		}
	}()
	stop = sync.OnceFunc(func() { close(end); <-ended })
	k.t.Cleanup(stop)
	return a, stop
}

func (a *actor) granted(list []law.Grant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range list {
		to, vm := a.window, uint32(g.Key.VM)
		if g.Kind == law.RateGrant {
			to = a.rate
		} else {
			if a.owners[vm] == nil {
				a.owners[vm] = map[uint32]bool{}
			}
			a.owners[vm][uint32(g.Owner)] = g.Lease > 0
		}
		to[vm] = g.Value
		if g.Lease == 0 {
			to[vm] = 0
			a.released[vm]++
		}
		a.at[vm] = time.Now()
	}
}

// report sends the state and the inventory.
func (a *actor) report() {
	a.mu.Lock()
	host := &weirv1.Inventory{Serial: a.serial, Guests: a.guests, Hypervisor: &weirv1.Hypervisor{Rate: 10e9}}
	sw := &weirv1.Inventory{Serial: a.serial, Ports: a.ports, Laws: []string{"queue"}}
	plan, refuse := a.plan, a.refuse
	a.reports++
	a.mu.Unlock()
	for _, i := range []*weirv1.Inventory{host, sw} {
		parts, err := i.Split()
		if err != nil {
			a.k.t.Error(err)
			return
		}
		for _, p := range parts {
			e := &weirv1.Events{Host: a.number, State: a.State("1"), Inventory: p}
			if e.State.Refused = refuse; i == sw {
				e.Host, e.Switch = 0, uint64(a.number)
				e.State.Plan, e.State.Refused = plan, nil
			}
			_ = a.SendEvents(e) // the next one follows
		}
	}
}

// has changes what the agent has: VMs as "NUMBER NAME TENANT ADDRESS".
func (a *actor) has(vms ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guests = nil
	for _, text := range vms {
		g := &weirv1.Guest{}
		var tenant, address string
		if _, err := fmt.Sscan(text, &g.Vm, &g.Name, &tenant, &address); err != nil {
			a.k.t.Fatal(err)
		}
		g.Labels = map[string]string{"tenant": tenant}
		g.Addresses = []*weirv1.Range{weirv1.NewRange(netip.PrefixFrom(netip.MustParseAddr(address), 32))}
		a.guests = append(a.guests, g)
	}
	a.serial++
}

func (a *actor) hasPorts(names ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ports = nil
	for i, name := range names {
		a.ports = append(a.ports, &weirv1.SwitchPort{Port: uint32(i + 1), Name: name, Rate: 1e9, BufferBytes: 1e5})
	}
	a.serial++
}

// says sets what the agent reports of its plan.
func (a *actor) says(s *weirv1.PlanState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.plan = s
}

// holds returns the windows and rates of VMs, for comparisons: "1:3000 2:2000/9Gbit".
func (a *actor) holds() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, vm := range sortedKeys(a.at) {
		if time.Since(a.at[vm]) > time.Second {
			continue // the lease has ended
		}
		text := fmt.Sprintf("%d:%d", vm, a.window[vm])
		if r := a.rate[vm]; r > 0 {
			text += "/" + law.Rate(r).String()
		}
		if a.window[vm] > 0 || a.rate[vm] > 0 {
			out = append(out, text)
		}
	}
	return strings.Join(out, " ")
}

// until waits until the agent holds something.
func (a *actor) until(want string) {
	a.k.t.Helper()
	got := ""
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if got = a.holds(); got == want {
			return
		}
		if time.Now().After(end) {
			a.k.t.Fatalf("agent %d has %q, want %q; policies: %+v", a.number, got, want, a.k.status().Policies)
		}
	}
}

// planned waits for a plan that the test likes, and returns it.
func (a *actor) planned(what string, ok func(*weirv1.PortPlan) bool) (plan *weirv1.PortPlan) {
	a.k.t.Helper()
	a.k.until(what, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		plan = a.got
		return plan != nil && ok(plan)
	})
	return plan
}

// lawsAt returns the laws of a plan at a port.
func lawsAt(plan *weirv1.PortPlan, port uint32) (out []string) {
	for _, p := range plan.GetPorts() {
		if p.GetPort() == port {
			for _, i := range p.GetSettings() {
				s := plan.GetSettings()[i]
				out = append(out, fmt.Sprintf("%s %s %d", s.GetLaw(), s.GetParams(), s.GetPercent()))
			}
		}
	}
	slices.Sort(out)
	return out
}
