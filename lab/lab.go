// Package lab builds an experiment's network on this machine, and removes it again: one network namespace per
// node, real Linux TCP in the guests, bridges or routes in the switches, and shaped ports.
//
//	plan.go       the namespaces, ports and addresses of a configuration; changes nothing
//	lab.go        Up, Down and the methods of a running lab
//	worker.go     the thread in a namespace
//	namespace.go  creates, marks and removes namespaces
//	link.go       veth pairs and their settings
//	fabric.go     the kinds of switch: bridge.go, routed.go, ovs.go with its daemons and their sockets,
//	              the Verilated block with its registers
//	controller.go the controller of Open vSwitches; certificates.go  their TLS certificates;
//	              announce.go  how it learns of the guests
//	shape.go      the queue of a port
//	guest.go      addresses and TCP of the guests; foreign.go  guests with netstack
//	state.go      the record on disk; clean.go, exec.go and list.go use it
//	cgroup.go     the lab's control group
//	check.go      whether this machine can run it
//
// Nothing is ever created in the namespace of the host.
package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/datapath/attach"
	"weir/experiment"
	"weir/law"
)

// Options selects how a lab is built.
type Options struct {
	Experiment string // its id, for the list of labs
	// Owned is a lab that ends with this process: it is locked until Down, and `weir lab clean` removes it when
	// the process is dead. Otherwise Leave leaves it running.
	Owned bool
	// Netstack makes this process run the guests whose stack is netstack; it needs Owned. Otherwise their TCP is
	// Linux's, which Unmet then reports.
	Netstack bool
	// Controller is a program with its first arguments; `-f FILE` is added, FILE being of kind Controller. Open
	// vSwitches in a network with several paths forward only as it commands. nil: such networks are refused.
	Controller []string
	// Commanded has the controller command Open vSwitches in any network.
	Commanded bool
	// Agent is the same for a file of kind Agent. Laws of a controller need both.
	Agent []string
	// Record is the path of a recording of the controller with the laws; "": none.
	Record string
	// Scale is how many times slower the network is than the one that it represents; cfg is already slowed down.
	// Below 1 means 1.
	Scale float64
	// Progress receives what Up waits for, if it takes more than a moment; may be nil.
	Progress func(phase string)
}

// Lab is a network that is up.
type Lab struct {
	plan   *plan
	claim  *claim
	fabric fabric
	unmet  unmetList
	dctcp  ownDCTCP

	netstack          bool     // Options.Netstack
	controllerProgram []string // Options.Controller
	record            string   // Options.Record
	agentProgram      []string // Options.Agent
	controller        *process // once it is started
	atFirst           map[*node]frames

	laws []attachedLaw // attached by Enforce

	mu     sync.RWMutex // Enter against Down
	down   bool
	left   []string
	joined string // cgroup of this process before it joined the lab's
}

// Port is a shaped port: its queue is a TBF at the link's rate.
type Port struct {
	Name        string // "switch->receiver1", as in the experiment's graph
	Node, Peer  string // Node is the namespace of the port
	Ifname      string
	Ifindex     int
	NetnsCookie uint64 // distinguishes it from the same ifindex elsewhere
	Rate        law.Rate
	Buffer      law.Bytes // limit of its queue
	OfSwitch    bool
}

// Up builds the lab. If it fails or ctx is cancelled, it leaves nothing behind. The name, [a-z0-9-]{1,20}, is part
// of the names of the namespaces: weir-NAME-NODE.
func Up(ctx context.Context, name string, cfg *experiment.Config, o Options) (*Lab, error) {
	if !labNamePattern.MatchString(name) {
		return nil, fmt.Errorf("lab name %q: use 1 to 20 of a-z, 0-9 and dash", name)
	}
	p, f, err := checkHost(cfg, o)
	if err != nil {
		return nil, err
	}
	r := record{
		Name: name, Experiment: o.Experiment, Token: newToken(), Namespaces: map[string]string{}, Addresses: map[string]string{},
		Pid: os.Getpid(), Owned: o.Owned, Created: time.Now().UTC(),
	}
	for _, n := range p.nodes {
		r.Namespaces[n.name] = fmt.Sprintf("weir-%s-%s", name, n.name)
	}
	for _, n := range p.guests() {
		r.Addresses[n.name] = n.addr(0).String()
	}
	if root, err := cgroup2Root(); err == nil {
		r.Cgroup = cgroupDir(root, name, r.Token)
	}
	c, err := takeName(r)
	if err != nil {
		return nil, err
	}
	l := &Lab{plan: p, claim: c, fabric: f, netstack: o.Owned && o.Netstack, controllerProgram: o.Controller, agentProgram: o.Agent, record: o.Record}
	if err := l.build(ctx, o.Progress); err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", name, err), l.Down())
	}
	return l, nil
}

// Leave gives up the threads and the lock: the lab remains, by its names in /run/netns, with the laws that stay.
func (l *Lab) Leave() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, n := range l.plan.nodes {
		n.w.stop()
	}
	return l.claim.release()
}

