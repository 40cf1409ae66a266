package record

import (
	"net/netip"
	"reflect"

	"weir/law"
	"weir/law/fabric"
)

func typeName(v any) string { return reflect.TypeOf(v).String() }

// actionKinds lists the kinds of actions by their fields. Numbers are not used again.
var actionKinds = []kind[law.Action]{
	value[law.Action](1, "grant", "Grant", (*coder).grant),
	value[law.Action](2, "set_flow", "SetFlow", (*coder).setFlow),
	value[law.Action](3, "drop_flow", "DropFlow", (*coder).dropFlow),
	value[law.Action](4, "set_group", "SetGroup", (*coder).setGroup),
	value[law.Action](5, "drop_group", "DropGroup", (*coder).dropGroup),
	value[law.Action](6, "set_meter", "SetMeter", (*coder).setMeter),
	value[law.Action](7, "barrier", "Barrier", (*coder).barrier),
	value[law.Action](8, "packet_out", "PacketOut", (*coder).packetOut),
	value[law.Action](9, "ask_stats", "AskStats", (*coder).askStats),
	pointer[law.Action](10, "report", "Report", (*coder).report),
}

// Action is an action of a step.
type Action struct {
	Action law.Action // nil: Other
	Other  string     // a kind that the format does not have
}

func (c *coder) action(a *Action) {
	if c.mode == encode {
		c.encodeAction(a.Action, &a.Other)
	}
	kinds(c, actionKinds, &a.Action)
	c.str(15, "other", &a.Other) // a kind of action that is not above, by its name
}

func (c *coder) encodeAction(a law.Action, other *string) {
	switch a := a.(type) {
	case law.Grant:
		c.granted = a // a copy of a grant would be allocated
		sub(c, 1, &c.granted, (*coder).grant)
	case fabric.SetFlow:
		sub(c, 2, &a, (*coder).setFlow)
	case fabric.DropFlow:
		sub(c, 3, &a, (*coder).dropFlow)
	case fabric.SetGroup:
		sub(c, 4, &a, (*coder).setGroup)
	case fabric.DropGroup:
		sub(c, 5, &a, (*coder).dropGroup)
	case fabric.SetMeter:
		sub(c, 6, &a, (*coder).setMeter)
	case fabric.Barrier:
		sub(c, 7, &a, (*coder).barrier)
	case fabric.PacketOut:
		sub(c, 8, &a, (*coder).packetOut)
	case fabric.AskStats:
		sub(c, 9, &a, (*coder).askStats)
	case *fabric.Report:
		sub(c, 10, a, (*coder).report)
	case nil:
	default:
		*other = typeName(a)
	}
}

func (c *coder) grant(g *law.Grant) {
	num(c, 1, "owner", &g.Owner)
	num(c, 2, "kind", &g.Kind) // 0: window, 1: rate, 2: pause
	num(c, 3, "vm", &g.Key.VM)
	c.addr(4, "peer", &g.Key.Peer)
	message(c, 5, "flow", "Flow", &g.Key.Flow, (*coder).flow)
	num(c, 6, "value", &g.Value)
	signed(c, 7, "lease_ns", &g.Lease)
	num(c, 8, "cause", &g.Cause)
}

func (c *coder) flow(f *law.Flow) {
	c.end(1, "source", "source_port", &f.Src)
	c.end(3, "destination", "destination_port", &f.Dst)
	num(c, 5, "protocol", &f.Proto)
}

// end is an address and a port, in two fields.
func (c *coder) end(n int, name, portName string, p *netip.AddrPort) {
	a, port := p.Addr(), p.Port()
	c.addr(n, name, &a)
	num(c, n+1, portName, &port)
	*p = netip.AddrPortFrom(a, port)
}

func (c *coder) setFlow(a *fabric.SetFlow) {
	num(c, 1, "switch", &a.Switch)
	message(c, 2, "flow", "FlowEntry", &a.Flow, (*coder).flowEntry)
}

func (c *coder) dropFlow(a *fabric.DropFlow) {
	num(c, 1, "switch", &a.Switch)
	message(c, 2, "flow", "FlowEntry", &a.Flow, (*coder).flowEntry)
}

func (c *coder) setGroup(a *fabric.SetGroup) {
	num(c, 1, "switch", &a.Switch)
	c.flag(2, "new", &a.New)
	message(c, 3, "group", "Group", &a.Group, (*coder).group)
}

func (c *coder) dropGroup(a *fabric.DropGroup) {
	num(c, 1, "switch", &a.Switch)
	num(c, 2, "group", &a.ID)
}

func (c *coder) setMeter(a *fabric.SetMeter) {
	num(c, 1, "switch", &a.Switch)
	c.flag(2, "new", &a.New)
	message(c, 3, "meter", "Meter", &a.Meter, (*coder).meter)
}

func (c *coder) barrier(a *fabric.Barrier) {
	num(c, 1, "switch", &a.Switch)
	num(c, 2, "serial", &a.Serial)
}

func (c *coder) packetOut(a *fabric.PacketOut) {
	num(c, 1, "switch", &a.Switch)
	nums(c, 2, "ports", &a.Ports)
	c.data(3, "frame", &a.Frame)
}

func (c *coder) askStats(a *fabric.AskStats) { num(c, 1, "switch", &a.Switch) }

func (c *coder) report(a *fabric.Report) {
	num(c, 1, "switch", &a.Switch)
	list(c, 2, "ports", "Counters", &a.Ports, (*coder).counters)
}
