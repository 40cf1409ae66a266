//go:build cgo

package laws

import (
	"fmt"
	"net/netip"
	"slices"

	"weir/experiment"
	"weir/law"
	"weir/law/flows"
	"weir/law/inventory"
	"weir/law/telemetry"
	"weir/sim/control"
	"weir/sim/event"
	"weir/sim/network"
)

// Controlled returns, in the simulator, a law that runs at a controller. Switches report to it each interval, and hosts carry out
// its grants. The messages have the delay, jitter and loss of the file. Each host of the network is a VM on a host of its own.
func Controlled(spec law.Spec) Law {
	newLaw := func(r *experiment.Run, name string) (law.Law, law.Duration, error) {
		params := law.Pointer(r.Params[name])
		l, err := spec.New(law.Controller, params, &law.Topology{RTT: r.Config.RTT})
		if err != nil {
			return nil, 0, fmt.Errorf("law %s: %w", name, err)
		}
		every := law.Duration(0)
		if spec.Interval != nil {
			every = spec.Interval(params)
		}
		return l, every, nil
	}
	return inC(Law{
		Check: func(r *experiment.Run, name string) error {
			_, _, err := newLaw(r, name)
			return err
		},
		Put: func(n *network.Network, r *experiment.Run, name string) (Attached, error) {
			l, every, err := newLaw(r, name)
			if err != nil {
				return nil, err
			}
			if r.Tap != nil {
				l = r.Tap(l, name)
			}
			c := &controlled{net: n, spec: &spec, every: every, law: l, sites: map[law.VM]*control.Site{}}
			return c, c.put(r, name, l)
		},
	})
}

const (
	heartbeatEvery = event.Time(250e6) // an agent's heartbeat for the owners of grants, ns
	idleAfter      = law.Duration(20e6)
	// Sizes of messages, in bytes: a report's head and each busy port, as on the bus (bus/weirv1/size_test.go).
	reportBytes, portBytes = 26, 28
	declaredBytes          = 100
)

// controlled is a controller's law, the switches that report to it, and the hosts.
type controlled struct {
	Quiet
	net         *network.Network
	spec        *law.Spec
	every       law.Duration // of reports; 0: none
	messenger   *control.Messenger
	controller  *control.Site
	sites       map[law.VM]*control.Site
	hosts       *Hosts
	telemetry   []*Telemetry
	watched     []watched
	uplinks     []*uplink
	heartbeat   event.Event
	law         law.Law
	reports     uint64 // of switches
	reportBytes uint64
	switches    map[law.Switch]*control.Site // that carry out actions; nil: none does
}

// watched are ports of a switch that reports.
type watched struct {
	ports []*network.Port
	o     TelemetryOptions
}

// vmOf returns the VM that a host of the network is.
func vmOf(host network.NodeID) law.VM { return law.VM(host + 1) }

// hypervisors makes every guest a VM with enforcement. It returns what the hosts' agents report at first.
func (c *controlled) hypervisors(r *experiment.Run, name string) (inventories []law.Event, err error) {
	if c.messenger, err = NewMessenger(c.net, r, name); err != nil {
		return nil, err
	}
	params := law.Pointer(r.Params[name])
	c.hosts = NewHosts(c.net)
	if c.spec.Clear != nil {
		c.hosts.ecn = newVMECN(c.spec.Clear(params))
	}
	c.hosts.drop = c.spec.Excess != nil && c.spec.Excess(params) == law.ExcessDrop
	if inventories, err = c.putHosts(r, params); err != nil {
		return nil, fmt.Errorf("law %s: %w", name, err)
	}
	return inventories, nil
}

// begin begins the agents: they live as long as the run.
func (c *controlled) begin() {
	c.heartbeat.Init(c)
	c.Happen(nil, c.net.Queue.Now())
	for _, u := range c.uplinks {
		u.begin()
	}
}

func (c *controlled) put(r *experiment.Run, name string, l law.Law) error {
	inventories, err := c.hypervisors(r, name)
	if err != nil {
		return err
	}
	if c.controller, err = c.messenger.Add(control.SiteOptions{Name: "controller of " + name, Law: l, Route: c.route}); err != nil {
		return err
	}
	for i, at := range r.At {
		ports := c.net.SwitchPorts([]string{at})
		site, err := c.messenger.Add(control.SiteOptions{Name: at})
		if err != nil {
			return err
		}
		number := law.Switch(i + 1)
		has := &inventory.Switch{At: number}
		for _, p := range ports {
			has.Ports = append(has.Ports, inventory.Port{N: uint32(p.ID), Name: p.Name, Rate: p.Rate, BufferBytes: uint64(p.Buffer.Bytes())})
		}
		inventories = append(inventories, has)
		if slices.Contains(c.spec.Signals, law.Copies) {
			c.copy(ports, number, site)
		}
		c.watched = append(c.watched, watched{ports, TelemetryOptions{
			At: number, Every: c.every, First: firstReading(r, at, c.every), Idle: idleAfter, Signals: c.spec.Signals, VM: vmOf, Address: HostAddress,
			To: func(e law.Event) { c.report(site, e) },
		}})
	}
	for _, e := range inventories { // agents report them when they start, long before the traffic
		c.controller.Event(e)
	}
	c.begin()
	return nil
}