// build builds the lab in steps that depend on each other; in one step nodes are built in parallel.
func (l *Lab) build(ctx context.Context, say func(phase string)) error {
	if l.hasController() {
		if err := l.makeCertificates(); err != nil {
			return err
		}
	}
	before := kernelMemoryKB()
	steps := []struct {
		what string
		do   func(n *node) error
	}{
		{"make the namespace", l.makeNode},
		{"join", l.makeLinks},
		{"set up", l.setUpNode},
		{"settle", l.settle},
		{"start netstack in", l.startForeign},
	}
	for _, s := range steps {
		if err := l.eachNode(ctx, s.what, s.do); err != nil {
			return err
		}
	}
	if l.hasController() {
		if say == nil {
			say = func(string) {}
		}
		if err := l.startController(); err != nil {
			return err
		}
		if err := l.awaitController(ctx, say); err != nil {
			return err
		}
		if err := l.countAtFirst(); err != nil {
			return err
		}
	}
	l.claim.MemoryKB = max(0, kernelMemoryKB()-before)
	l.claim.Built = true
	return l.claim.save()
}

// eachNode calls f for all nodes, a few in parallel: most of the kernel's work is under one lock.
func (l *Lab) eachNode(ctx context.Context, what string, f func(n *node) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.NumCPU())
	for _, n := range l.plan.nodes {
		g.Go(func() error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if err := f(n); err != nil {
				return fmt.Errorf("%s %s: %w", what, n.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (l *Lab) makeNode(n *node) error {
	w, err := createNamespace(l.claim.Namespaces[n.name], l.claim.Token)
	if err != nil {
		return err
	}
	n.w = w
	return w.do(func() error { return n.prepare(l.plan) })
}

// Down removes the lab: its namespaces with everything in them, its cgroup, its record, and the processes that
// `weir lab exec` started. It may be called again. An error names what could not be removed.
func (l *Lab) Down() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil
	}
	l.down = true
	err := errors.Join(l.leaveCgroup(), l.closeForeign(), l.dctcp.close())
	for _, n := range l.plan.nodes {
		if n.w != nil {
			n.w.stop()
		}
	}
	left, e := l.claim.removeAll()
	l.left = left
	return errors.Join(err, e)
}

// Left returns, after Down, an error that lists the processes of others that keep a namespace without a name alive, or nil.
func (l *Lab) Left() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return stillInside(l.Name(), l.left)
}

// Addr returns the node's address for one of the configuration's guest profiles; zero if node is not a guest.
func (l *Lab) Addr(node string, profile int) netip.Addr {
	n := l.plan.byName[node]
	if n == nil || n.kind != experiment.Guest || profile < 0 || profile >= len(l.plan.cfg.Profiles) {
		return netip.Addr{}
	}
	return n.addr(profile)
}

// Enter runs f on the one thread in node's network namespace, and returns f's error. Sockets that f opens belong
// to the node permanently. Calls for one node run one after the other, so f should not wait for the network. Only
// the network namespace differs: mounts and process are those of the caller.
func (l *Lab) Enter(node string, f func() error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := l.plan.byName[node]
	if n == nil {
		return fmt.Errorf("lab %s has no node %q", l.claim.Name, node)
	}
	if l.down || n.w == nil {
		return errGone
	}
	return n.w.do(f)
}

// Ports returns all shaped ports, of switches and of hosts, in the order of the graph.
func (l *Lab) Ports() []Port {
	var list []Port
	for _, n := range l.plan.nodes {
		for _, p := range n.ports {
			if p.rate == 0 {
				continue
			}
			list = append(list, Port{
				Name: p.name, Node: n.name, Peer: p.peer.name, Ifname: p.ifname, Ifindex: p.ifindex,
				NetnsCookie: n.cookie, Rate: p.rate, Buffer: law.Bytes(tbfLimit(p)),
				OfSwitch: n.kind == experiment.Switch,
			})
		}
	}
	return list
}

// PortRef returns a port in the form of package datapath.
func (l *Lab) PortRef(p Port) attach.PortRef { return l.portRef(p.Node, p.Name, p.Ifindex) }

func (l *Lab) portRef(node, name string, ifindex int) attach.PortRef {
	return attach.PortRef{Name: name, Ifindex: ifindex, Enter: func(f func() error) error { return l.Enter(node, f) }}
}

// NetnsCookie returns the cookie of a node's namespace, unique since boot; 0 if there is no such node.
func (l *Lab) NetnsCookie(node string) uint64 {
	if n := l.plan.byName[node]; n != nil {
		return n.cookie
	}
	return 0
}

// Unmet lists the settings that this machine could not make, one line each.
func (l *Lab) Unmet() []string { return l.unmet.lines() }

// Name returns the lab's name.
func (l *Lab) Name() string { return l.claim.Name }

// Namespaces returns the entries in /run/netns of the lab's nodes, by node.
func (l *Lab) Namespaces() map[string]string { return maps.Clone(l.claim.Namespaces) }

// Nodes returns the names of all nodes, those of the graph first.
func (l *Lab) Nodes() []string {
	names := make([]string, 0, len(l.plan.nodes))
	for _, n := range l.plan.nodes {
		names = append(names, n.name)
	}
	return slices.Clip(names)
}
