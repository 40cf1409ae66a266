package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/bus/weirv1"
	"weir/law"
	"weir/law/inventory"
	"weir/policy"
	"weir/policy/store"
)

const (
	// settle is the least time between two compilations: agents that begin together report together.
	settle = 20 * time.Millisecond
	// reportEvery and reportLeast are the times between two reports of what is enforced: without and with changes.
	reportEvery = 3 * time.Second
	reportLeast = 500 * time.Millisecond
	storeRead   = 30 * time.Second      // for reading all policies
	planBytes   = weirv1.MaxMessage / 2 // of all parameters in a plan
)

// policies enforces the policies of the store. One goroutine reads and compiles them, so that the laws do not wait. The result is
// applied on the laws' goroutine, which owns the fields below "laws".
type policies struct {
	core   *Core
	agents *agents
	log    *slog.Logger
	specs  law.Specs // of this build
	file   []policy.Setting
	reader *policy.Reader
	wake   chan struct{}
	moved  atomic.Bool // what agents have changed since the last compilation

	// laws
	running []*instance
	caps    *caps
	owners  []law.Owner // that the laws of the file leave free
	plans   map[string]*weirv1.PortPlan
	shares  map[string]*weirv1.HostPlan
	applied *wanted // nil: none yet, so that no agent loses laws before the policies were read
	base    int     // laws of the core that are not of policies
}

// wanted has the laws, caps and plans that follow from the policies and from what agents have.
type wanted struct {
	change  uint64
	state   *policy.State
	groups  []*group
	caps    map[law.VM]law.Rate
	given   map[law.VM]inventory.Guarantee
	targets map[law.VM]string // names of VMs
	plans   map[string]*weirv1.PortPlan
	shares  map[string]*weirv1.HostPlan
	// problems are those that compiling cannot see.
	problems []policy.Problem
}

// group is a law with parameters and a percentage, for which one instance runs.
type group struct {
	law     string
	params  string // JSON, all of them
	percent int
	policy  string            // that selects ports and VMs together; "": all others
	ports   map[law.Port]bool // nil: all
	vms     map[law.VM]bool   // nil: all
	targets []string
}

// same reports whether an instance of g can continue as one of h: only the selection may differ.
func (g *group) same(h *group) bool {
	return g.law == h.law && g.params == h.params && g.percent == h.percent && g.policy == h.policy && (g.ports == nil) == (h.ports == nil) && (g.vms == nil) == (h.vms == nil)
}

func newPolicies(core *Core, cfg *Config, log *slog.Logger) *policies {
	p := &policies{
		core: core, agents: core.agents, log: log, specs: cfg.Specs, reader: policy.NewReader(cfg.Specs), wake: make(chan struct{}, 1),
		base: len(core.laws),
	}
	used := map[law.Owner]bool{}
	for i, l := range cfg.Laws {
		used[law.Owner(i%ownersMax)] = true
		if l.Params == nil {
			continue
		}
		p.file = append(p.file, policy.Setting{Law: l.Name, Params: l.Params})
	}
	for o := range law.Owner(ownersMax) {
		if !used[o] {
			p.owners = append(p.owners, o)
		}
	}
	if n := len(p.owners); n > 0 {
		p.caps = newCaps()
		core.laws = append(core.laws, namedLaw{"caps", p.owners[n-1], p.caps})
		p.owners = p.owners[:n-1]
		p.base++
	}
	return p
}

// nudge has the policies compiled again. It may be called by any goroutine; nil: there are no policies.
func (p *policies) nudge() {
	if p == nil {
		return
	}
	p.moved.Store(true)
	p.poke()
}

func (p *policies) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// guarantee returns what policies promise a VM.
func (p *policies) guarantee(vm law.VM) inventory.Guarantee {
	if p == nil || p.applied == nil {
		return inventory.Guarantee{}
	}
	return p.applied.given[vm]
}

