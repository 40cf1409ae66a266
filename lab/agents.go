package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"weir/bus/pki"
	"weir/controller"
	"weir/experiment"
	"weir/law"
)

// A scheme with a law of a controller has a control plane in the management network. A controller runs the bus in its process. Each
// hypervisor has an agent with role host, and each switch that runs the laws has one with role switch. They are processes of the lab,
// with files and logs in the lab's directory.

const (
	lawController   = "laws" // the controller's name
	busPort         = 4222
	lawOpenFlowPort = 6654 // no switch connects to it; the lab's other controller has 6653
	agentsDir       = "agents"
	agentsPatience  = 60 * time.Second
	agentsLook      = 50 * time.Millisecond
)

// Controlled is, in the lab, a law that runs at a controller: switches report to it, and hypervisors carry out its grants.
func Controlled(spec law.Spec) Law {
	return Law{
		Commanded: copies(&spec),
		Check:     func(r *experiment.Run, name string) error { return checkControlled(&spec, r, name) },
		Start: func(ctx context.Context, l *Lab, r *experiment.Run, name string) (Attached, error) {
			return startControlled(ctx, &spec, l, r, name)
		},
	}
}

// copies reports whether a law gets copies of segments from OpenFlow switches.
func copies(spec *law.Spec) bool { return slices.Contains(spec.Signals, law.Copies) }

func checkControlled(spec *law.Spec, r *experiment.Run, name string) error {
	if !slices.ContainsFunc(r.Config.Graph.Nodes, func(n experiment.Node) bool { return n.Kind == experiment.Hypervisor }) {
		return fmt.Errorf("law %s limits VMs at hypervisors, and there are none: set topology.hypervisors: true", name)
	}
	if copies(spec) && r.Config.Switch != "ovs" {
		return fmt.Errorf("law %s gets copies of SYNs from OpenFlow switches, and %s is none: set topology.switch: ovs", name, cmp.Or(r.Config.Switch, "bridge"))
	}
	if copies(spec) && slices.ContainsFunc(r.Config.Graph.Nodes, func(n experiment.Node) bool { return n.Kind == experiment.Switch && !slices.Contains(r.At, n.Name) }) {
		return fmt.Errorf("law %s runs in the controller of all switches: remove at from scheme %s, or run the scheme with worlds: [sim]", name, r.Scheme)
	}
	params := law.Pointer(r.Params[name])
	if _, err := spec.New(law.Controller, params, &law.Topology{}); err != nil {
		return fmt.Errorf("law %s: %w", name, err)
	}
	if spec.Agents != nil {
		if err := spec.Agents(params); err != nil {
			return fmt.Errorf("law %s: %w", name, err)
		}
	}
	return nil
}

// controlled is a law's control plane. Close ends its processes.
type controlled struct {
	Quiet
	lab        *Lab
	name       string
	command    string // the name of the controller that runs the law
	controller *process
	agents     map[string]*process // by name
	uplinks    []*port             // whose queue is the limiter of the host's agent
	programs   *programs           // that declare deadlines; nil: the law does not ask for them
}

func startControlled(ctx context.Context, spec *law.Spec, l *Lab, r *experiment.Run, name string) (Attached, error) {
	c := &controlled{lab: l, name: name, command: lawController, agents: map[string]*process{}}
	if err := c.start(ctx, spec, r, name); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *controlled) dir(file ...string) string {
	return filepath.Join(append([]string{labsDir, c.lab.claim.Name, agentsDir}, file...)...)
}