// firstReading returns when a switch is read first; 0: after T. Alone, the simulator reads all switches at the same moments. Next
// to the lab each switch is read at a time of its own in T, as by an agent that was started at any time.
func firstReading(r *experiment.Run, at string, every law.Duration) law.Duration {
	if !r.LabRTT || every == 0 {
		return 0
	}
	return 1 + law.Duration(event.NewRandom(r.Seed, "reading of "+at).Int64N(int64(every)))
}

// report sends what a switch read. Agents leave out ports where nothing happened, and send no arrivals if there are none.
func (c *controlled) report(from *control.Site, e law.Event) {
	busy := 0
	counts := true
	switch e := e.(type) {
	case *telemetry.Telemetry:
		for i := range e.Ports {
			if p := &e.Ports[i]; p.Packets > 0 || p.BacklogBytes > 0 || p.SentBytes > 0 {
				busy++
			}
		}
	case *telemetry.Arrivals:
		for i := range e.Ports {
			if e.Ports[i].Counts != (telemetry.Counts{}) {
				busy++
			}
		}
		counts = busy > 0
	}
	size := reportBytes + portBytes*busy
	if counts {
		c.reports++
		c.reportBytes += uint64(size)
	}
	from.Report(c.controller, size, 0, e)
}

// putHosts makes the VMs.
func (c *controlled) putHosts(r *experiment.Run, params any) (inventories []law.Event, err error) {
	if slices.Contains(c.spec.Sites, law.Uplink) {
		return c.putUplinks(r, params)
	}
	for i, node := range r.Config.Graph.Nodes {
		id := network.NodeID(i)
		if node.Kind != experiment.Guest {
			continue
		}
		enforcer, err := c.hosts.AddVM(vmOf(id), id)
		if err != nil {
			return nil, err
		}
		if c.sites[vmOf(id)], err = c.messenger.Add(control.SiteOptions{Name: node.Name, Enforcer: enforcer}); err != nil {
			return nil, err
		}
		inventories = append(inventories, &inventory.Host{At: law.Host(id + 1), VMs: []inventory.VM{guestOf(id)}})
	}
	return inventories, nil
}

// guestOf is a host of the network as a VM.
func guestOf(id network.NodeID) inventory.VM {
	return inventory.VM{Number: vmOf(id), Addresses: []netip.Prefix{netip.PrefixFrom(HostAddress(id), 32)}}
}

// Last puts telemetry behind all laws of the run, so that it counts the marks that they set.
func (c *controlled) Last() error {
	for _, w := range c.watched {
		if w.o.Every == 0 {
			continue
		}
		t, err := NewTelemetry(c.net.Queue, w.ports, w.o)
		if err != nil {
			return err
		}
		c.telemetry = append(c.telemetry, t)
	}
	return nil
}

// Declare has the agent of a host report what an application declares, if the law asks for deadlines.
func (c *controlled) Declare(d Declaration) {
	site := c.sites[vmOf(d.From)]
	if site == nil || !slices.Contains(c.spec.Signals, law.Deadline) {
		return
	}
	flow := law.Flow{
		Src: netip.AddrPortFrom(HostAddress(d.From), d.FromPort), Dst: netip.AddrPortFrom(HostAddress(d.To), d.ToPort), Proto: network.TCP,
	}
	site.Report(c.controller, declaredBytes, 0, &flows.Declared{Flow: flow, Left: d.Left, Bytes: d.Bytes})
}

// route sends a grant to the host of its VM, and an action for a switch to the switch.
func (c *controlled) route(a law.Action, to []*control.Site) []*control.Site {
	if k, ok := a.(flows.Acks); ok && c.switches[k.At.Switch] != nil {
		return append(to, c.switches[k.At.Switch])
	}
	if g, ok := a.(law.Grant); ok && c.sites[g.Key.VM] != nil {
		to = append(to, c.sites[g.Key.VM])
	}
	return to
}

// Happen is the agents' heartbeat: they live as long as the run.
func (c *controlled) Happen(_ *event.Event, now event.Time) {
	c.hosts.Heartbeat(0, now)
	c.net.Queue.Set(&c.heartbeat, now+heartbeatEvery)
}

// Tally counts messages and grants. A law's Report names those that it shows.
func (c *controlled) Tally() law.Tally {
	m, h := c.messenger.Counts(), c.hosts.Counts()
	t := law.Tally{
		"messages": uint64(m.Sent), "messages_lost": uint64(m.Lost + m.Full), "grants": uint64(c.controller.Counts().Actions),
		"reports": c.reports, "report_bytes": c.reportBytes,
		"acks_limited": h.Limited, "acks_unknown": h.Unknown, "spoofed": h.Spoofed, "ecn_set": h.ECNSet,
	}
	if err := c.messenger.Err(); err != nil {
		t["failed"] = 1
	}
	return t
}

// Close stops reports and heartbeats.
func (c *controlled) Close() {
	for _, t := range c.telemetry {
		t.Close()
	}
	for _, u := range c.uplinks {
		c.net.Queue.Stop(&u.timer)
	}
	c.net.Queue.Stop(&c.heartbeat)
}
