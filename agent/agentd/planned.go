package agentd

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/agent/switchd"
	"weir/bus/weirv1"
	"weir/internal/replace"
)

// byPolicy is the value of the key laws of a switch whose laws are left to policies.
const byPolicy = "policy"

// lookAtLaws is the time between two looks at what holds at the ports.
const lookAtLaws = time.Second

// planned runs the laws that policies want at the ports of this switch. It makes a file of kind: Switch from the controller's plan,
// next to the agent's state, and runs it as any such file. So the laws of the last plan run without a controller, and after a
// restart of the agent. A law in the kernel limits by its own measurements, and does not become wrong when nobody renews it. It gets
// its heartbeat from this process, so that its windows are released when the agent dies.
type planned struct {
	laws   *laws
	log    *slog.Logger
	o      *Options
	name   string                // of the switch
	listen string                // for the metrics of the laws
	news   chan *weirv1.PortPlan // the newest

	state   sync.Mutex
	have    []Port
	serial  uint64
	problem string
	wanted  map[uint32][]string // laws by port, of the plan that runs
	left    []switchd.LeftOut   // of the plan
	found   []*weirv1.PortState // at the last look
}

func newPlanned(path string, c *Config, log *slog.Logger) *planned {
	p := &planned{
		laws: newLaws(path, &c.Options, log), log: log, o: &c.Options, name: switchName(c.Name), have: c.Switch.Ports, news: make(chan *weirv1.PortPlan, 1),
		wanted: map[uint32][]string{},
	}
	p.laws.idle = "no policy has a law for its ports"
	if c.Metrics != "" {
		p.listen = switchMetrics
	}
	return p
}

// switchMetrics is where a switch serves its metrics by default.
const switchMetrics = "127.0.0.1:9187"

// switchName makes the name of a switch from that of the agent, which can be longer.
func switchName(agent string) string { return agent[:min(len(agent), 32)] }

func (p *planned) ports() []Port {
	p.state.Lock()
	defer p.state.Unlock()
	return p.have
}

// setPorts replaces the configured ports. The controller then sends the plan again.
func (p *planned) setPorts(ports []Port) {
	p.state.Lock()
	defer p.state.Unlock()
	p.have, p.serial = ports, 0 // a plan is asked for again
}

// take queues a plan, and forgets an older one that was not carried out yet. Only one goroutine may call it.
func (p *planned) take(plan *weirv1.PortPlan) {
	select {
	case <-p.news:
	default:
	}
	p.news <- plan
}

// follow carries out plans, and looks at what holds, until stop.
func (p *planned) follow(stop <-chan struct{}) {
	look := time.NewTicker(lookAtLaws)
	defer look.Stop()
	var last *weirv1.PortPlan
	var tried time.Time
	for {
		select {
		case <-stop:
			return
		case last = <-p.news:
			p.carryOut(last)
			tried = time.Now()
		case <-look.C:
			if p.failed() && time.Since(tried) >= lawsAgain {
				p.carryOut(last)
				tried = time.Now()
			}
		}
		p.look()
	}
}

// failed reports whether the last plan could not be carried out.
func (p *planned) failed() bool {
	p.state.Lock()
	defer p.state.Unlock()
	return p.problem != ""
}

// carryOut runs the laws of a plan. If they cannot run, those of the plan before continue.
func (p *planned) carryOut(plan *weirv1.PortPlan) {
	p.state.Lock()
	known := p.serial == plan.GetSerial() && p.problem == ""
	p.state.Unlock()
	if known {
		return
	}
	wanted, ports := p.portsOf(plan)
	text, left, err := p.o.Laws.Plan(p.name, p.listen, ports)
	if err == nil {
		err = p.run(text)
	}
	problem := ""
	if err != nil {
		problem = weirv1.Reason(remedy(err))
		p.log.Error("the laws that policies want cannot run: those before continue", "reason", problem)
	} else {
		p.log.Info("the laws of policies", "ports", len(wanted), "left_out", len(left))
	}
	p.state.Lock()
	defer p.state.Unlock()
	p.serial, p.problem, p.left = plan.GetSerial(), problem, left
	if err == nil {
		p.wanted = wanted
	}
}

