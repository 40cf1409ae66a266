package network

import (
	"fmt"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

// arrival is a packet that reached a host.
type arrival struct {
	host NodeID
	at   event.Time
	tag  uint64
}

// sink notes the packets that arrive, and frees them.
type sink struct {
	net  *Network
	got  []arrival
	last Packet
}

func (s *sink) Deliver(host NodeID, pk *Packet, now event.Time) {
	s.got = append(s.got, arrival{host, now, pk.tag})
	s.last = *pk
	s.net.Free(pk)
}

// build builds a network of the graph, with a sink.
func build(t testing.TB, g *experiment.Graph, o Options) (*Network, *sink) {
	t.Helper()
	n, err := Build(event.NewQueue(), configOf(g), o)
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{net: n}
	n.Sink = s
	return n, s
}

// pair is two hosts at one switch. The port of interest is "switch->b"; a's link is 1000 times faster.
func pair(rate law.Rate, delay law.Duration, buffer law.Limit) *experiment.Graph {
	return &experiment.Graph{
		Nodes: []experiment.Node{
			{Name: "switch", Kind: experiment.Switch},
			{Name: "a", Kind: experiment.Guest, Attached: "switch"},
			{Name: "b", Kind: experiment.Guest, Attached: "switch"},
		},
		Links: []experiment.Link{
			{A: "a", B: "switch", Rate: 1000 * rate, Buffer: buffer},
			{A: "b", B: "switch", Rate: rate, Delay: delay, Buffer: buffer},
		},
	}
}

func (n *Network) id(t testing.TB, name string) NodeID {
	t.Helper()
	id, ok := n.Node(name)
	if !ok {
		t.Fatalf("no node %s", name)
	}
	return id
}

// packet returns a frame of that many bytes from one host to another.
func (n *Network) packet(src, dst NodeID, bytes int32, tag uint64) *Packet {
	pk := n.NewPacket()
	pk.src, pk.dst, pk.bytes, pk.tag = src, dst, bytes, tag
	return pk
}

// conserved checks that no port and no pool has lost or duplicated a packet.
func conserved(t testing.TB, n *Network) {
	t.Helper()
	conservedBut(t, n, 0)
}

// conservedBut is conserved when guards have taken that many packets for hosts.
func conservedBut(t testing.TB, n *Network, held int64) {
	t.Helper()
	for _, p := range n.Ports {
		c := p.Counters()
		sum := Count{
			c.Sent.Packets + c.Tail.Packets + c.Law.Packets + c.Down.Packets + c.Queued.Packets + c.Taken.Packets,
			c.Sent.Bytes + c.Tail.Bytes + c.Law.Bytes + c.Down.Bytes + c.Queued.Bytes + c.Taken.Bytes,
		}
		if c.In != sum {
			t.Errorf("%s: in %v, accounted for %v: %+v", p.Name, c.In, sum, c)
		}
		if p.kind != wire && !p.Buffer.Packets && p.server == nil && (c.Queued.Bytes < 0 || c.Queued.Bytes > p.Buffer.N) {
			t.Errorf("%s has %d bytes in a buffer of %d", p.Name, c.Queued.Bytes, p.Buffer.N)
		}
		held += c.Taken.Packets + int64(p.end-p.left)
		held += int64(p.left - p.first)
		if p.server != nil {
			held += p.server.packets
		}
	}
	if n.Borrowed() != held {
		t.Errorf("%d packets are outside the pool, %d in ports", n.Borrowed(), held)
	}
}

// later runs a function at a time.
type later struct {
	ev event.Event
	do func(now event.Time)
}

func (l *later) Happen(_ *event.Event, now event.Time) { l.do(now) }

func at(q *event.Queue, t event.Time, do func(now event.Time)) {
	l := &later{do: do}
	l.ev.Init(l)
	q.Set(&l.ev, t)
}

func (a arrival) String() string { return fmt.Sprintf("%d at %d ns", a.tag, a.at) }

func configOf(g *experiment.Graph) *experiment.Config { return &experiment.Config{Graph: g} }