func (c *controlled) start(ctx context.Context, spec *law.Spec, r *experiment.Run, name string) error {
	l := c.lab
	if l.controllerProgram == nil || l.agentProgram == nil {
		return fmt.Errorf("law %s runs at a controller, and this lab was built without one", name)
	}
	hosts, switches := l.controlledNodes(r.At)
	if copies(spec) || spec.ReturnsMarks() { // its switches have no agent
		switches = nil
	}
	keys, err := c.enrol(append(slices.Clone(hosts), switches...))
	if err != nil {
		return err
	}
	address := l.plan.byName[controllerNode].mgmt
	params, err := json.Marshal(r.Params[name])
	if err != nil {
		return fmt.Errorf("law %s: parameters: %w", name, err)
	}
	record := ""
	if l.record != "" {
		record = fmt.Sprintf("record: %q\n", l.record)
	}
	text := record + fmt.Sprintf("metrics: {listen: \"\"}\nbus: {listen: %q, server_keys: %s, keys: %s}\n",
		netip.AddrPortFrom(address, busPort), keys["bus"], keys["controller"])
	if !spec.ReturnsMarks() { // then the controller has the bus in its process, and no law
		text += fmt.Sprintf("laws: {%s: %s}\n", name, params)
	}
	if copies(spec) {
		err = c.takeSwitches(ctx, text)
	} else {
		text += fmt.Sprintf("kind: Controller\nname: %s\nlisten: 127.0.0.1:%d\npoll: 0s\ngeneration: %s\n", lawController, lawOpenFlowPort, c.dir("generation"))
		c.controller, err = c.begin(controllerNode, l.controllerProgram, "controller", text)
	}
	if err != nil {
		return err
	}
	url := fmt.Sprintf("tls://%v:%d", address, busPort)
	every := law.Duration(0)
	if spec.Interval != nil {
		every = spec.Interval(law.Pointer(r.Params[name]))
	}
	half := ""
	if slices.Contains(spec.Sites, law.Uplink) {
		half = fmt.Sprintf("{%s: %s}", name, params)
		if err := c.giveUplinks(hosts); err != nil {
			return err
		}
	}
	for _, n := range hosts {
		section := hostSection(n, half, c.declares(spec, n))
		if spec.ReturnsMarks() {
			section += peersSection(n, hosts)
		}
		if c.agents[agentName(n)], err = c.begin(n.name, l.agentProgram, agentName(n), agentFile(n, url, keys[agentName(n)], c.dir(agentName(n)+".term"))+section); err != nil {
			return err
		}
	}
	for _, n := range switches {
		section := l.switchSection(n, every, spec.Signals)
		if c.agents[agentName(n)], err = c.begin(n.name, l.agentProgram, agentName(n), agentFile(n, url, keys[agentName(n)], c.dir(agentName(n)+".term"))+section); err != nil {
			return err
		}
	}
	if err := c.await(ctx); err != nil {
		return err
	}
	if err := c.guarantee(ctx, spec, url, keys["operator"], r.Config.Guarantees); err != nil || !copies(spec) {
		return err
	}
	// While many agents start, a switch may lose its connection for a second. Copies from that time would be missing.
	return l.awaitController(ctx, func(string) {})
}

// controlledNodes returns the hypervisors with a guest, and the switches that run the laws.
func (l *Lab) controlledNodes(at []string) (hosts, switches []*node) {
	for _, n := range l.plan.nodes {
		switch {
		case n.kind == experiment.Hypervisor && !n.mgmtOnly:
			hosts = append(hosts, n)
		case n.kind == experiment.Switch && slices.Contains(at, n.name) && l.hasSwitchPort(n.name):
			switches = append(switches, n)
		}
	}
	return hosts, switches
}

// agentName is the name in the certificate of a node's agent.
func agentName(n *node) string { return fmt.Sprintf("node%d", n.index) }

// enrol makes a CA and a certificate for everybody. It returns their directories. The key of the CA is removed afterwards.
func (c *controlled) enrol(nodes []*node) (map[string]string, error) {
	ca := &pki.CA{Dir: c.dir("ca")}
	if err := os.MkdirAll(c.dir(), 0o700); err != nil {
		return nil, err
	}
	if err := ca.Create(); err != nil {
		return nil, err
	}
	keys := map[string]string{}
	one := func(id, as string, addresses []string) error {
		who, err := pki.ParseIdentity(id)
		if err != nil {
			return err
		}
		keys[as] = c.dir("keys-" + as)
		_, err = ca.Enrol(who, keys[as], addresses, 0)
		return err
	}
	err := errors.Join(one("bus/lab", "bus", []string{c.lab.plan.byName[controllerNode].mgmt.String()}), one("controller/lab", "controller", nil), one("operator/lab", "operator", nil))
	for _, n := range nodes {
		err = errors.Join(err, one("agent/"+agentName(n), agentName(n), nil))
	}
	return keys, errors.Join(err, os.RemoveAll(ca.Dir))
}

