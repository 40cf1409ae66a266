package record

import "weir/law/fabric"

// Events and actions of OpenFlow switches.

func (c *coder) joined(e *fabric.Joined) {
	num(c, 1, "switch", &e.Switch)
	list(c, 2, "ports", "PortInfo", &e.Ports, (*coder).portInfo)
	list(c, 3, "flows", "FlowEntry", &e.Found.Flows, (*coder).flowEntry)
	list(c, 4, "groups", "Group", &e.Found.Groups, (*coder).group)
	list(c, 5, "meters", "Meter", &e.Found.Meters, (*coder).meter)
}

func (c *coder) portInfo(p *fabric.PortInfo) {
	num(c, 1, "port", &p.Port)
	c.str(2, "name", &p.Name)
	c.fixed(3, "mac", p.MAC[:])
	c.flag(4, "up", &p.Up)
}

func (c *coder) portChanged(e *fabric.PortChanged) {
	num(c, 1, "switch", &e.Switch)
	message(c, 2, "port", "PortInfo", &e.Port, (*coder).portInfo)
	c.flag(3, "gone", &e.Gone)
}

func (c *coder) packetIn(e *fabric.PacketIn) {
	num(c, 1, "switch", &e.At.Switch)
	num(c, 2, "port", &e.At.N)
	num(c, 3, "kind", &e.Kind)
	c.data(4, "frame", &e.Frame)
}

func (c *coder) confirmed(e *fabric.Confirmed) {
	num(c, 1, "switch", &e.Switch)
	num(c, 2, "serial", &e.Serial)
}

func (c *coder) expired(e *fabric.Expired) {
	num(c, 1, "switch", &e.Switch)
	message(c, 2, "flow", "FlowKey", &e.Flow, (*coder).flowKey)
}

func (c *coder) pinAsked(e *fabric.PinAsked) {
	message(c, 1, "flow", "Tuple", &e.Tuple, (*coder).tuple)
	num(c, 2, "idle_seconds", &e.IdleSeconds)
}

func (c *coder) portStats(e *fabric.PortStats) {
	num(c, 1, "switch", &e.Switch)
	list(c, 2, "ports", "Counters", &e.Ports, (*coder).counters)
}

func (c *coder) counters(p *fabric.Counters) {
	num(c, 1, "port", &p.Port)
	num(c, 2, "rx_packets", &p.RxPackets)
	num(c, 3, "tx_packets", &p.TxPackets)
	num(c, 4, "rx_bytes", &p.RxBytes)
	num(c, 5, "tx_bytes", &p.TxBytes)
	num(c, 6, "rx_dropped", &p.RxDropped)
	num(c, 7, "tx_dropped", &p.TxDropped)
	num(c, 8, "rx_errors", &p.RxErrors)
	num(c, 9, "tx_errors", &p.TxErrors)
}

func (c *coder) left(e *fabric.Left) { num(c, 1, "switch", &e.Switch) }

func (c *coder) statsFailed(e *fabric.StatsFailed) { num(c, 1, "switch", &e.Switch) }

func (c *coder) pinDropped(e *fabric.PinDropped) {
	message(c, 1, "flow", "Tuple", &e.Tuple, (*coder).tuple)
}

func (c *coder) tuple(t *fabric.Tuple) {
	num(c, 1, "protocol", &t.Proto)
	c.fixed(2, "source", t.Src[:])
	c.fixed(3, "destination", t.Dst[:])
	num(c, 4, "source_port", &t.SrcPort)
	num(c, 5, "destination_port", &t.DstPort)
}

func (c *coder) flowKey(k *fabric.FlowKey) {
	num(c, 1, "table", &k.Table)
	num(c, 2, "priority", &k.Priority)
	message(c, 3, "match", "Match", &k.Match, (*coder).match)
}

func (c *coder) match(m *fabric.Match) {
	num(c, 1, "in_port", &m.InPort)
	c.fixed(2, "eth_source", m.EthSrc[:])
	c.fixed(3, "eth_destination", m.EthDst[:])
	num(c, 4, "eth_type", &m.EthType)
	message(c, 5, "flow", "Tuple", &m.Tuple, (*coder).tuple)
	num(c, 6, "tcp_flag", &m.TCPFlag)
}

func (c *coder) flowEntry(f *fabric.Flow) {
	message(c, 1, "key", "FlowKey", &f.FlowKey, (*coder).flowKey)
	num(c, 2, "meter", &f.Do.Meter)
	num(c, 3, "out", &f.Do.Out)
	num(c, 4, "group", &f.Do.Group)
	num(c, 5, "goto", &f.Do.Goto)
	num(c, 6, "kind", &f.Kind)
	num(c, 7, "idle_seconds", &f.Idle)
}

func (c *coder) group(g *fabric.Group) {
	num(c, 1, "group", &g.ID)
	nums(c, 2, "ports", &g.Ports)
}

func (c *coder) meter(m *fabric.Meter) {
	num(c, 1, "meter", &m.ID)
	num(c, 2, "rate", &m.Rate)
	num(c, 3, "burst", &m.Burst)
}
