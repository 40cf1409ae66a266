package sim

import (
	"slices"

	"weir/experiment/result"
	"weir/sim/event"
	"weir/sim/network"
	"weir/sim/tcp"
)

const (
	// datagramBytes is the payload of an IPv4 packet of 1500 B.
	datagramBytes = 1472
	// datagramHeaders is the size of IPv4 and UDP headers. A flow's rate includes them: it is the rate of IP packets.
	datagramHeaders = 28
	etherHeader     = 14
	// sourcePackets is how many packets of a flow wait in its host's NIC at most. A packet that is due while there is no
	// room is lost in the source, as in a program whose socket is full. (Linux's wmem_default of 212992 B has room for
	// 92 packets, with their overhead.)
	sourcePackets = 92
	firstUDPPort  = 20000
)

// datagrams is a UDP flow in progress: packets at exact intervals.
type datagrams struct {
	*flow
	from, to         network.NodeID
	fromPort, toPort uint16
	hash             uint32
	index            int           // in traffic.udp
	nic              *network.Port // nil: packets do not pass it, because both ends are behind one hypervisor
	leaves           []event.Time  // when the flow's packets in a FIFO NIC will have left it, ascending
	queued           int           // the flow's packets in a NIC that is a served port
	next             event.Event
	begun            event.Time
	turns            int64 // packets that were due, sent or not
	sentLeft         int64 // of a sized flow, bytes
}

// startDatagrams begins a UDP flow.
func (t *traffic) startDatagrams(f *flow, pair int32) {
	ends := t.items[f.item].ends[pair]
	n := len(t.udp)
	d := &datagrams{
		flow: f, from: ends[0], to: ends[1], index: n, nic: t.net.NIC(ends[0]), begun: t.queue.Now(), sentLeft: f.size,
		// No two flows of a pair of hosts have the same two ports.
		fromPort: uint16(firstUDPPort + n%40000), toPort: uint16(firstUDPPort + n/40000%40000),
	}
	d.hash = network.FlowHash(d.from, d.to, d.fromPort, d.toPort, network.UDP)
	if d.nic == t.net.NIC(d.to) {
		d.nic = nil
	}
	d.next.Init(d)
	t.udp = append(t.udp, d)
	f.addCounts(tcpCounts{}) // UDP has none
	f.begin(result.Key{Proto: network.UDP, Src: addrPort(d.from, d.fromPort), Dst: addrPort(d.to, d.toPort)}, d.begun)
	d.Happen(&d.next, d.begun)
}

// Happen sends the packet that is due. After the last packet it waits for those on their way. Packets that have not
// arrived then are lost.
func (d *datagrams) Happen(_ *event.Event, now event.Time) {
	if d.ended {
		return
	}
	if d.size > 0 && d.sentLeft == 0 {
		d.end(false, now)
		return
	}
	n := int64(datagramBytes)
	if d.size > 0 {
		n = min(n, d.sentLeft)
		d.sentLeft -= n
	}
	if d.waits(now) < sourcePackets {
		d.send(n)
	}
	d.turns++
	at := d.at(d.turns)
	if d.size > 0 && d.sentLeft == 0 {
		at = now + drainTime
	}
	d.t.queue.Set(&d.next, at)
}

// at returns when packet n is due: after n packets of 1500 B at d.rate.
func (d *datagrams) at(n int64) event.Time {
	const bits = 8 * (datagramBytes + datagramHeaders)
	whole, part := n/d.rate, n%d.rate // n * bits * 1e9 would not fit; n < rate nearly always
	return d.begun + event.Time(whole*bits*1e9) + mulDiv(part*bits, 1e9, d.rate)
}

// waits returns how many of the flow's packets wait in the NIC. Packets of others do not take room in its socket.
func (d *datagrams) waits(now event.Time) int {
	gone := 0
	for gone < len(d.leaves) && d.leaves[gone] <= now {
		gone++
	}
	d.leaves = slices.Delete(d.leaves, 0, gone)
	return d.queued + len(d.leaves)
}

func (d *datagrams) send(n int64) {
	pk := d.t.net.NewPacket()
	pk.SetSrc(d.from)
	pk.SetDst(d.to)
	pk.SetSrcPort(d.fromPort)
	pk.SetDstPort(d.toPort)
	pk.SetProto(network.UDP)
	pk.SetPayload(int32(n))
	pk.SetBytes(int32(n) + datagramHeaders + etherHeader)
	pk.SetHash(d.hash)
	pk.SetTag(uint64(d.index))
	served := d.nic != nil && d.nic.Served()
	if served {
		d.queued++ // until transports.left
	}
	d.t.net.Send(d.from, pk)
	if d.nic != nil && !served {
		d.leaves = append(d.leaves, d.nic.FreeAt())
	}
}

// transports is the Sink of a run that has UDP in addition to TCP.
type transports struct {
	t     *traffic
	stack *tcp.Stack
	left  func(pk *network.Packet) // Network.Left of the stack
}

// Left implements Network.Left. It counts datagrams that have left a NIC.
func (s *transports) Left(pk *network.Packet) {
	if pk.Proto() != network.UDP {
		s.left(pk)
		return
	}
	d := s.t.udp[pk.Tag()]
	d.queued = max(0, d.queued-1) // 0: the NIC was a FIFO when the packet came
}

// Deliver implements network.Sink. It counts datagrams.
func (s *transports) Deliver(host network.NodeID, pk *network.Packet, now event.Time) {
	if pk.Proto() != network.UDP {
		s.stack.Deliver(host, pk, now)
		return
	}
	s.t.udp[pk.Tag()].received(int64(pk.Payload()), now)
	s.t.net.Free(pk)
}