// takeSwitches has the switches' controller run the law: it starts again with more lines in its file, and takes over its own flows.
func (c *controlled) takeSwitches(ctx context.Context, lines string) error {
	l := c.lab
	if !l.hasController() {
		return fmt.Errorf("law %s runs in the switches' controller, and this lab has none", c.name)
	}
	c.command = controllerName
	if err := endProcess("controller", l.controller); err != nil {
		return err
	}
	if err := l.startControllerWith(lines); err != nil {
		return err
	}
	c.controller = l.controller
	return l.awaitController(ctx, func(string) {})
}

// begin starts a program in a node, with a file and a log of this name.
func (c *controlled) begin(node string, program []string, name, text string) (*process, error) {
	file := c.dir(name + ".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := c.lab.spawn(node, program, file, c.dir(name+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", name, node, err)
	}
	return p, nil
}

// await waits until the controller commands every agent and knows what it has.
func (c *controlled) await(ctx context.Context) error {
	look := time.NewTicker(agentsLook)
	defer look.Stop()
	end := time.Now().Add(agentsPatience)
	for {
		s, err := c.status(ctx)
		missing := c.missing(s)
		if err == nil && len(missing) == 0 {
			return nil
		}
		if err := c.ended(); err != nil {
			return err
		}
		if time.Now().After(end) {
			name := "controller"
			if len(missing) > 0 {
				name = missing[0]
			}
			return withLog(errors.Join(fmt.Errorf("the controller does not command %v within %v", missing, agentsPatience), err), c.dir(name+".log"))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		}
	}
}

// missing lists the agents that a controller with this status does not command, or whose inventory it does not know. s is nil if it did not answer.
func (c *controlled) missing(s *controller.Status) []string {
	known := map[string]bool{}
	if s != nil && s.Bus != nil {
		for _, a := range s.Bus.Agents {
			known[a.Name] = a.Commands && a.Ports+a.VMs > 0
		}
	}
	var out []string
	for name := range c.agents {
		if !known[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (c *controlled) status(ctx context.Context) (*controller.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return controller.ReadStatus(ctx, c.command, c.lab.enterController)
}

// ended returns an error if a process has ended.
func (c *controlled) ended() error {
	check := func(name string, p *process) error {
		select {
		case <-p.ended:
			return withLog(fmt.Errorf("%s has ended: %w", name, errors.Join(p.err, errors.New("without a request"))), c.dir(name+".log"))
		default:
			return nil
		}
	}
	if err := check("controller", c.controller); err != nil {
		return err
	}
	for name, p := range c.agents {
		if err := check(name, p); err != nil {
			return err
		}
	}
	return nil
}

// Tally counts the law's grants. A *BrokenError reports that a part of the control plane has ended or is silent.
func (c *controlled) Tally() (law.Tally, error) {
	if err := c.ended(); err != nil {
		return nil, &BrokenError{err}
	}
	s, err := c.status(context.Background())
	if err != nil {
		return nil, err
	}
	if missing := c.missing(s); len(missing) > 0 {
		err = &BrokenError{fmt.Errorf("the controller does not command %v", missing)}
	}
	t := law.Tally{}
	if s.Bus != nil {
		t["grants"] = s.Bus.Grants["sent"]
		for result, n := range s.Bus.Grants {
			if result != "sent" {
				t["grants_"+result] = n
			}
		}
	}
	return t, err
}

// Close ends the processes, agents first: they release their grants.
func (c *controlled) Close() error {
	c.programs.close()
	var all errgroup.Group
	for name, p := range c.agents {
		if p != nil {
			all.Go(func() error { return endProcess(name, p) })
		}
	}
	err := errors.Join(all.Wait(), c.takeUplinks())
	if c.controller != nil {
		err = errors.Join(err, endProcess("controller", c.controller))
	}
	if c.command == controllerName {
		err = errors.Join(err, c.lab.startController())
	}
	return errors.Join(err, os.RemoveAll(c.dir()))
}

// endProcess asks a process to end, and kills it if it does not.
func endProcess(name string, p *process) error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	_ = p.Signal(unix.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(killGrace):
		_ = p.Kill()
		<-p.ended
		return fmt.Errorf("%s did not end within %v and was killed", name, killGrace)
	}
	return nil
}
