package record

import (
	"net/netip"

	"weir/law"
	"weir/law/fabric"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// kind is a kind of events or actions: its field, and how to read and describe one.
type kind[V any] struct {
	n        int
	read     func(c *coder, b []byte) V
	describe func(c *coder)
}

// pointer is the kind of the events *E.
func pointer[V, E any](n int, name, typeOf string, body func(*coder, *E)) kind[V] {
	return kind[V]{
		n: n,
		read: func(c *coder, b []byte) V {
			e := new(E)
			nested(c, b, e, body)
			return any(e).(V)
		},
		describe: func(c *coder) {
			c.line(n, typeOf, name)
			later(c, typeOf, body)
		},
	}
}

// value is the kind of the actions A.
func value[V, A any](n int, name, typeOf string, body func(*coder, *A)) kind[V] {
	k := pointer[any](n, name, typeOf, body)
	return kind[V]{n: n, describe: k.describe, read: func(c *coder, b []byte) V { return any(*k.read(c, b).(*A)).(V) }}
}

// kinds reads or describes a field of which there is one of several kinds.
func kinds[V any](c *coder, list []kind[V], p *V) {
	for _, k := range list {
		switch c.mode {
		case decode:
			if f, has := c.one(k.n, true); has {
				*p = k.read(c, f.bytes)
			}
		case describe:
			k.describe(c)
		}
	}
}

// eventKinds lists the kinds of events by their fields in an entry. Numbers are not used again.
var eventKinds = []kind[law.Event]{
	value[law.Event](20, "tick", "Tick", (*coder).tick),
	pointer[law.Event](21, "switch", "Switch", (*coder).inventorySwitch),
	pointer[law.Event](22, "host", "Host", (*coder).host),
	pointer[law.Event](23, "switch_left", "SwitchLeft", (*coder).switchLeft),
	pointer[law.Event](24, "host_left", "HostLeft", (*coder).hostLeft),
	pointer[law.Event](25, "telemetry", "Telemetry", (*coder).telemetry),
	pointer[law.Event](26, "arrivals", "Arrivals", (*coder).arrivals),
	pointer[law.Event](27, "joined", "Joined", (*coder).joined),
	pointer[law.Event](28, "left", "Left", (*coder).left),
	pointer[law.Event](29, "port_changed", "PortChanged", (*coder).portChanged),
	pointer[law.Event](30, "packet_in", "PacketIn", (*coder).packetIn),
	pointer[law.Event](31, "confirmed", "Confirmed", (*coder).confirmed),
	pointer[law.Event](32, "expired", "Expired", (*coder).expired),
	pointer[law.Event](33, "pin_asked", "PinAsked", (*coder).pinAsked),
	pointer[law.Event](34, "pin_dropped", "PinDropped", (*coder).pinDropped),
	pointer[law.Event](35, "port_stats", "PortStats", (*coder).portStats),
	pointer[law.Event](36, "stats_failed", "StatsFailed", (*coder).statsFailed),
}

// encodeEvent is a switch over types, because it runs on the laws' goroutine. TestEvents_EveryKind compares it with eventKinds.
func (c *coder) encodeEvent(e law.Event, other *string) {
	switch e := e.(type) {
	case law.Tick:
		sub(c, 20, &e, (*coder).tick)
	case *inventory.Switch:
		sub(c, 21, e, (*coder).inventorySwitch)
	case *inventory.Host:
		sub(c, 22, e, (*coder).host)
	case *inventory.SwitchLeft:
		sub(c, 23, e, (*coder).switchLeft)
	case *inventory.HostLeft:
		sub(c, 24, e, (*coder).hostLeft)
	case *telemetry.Telemetry:
		sub(c, 25, e, (*coder).telemetry)
	case *telemetry.Arrivals:
		sub(c, 26, e, (*coder).arrivals)
	case *fabric.Joined:
		sub(c, 27, e, (*coder).joined)
	case *fabric.Left:
		sub(c, 28, e, (*coder).left)
	case *fabric.PortChanged:
		sub(c, 29, e, (*coder).portChanged)
	case *fabric.PacketIn:
		sub(c, 30, e, (*coder).packetIn)
	case *fabric.Confirmed:
		sub(c, 31, e, (*coder).confirmed)
	case *fabric.Expired:
		sub(c, 32, e, (*coder).expired)
	case *fabric.PinAsked:
		sub(c, 33, e, (*coder).pinAsked)
	case *fabric.PinDropped:
		sub(c, 34, e, (*coder).pinDropped)
	case *fabric.PortStats:
		sub(c, 35, e, (*coder).portStats)
	case *fabric.StatsFailed:
		sub(c, 36, e, (*coder).statsFailed)
	case nil:
	default:
		*other = typeName(e)
	}
}

func (c *coder) tick(*law.Tick) {}

func (c *coder) switchLeft(e *inventory.SwitchLeft) { num(c, 1, "switch", &e.At) }

func (c *coder) hostLeft(e *inventory.HostLeft) { num(c, 1, "host", &e.At) }

func (c *coder) inventorySwitch(e *inventory.Switch) {
	num(c, 1, "switch", &e.At)
	list(c, 2, "ports", "SwitchPort", &e.Ports, func(c *coder, p *inventory.Port) {
		num(c, 1, "port", &p.N)
		c.str(2, "name", &p.Name)
		signed(c, 3, "rate", &p.Rate)
		num(c, 4, "buffer_bytes", &p.BufferBytes)
	})
}

func (c *coder) host(e *inventory.Host) {
	num(c, 1, "host", &e.At)
	list(c, 2, "vms", "VM", &e.VMs, func(c *coder, vm *inventory.VM) {
		num(c, 1, "vm", &vm.Number)
		list(c, 2, "addresses", "Range", &vm.Addresses, (*coder).prefix)
		signed(c, 3, "guarantee_rate", &vm.Guarantee.Rate)
		num(c, 4, "guarantee_weight", &vm.Guarantee.Weight)
		signed(c, 5, "guarantee_cap", &vm.Guarantee.Cap)
	})
	signed(c, 3, "rate", &e.Rate)
}

func (c *coder) prefix(p *netip.Prefix) {
	a, bits := p.Addr(), uint8(max(p.Bits(), 0))
	c.addr(1, "address", &a)
	num(c, 2, "bits", &bits)
	if c.mode == decode {
		if *p = netip.PrefixFrom(a, int(bits)); a.IsValid() && !p.IsValid() {
			c.fail("a range of %d bits", bits)
		}
	}
}

func (c *coder) telemetry(e *telemetry.Telemetry) {
	num(c, 1, "switch", &e.At)
	signed(c, 2, "since_ns", &e.T)
	list(c, 3, "ports", "PortTelemetry", &e.Ports, (*coder).port)
}

func (c *coder) port(p *telemetry.Port) {
	num(c, 1, "port", &p.N)
	num(c, 2, "backlog_bytes", &p.BacklogBytes)
	num(c, 3, "peak_bytes", &p.PeakBytes)
	num(c, 4, "packets", &p.Packets)
	num(c, 5, "bytes", &p.Bytes)
	num(c, 6, "sent_bytes", &p.SentBytes)
	num(c, 7, "drops", &p.Drops)
	num(c, 8, "marks", &p.Marks.Packets)
	num(c, 9, "unknown_marks", &p.Marks.Unknown)
	num(c, 10, "further_marks", &p.Marks.Rest)
	list(c, 11, "marks_by_vm", "VMMarks", &p.Marks.ByVM, func(c *coder, m *telemetry.VMMarks) {
		num(c, 1, "vm", &m.VM)
		num(c, 2, "packets", &m.Packets)
	})
}

func (c *coder) arrivals(e *telemetry.Arrivals) {
	num(c, 1, "switch", &e.At)
	signed(c, 2, "since_ns", &e.T)
	list(c, 3, "ports", "PortArrivals", &e.Ports, func(c *coder, p *telemetry.PortArrivals) {
		num(c, 1, "port", &p.N)
		num(c, 2, "syn", &p.Counts.SYN)
		num(c, 3, "syn_ack", &p.Counts.SYNACK)
		num(c, 4, "fin", &p.Counts.FIN)
		num(c, 5, "rst", &p.Counts.RST)
		num(c, 6, "resumed", &p.Counts.Resume)
		num(c, 7, "found", &p.Counts.Found)
		num(c, 8, "requests", &p.Counts.Request)
		num(c, 9, "further", &p.Rest)
		list(c, 10, "pairs", "NewPair", &p.Pairs, func(c *coder, p *telemetry.Pair) {
			c.addr(1, "source", &p.Source)
			c.addr(2, "destination", &p.Destination)
			num(c, 3, "kinds", &p.Kinds)
			num(c, 4, "opened", &p.Opened)
			num(c, 5, "resumed", &p.Resumed)
			num(c, 6, "requested", &p.Requested)
		})
	})
}