// runs lists the laws that an agent's machine can have: those of its build, and those that a controller runs for it.
func (p *policies) runs(agent []string) []string {
	out := slices.Clone(agent)
	for _, l := range forController(p.specs) {
		out = append(out, l.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// run follows the store and the agents until ctx is done.
func (p *policies) run(ctx context.Context, n *nodes) {
	kv, s := n.open(ctx)
	if s == nil {
		return
	}
	var changed atomic.Bool
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		for ctx.Err() == nil {
			err := store.Watch(ctx, kv, func() { changed.Store(true); p.poke() })
			if err != nil {
				p.log.Warn("cannot follow the policies: trying again", "error", err)
			}
			pause(ctx, storeAgain)
		}
	})
	p.serve(ctx, s, n.conn.Identity().Name, &changed)
}

// serve compiles the policies when they or the agents have changed, and reports what is enforced, until ctx is done.
func (p *policies) serve(ctx context.Context, s *store.Store, name string, changed *atomic.Bool) {
	var reports sync.WaitGroup
	defer reports.Wait()
	// Apart: a store without a leader lets each report wait for storeCall.
	reports.Go(func() { (&reporter{p: p, store: s, name: name}).run(ctx) })
	var read *store.Snapshot
	var parsed []policy.Policy
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		if changed.Swap(false) {
			snap, err := p.read(ctx, s)
			if err != nil {
				p.log.Warn("cannot read the policies: those before stay in force", "error", err)
				changed.Store(true)
				pause(ctx, storeAgain)
				p.poke()
				continue
			}
			read, parsed = snap, snap.Parse(p.reader)
		} else if !p.moved.Load() {
			continue
		}
		if read != nil {
			p.compile(ctx, read.Change, parsed)
			pause(ctx, settle)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (p *policies) read(ctx context.Context, s *store.Store) (*store.Snapshot, error) {
	call, cancel := context.WithTimeout(ctx, storeRead)
	defer cancel()
	return s.Read(call)
}

// compile decides what holds, and applies it.
func (p *policies) compile(ctx context.Context, change uint64, list []policy.Policy) {
	p.moved.Store(false)
	var agents []policy.Node
	if !p.core.Do(ctx, func() { agents = p.agents.live() }) {
		return
	}
	begun := time.Now()
	w := p.want(change, list, agents)
	p.core.Do(ctx, func() { p.apply(w) })
	p.log.Info("policies compiled", "change", change, "policies", len(list), "targets", len(w.state.Targets), "laws", len(w.groups), "caps", len(w.caps),
		"plans", len(w.plans), "took", time.Since(begun).Round(time.Microsecond))
}

// want compiles the policies for what agents have.
func (p *policies) want(change uint64, list []policy.Policy, agents []policy.Node) *wanted {
	all := list
	if f := policy.FilePolicy("x", p.file); f != nil {
		all = append([]policy.Policy{*f}, list...)
	}
	w := &wanted{
		change: change, state: policy.Compile(p.specs, all, agents), caps: map[law.VM]law.Rate{}, given: map[law.VM]inventory.Guarantee{},
		targets: map[law.VM]string{}, plans: map[string]*weirv1.PortPlan{},
	}
	byName := map[string]*policy.Policy{}
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	g := grouping{specs: p.specs, policies: byName, groups: map[groupKey]*group{}, vmsOf: map[law.Host][]law.VM{}}
	plans := planning{specs: p.specs, policies: byName, ports: map[string]*plannedPorts{}}
	for i := range agents {
		n := &agents[i]
		if n.Host != nil {
			for _, v := range n.Host.VMs {
				g.vmsOf[n.Host.ID] = append(g.vmsOf[n.Host.ID], v.ID)
			}
		}
	}
	for i := range w.state.Targets {
		h := &w.state.Targets[i]
		if h.Target.Kind == policy.VM {
			w.targets[h.Target.VM] = h.Target.String()
			if g := h.Guarantee; g != nil {
				w.given[h.Target.VM] = inventory.Guarantee{Rate: g.Rate, Weight: uint32(g.Weight), Cap: g.Cap, Excess: g.Excess}
				if g.Cap > 0 {
					w.caps[h.Target.VM] = g.Cap
				}
			}
		}
		for k := range h.Laws {
			a := &h.Laws[k]
			switch {
			case policy.IsFile(a.Policies[0]):
			case controllerRuns(p.specs, a.Law):
				g.add(h, a)
			case h.Target.Kind == policy.Port:
				plans.add(h, a)
			default: // the node is a switch, too, whose agent has the law for ports
				w.problems = append(w.problems, policy.Problem{Target: h.Target.String(), Law: a.Law, Off: true, Reason: fmt.Sprintf("nothing runs the law %s there", a.Law)})
			}
		}
	}
	w.groups = g.list()
	plans.make(agents, w)
	w.shares = sharesOf(agents, w.given)
	return w
}

// controllerRuns reports whether a controller of this build runs a law.
func controllerRuns(specs law.Specs, name string) bool {
	l, known := specs.Named(name)
	return known && l.New != nil && slices.Contains(l.Sites, law.Controller)
}

// groupKey names a group. Policies that select ports only are one group, and those that select VMs and hosts only another: each
// group's limits hold at all of its ports, or for all of its VMs. A policy that selects both is a group of its own.
type groupKey struct {
	law, params string
	percent     int
	ports, vms  bool
	policy      string
}

type grouping struct {
	specs    law.Specs
	policies map[string]*policy.Policy
	groups   map[groupKey]*group
	vmsOf    map[law.Host][]law.VM
}

// add adds a target to the groups of the policies that want the law there.
func (g *grouping) add(h *policy.Here, a *policy.Applied) {
	for _, name := range a.Policies {
		sel := g.policies[name].Select
		k := groupKey{law: a.Law, params: string(a.Params), percent: a.Percent, ports: sel[policy.Port] != nil, vms: sel[policy.VM] != nil || sel[policy.Host] != nil}
		if k.ports && k.vms {
			k.policy = name
		}
		of := g.groups[k]
		if of == nil {
			of = &group{law: k.law, params: k.params, percent: k.percent, policy: k.policy}
			if k.ports {
				of.ports = map[law.Port]bool{}
			}
			if k.vms {
				of.vms = map[law.VM]bool{}
			}
			g.groups[k] = of
		}
		of.targets = append(of.targets, h.Target.String())
		switch h.Target.Kind {
		case policy.Port:
			of.ports[law.Port{Switch: h.Target.Switch, N: h.Target.Port}] = true
		case policy.VM:
			of.vms[h.Target.VM] = true
		case policy.Host:
			for _, vm := range g.vmsOf[h.Target.Host] {
				of.vms[vm] = true
			}
		}
	}
}

// list returns the groups in a fixed order.
func (g *grouping) list() []*group {
	return slices.SortedFunc(maps.Values(g.groups), func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.law, b.law), cmp.Compare(a.params, b.params), cmp.Compare(a.percent, b.percent), cmp.Compare(a.policy, b.policy),
			boolCompare(a.ports == nil, b.ports == nil))
	})
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