// portsOf returns the laws of a plan by port number, and the plan with the names of ports.
func (p *planned) portsOf(plan *weirv1.PortPlan) (map[uint32][]string, []switchd.Planned) {
	wanted, ports := map[uint32][]string{}, []switchd.Planned(nil)
	byNumber := map[uint32]Port{}
	for _, port := range p.ports() {
		byNumber[port.Number] = port
	}
	for _, at := range plan.GetPorts() {
		port, has := byNumber[at.GetPort()]
		if !has {
			continue // the controller learns it from the inventory
		}
		one := switchd.Planned{Port: port.Name, Rate: port.Rate, Buffer: port.Buffer, RTT: port.RTT}
		for _, n := range at.GetSettings() {
			s := plan.GetSettings()[n]
			one.Laws = append(one.Laws, switchd.PlannedLaw{Place: int(n), Law: s.GetLaw(), Params: json.RawMessage(s.GetParams()), Percent: int(s.GetPercent())})
			wanted[at.GetPort()] = append(wanted[at.GetPort()], s.GetLaw())
		}
		ports = append(ports, one)
	}
	slices.SortFunc(ports, func(a, b switchd.Planned) int { return strings.Compare(a.Port, b.Port) })
	return wanted, ports
}

// run replaces the file, and has the laws read it. After an error everything is as before. Without a text the laws end. Other laws than
// before begin when those have ended, and their windows are released; they are tried again until they run.
func (p *planned) run(text []byte) error {
	path := p.laws.file
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if text == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		p.laws.halt()
		return nil
	}
	if err := replace.Bytes(path, 0o600, text); err != nil {
		return err
	}
	if _, failed := p.laws.status(); failed != "" {
		p.laws.again()
		return nil
	}
	if p.otherLaws(before, text) {
		p.laws.halt()
		p.laws.again()
		return nil
	}
	_, err = p.laws.reload()
	if err == nil {
		return nil
	}
	if before == nil {
		return errors.Join(err, os.Remove(path))
	}
	return errors.Join(err, replace.Bytes(path, 0o600, before))
}

// otherLaws reports whether a text has other laws than the one before.
func (p *planned) otherLaws(before, text []byte) bool {
	was, err := p.o.Laws.Parse(p.laws.file, before)
	if err != nil {
		return false
	}
	next, err := p.o.Laws.Parse(p.laws.file, text)
	return err == nil && !was.SameLaws(next)
}

// look reads from the kernel what holds at the ports.
func (p *planned) look() {
	p.state.Lock()
	wanted := maps.Clone(p.wanted)
	p.state.Unlock()
	if len(wanted) == 0 {
		p.saw(nil)
		return
	}
	_, failed := p.laws.status()
	states := map[string]*switchd.Port{}
	if failed == "" {
		report, err := p.o.Laws.Status(p.name)
		if err != nil {
			failed, report = err.Error(), &switchd.Report{}
		}
		for i := range report.Switches {
			for k := range report.Switches[i].Ports {
				port := &report.Switches[i].Ports[k]
				states[port.Port] = port
			}
		}
	}
	var found []*weirv1.PortState
	for _, port := range p.ports() {
		for _, law := range wanted[port.Number] {
			off, why := judge(states[port.Name], failed)
			if why != "" {
				found = append(found, &weirv1.PortState{Port: port.Number, Law: law, Off: off, Reason: weirv1.Reason(why)})
			}
		}
	}
	p.saw(found)
}

// judge returns why a law does not hold completely at a port; "": it does.
func judge(port *switchd.Port, failed string) (off bool, why string) {
	switch {
	case failed != "":
		return true, failed
	case port == nil:
		return true, "the laws are not attached to the port: see the log of the agent"
	case port.State == switchd.Enforced || len(port.Findings) == 0 || port.Findings[0].Asked():
		return false, ""
	}
	return port.State == switchd.Off, port.Reason
}

func (p *planned) saw(found []*weirv1.PortState) {
	p.state.Lock()
	defer p.state.Unlock()
	p.found = found
}

// report returns what became of the last plan.
func (p *planned) report() *weirv1.PlanState {
	if p == nil {
		return nil
	}
	numbers := map[string]uint32{}
	for _, port := range p.ports() {
		numbers[port.Name] = port.Number
	}
	p.state.Lock()
	defer p.state.Unlock()
	s := &weirv1.PlanState{Serial: p.serial, Problem: p.problem}
	for _, l := range p.left {
		s.Ports = append(s.Ports, &weirv1.PortState{Port: numbers[l.Port], Law: l.Law, Off: true, Reason: weirv1.Reason(l.Reason)})
	}
	for _, f := range p.found {
		if !slices.ContainsFunc(s.Ports, func(o *weirv1.PortState) bool { return o.GetPort() == f.GetPort() && o.GetLaw() == f.GetLaw() }) {
			s.Ports = append(s.Ports, f)
		}
	}
	s.Ports = s.Ports[:min(len(s.Ports), weirv1.MaxStates)]
	return s
}
