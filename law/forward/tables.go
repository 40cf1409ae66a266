package forward

import (
	"weir/law/fabric"
)

// The tables of a switch. A frame from another switch goes directly to the pinned flows. So copies are made, and hosts learnt,
// only where a frame enters the fabric.
//
//	0 entry    probes (those from a link apart), broadcast ARP: controller | from a link: 2 | SYN, FIN, RST: copy, 1 | else 1
//	1 source   known host at its port: 2 | else copy, 2
//	2 pinned   five-tuple: out | else 3
//	3 host     destination: out, or the group of its switch | else controller
const (
	tableEntry uint8 = iota
	tableSource
	tablePinned
	tableHost
)

const (
	prioMiss  uint16 = 0
	prioHost  uint16 = 100
	prioCopy  uint16 = 300
	prioARP   uint16 = 500
	prioLink  uint16 = 700
	prioProbe uint16 = 900 // + 1: from a link
)

const (
	typeIPv4 uint16 = 0x0800
	typeARP  uint16 = 0x0806
	typeLLDP uint16 = 0x88cc

	flagFIN uint16 = 1 // RFC 9293, 3.1
	flagSYN uint16 = 2
	flagRST uint16 = 4
)

// Meters, one for each reason of packets to the controller, so that a flood of one kind does not displace others. Probes that come in
// from links have their own: guests can send LLDP frames, too, and a link without probes ends.
const (
	meterProbe = fabric.MeterFirst + iota
	meterARP
	meterSYN
	meterFIN
	meterRST
	meterSource
	meterMiss
	meterLinkProbe
)

func (r Rates) meters() []fabric.Meter {
	m := func(id, rate uint32) fabric.Meter { return fabric.Meter{ID: id, Rate: rate, Burst: max(rate/10, 10)} }
	return []fabric.Meter{
		m(meterProbe, r.Probe), m(meterARP, r.ARP), m(meterSYN, r.Copy), m(meterFIN, r.Copy), m(meterRST, r.Copy),
		m(meterSource, r.Source), m(meterMiss, r.Miss), m(meterLinkProbe, r.Probe),
	}
}

func flow(table uint8, prio uint16, m fabric.Match, k fabric.Kind, do fabric.Do) fabric.Flow {
	return fabric.Flow{FlowKey: fabric.FlowKey{Table: table, Priority: prio, Match: m}, Kind: k, Do: do}
}

// everywhere returns the flows that every switch has.
func everywhere() []fabric.Flow {
	var any fabric.Match
	tcp := func(flag uint16) fabric.Match { return fabric.Match{EthType: typeIPv4, TCPFlag: flag} }
	return []fabric.Flow{
		flow(tableEntry, prioProbe, fabric.Match{EthType: typeLLDP}, fabric.Probe, fabric.Do{Meter: meterProbe}),
		flow(tableEntry, prioARP, fabric.Match{EthType: typeARP, EthDst: fabric.Broadcast}, fabric.ARP, fabric.Do{Meter: meterARP}),
		// Of two flags the more important one counts: RST, then SYN.
		flow(tableEntry, prioCopy+2, tcp(flagRST), fabric.RST, fabric.Do{Meter: meterRST, Goto: tableSource}),
		flow(tableEntry, prioCopy+1, tcp(flagSYN), fabric.SYN, fabric.Do{Meter: meterSYN, Goto: tableSource}),
		flow(tableEntry, prioCopy, tcp(flagFIN), fabric.FIN, fabric.Do{Meter: meterFIN, Goto: tableSource}),
		flow(tableEntry, prioMiss, any, fabric.Pass, fabric.Do{Goto: tableSource}),
		flow(tableSource, prioMiss, any, fabric.UnknownSource, fabric.Do{Meter: meterSource, Goto: tablePinned}),
		flow(tablePinned, prioMiss, any, fabric.Pass, fabric.Do{Goto: tableHost}),
		flow(tableHost, prioMiss, any, fabric.Miss, fabric.Do{Meter: meterMiss}),
	}
}

// fromLink lets frames from another switch skip the tables for hosts.
func fromLink(p fabric.PortNo) fabric.Flow {
	return flow(tableEntry, prioLink, fabric.Match{InPort: p}, fabric.Link, fabric.Do{Goto: tablePinned})
}

// probeFromLink sends the probes that come in at a port that is part of a link, or was.
func probeFromLink(p fabric.PortNo) fabric.Flow {
	return flow(tableEntry, prioProbe+1, fabric.Match{InPort: p, EthType: typeLLDP}, fabric.Probe, fabric.Do{Meter: meterLinkProbe})
}

// fromHost lets a host's frames pass at its port. The flow expires after an idle time, and the law then forgets the host.
func fromHost(m fabric.MAC, p fabric.PortNo, idle uint16) fabric.Flow {
	f := flow(tableSource, prioHost, fabric.Match{InPort: p, EthSrc: m}, fabric.Source, fabric.Do{Goto: tablePinned})
	f.Idle = idle
	return f
}

func hostKey(m fabric.MAC) fabric.FlowKey {
	return fabric.FlowKey{Table: tableHost, Priority: prioHost, Match: fabric.Match{EthDst: m}}
}

func toHost(m fabric.MAC, p fabric.PortNo) fabric.Flow {
	return fabric.Flow{FlowKey: hostKey(m), Kind: fabric.HostHere, Do: fabric.Do{Out: p}}
}

func toRemote(m fabric.MAC, group uint32) fabric.Flow {
	return fabric.Flow{FlowKey: hostKey(m), Kind: fabric.HostThere, Do: fabric.Do{Group: group}}
}

func pinned(t fabric.Tuple, p fabric.PortNo, idle uint16) fabric.Flow {
	f := flow(tablePinned, prioHost, fabric.Match{EthType: typeIPv4, Tuple: t}, fabric.Pinned, fabric.Do{Out: p})
	f.Idle = idle
	return f
}
